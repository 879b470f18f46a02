from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dw_platform.bus import assign

MEMBERS = st.lists(st.sampled_from("abcdefgh"), unique=True)


def counts(owners: list[str | None], members: list[str]) -> list[int]:
    return [owners.count(member) for member in members]


@given(partitions=st.integers(1, 24), history=st.lists(MEMBERS, min_size=1, max_size=6))
def test_everybody_has_a_fair_share_after_any_coming_and_going(partitions: int, history: list[list[str]]) -> None:
    owners: list[str | None] = []
    for members in history:
        owners = assign(partitions, members, owners)
        shares = counts(owners, members)
        assert sum(shares) == (partitions if members else 0)
        assert not members or max(shares) - min(shares) <= 1


@given(partitions=st.integers(1, 24), members=MEMBERS)
def test_nothing_moves_when_nobody_comes_or_goes(partitions: int, members: list[str]) -> None:
    owners = assign(partitions, members)
    assert assign(partitions, members, owners) == owners


@given(partitions=st.integers(1, 24), members=MEMBERS.filter(bool))
def test_a_newcomer_gets_only_its_share_and_nothing_else_moves(partitions: int, members: list[str]) -> None:
    before = assign(partitions, members)
    after = assign(partitions, [*members, "new"], before)
    moved = {owner for was, owner in zip(before, after, strict=True) if was != owner}
    assert moved <= {"new"}


@given(partitions=st.integers(1, 24), members=MEMBERS.filter(bool))
def test_when_somebody_leaves_only_its_partitions_move(partitions: int, members: list[str]) -> None:
    before = assign(partitions, members)
    after = assign(partitions, members[1:], before)
    kept = [(was, now) for was, now in zip(before, after, strict=True) if was != members[0]]
    assert all(was == now for was, now in kept)


def test_owners_stay_when_the_number_of_partitions_changes() -> None:
    sizes = [assign(count, ["a", "b"]) for count in (4, 4)]
    assert all(first == second for first, second in pairwise(sizes))
    assert assign(8, ["a", "b"], sizes[0])[:4] == sizes[0]


def test_without_members_nobody_owns_anything() -> None:
    assert assign(3, [], ["a", "a", "a"]) == [None, None, None]
