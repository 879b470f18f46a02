from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.fabric.membership import Claim, NodeState, merge_views

VIEWS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.builds(Claim, st.integers(1, 4), st.sampled_from(NodeState)), max_size=3
)


@settings(deadline=None)
@given(VIEWS, VIEWS, VIEWS)
def test_views_can_be_merged_in_any_order_and_as_often_as_one_likes(
    one: dict[str, Claim], two: dict[str, Claim], three: dict[str, Claim]
) -> None:
    assert merge_views(one, two) == merge_views(two, one)
    assert merge_views(merge_views(one, two), three) == merge_views(one, merge_views(two, three))
    assert merge_views(one, one) == one
    assert merge_views(merge_views(one, two), two) == merge_views(one, two)


@settings(deadline=None)
@given(VIEWS, VIEWS)
def test_merging_forgets_no_node(one: dict[str, Claim], two: dict[str, Claim]) -> None:
    assert merge_views(one, two).keys() == one.keys() | two.keys()


@settings(deadline=None)
@given(st.integers(1, 9), st.sampled_from(NodeState), st.sampled_from(NodeState))
def test_what_is_said_about_an_older_life_says_nothing_about_a_newer_one(
    incarnation: int, old: NodeState, new: NodeState
) -> None:
    older, newer = {"a": Claim(incarnation, old)}, {"a": Claim(incarnation + 1, new)}
    assert merge_views(older, newer) == merge_views(newer, older) == newer


def test_within_one_life_a_node_only_gets_further_from_alive() -> None:
    order = [NodeState.ALIVE, NodeState.SUSPECT, NodeState.REMOVED, NodeState.LEFT]
    for worse in range(1, 4):
        for better in range(worse):
            merged = merge_views({"a": Claim(1, order[worse])}, {"a": Claim(1, order[better])})
            assert merged["a"].state is order[worse]
