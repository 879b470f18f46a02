from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.fabric import FabricLimits, TopologyChoice, TopologyKind, decide_topology
from dw_platform.fabric.switching import Due, advance_due, is_ripe
from dw_platform.foundation import InvalidValueError

STAR, MESH, FEDERATED = TopologyKind.STAR, TopologyKind.MESH, TopologyKind.FEDERATED
LIMITS = FabricLimits()
SMALL = FabricLimits(star=300, star_switch=200)


@pytest.mark.parametrize(
    ("current", "nodes", "limits", "expected"),
    [
        (STAR, 799, LIMITS, STAR),
        (STAR, 800, LIMITS, FEDERATED),  # a mesh carries 500
        (MESH, 399, LIMITS, STAR),
        (MESH, 400, LIMITS, STAR),
        (FEDERATED, 601, LIMITS, FEDERATED),
        (FEDERATED, 600, LIMITS, STAR),
        (FEDERATED, 20_000, LIMITS, FEDERATED),
        (STAR, 200, SMALL, MESH),
        (MESH, 151, SMALL, MESH),
        (MESH, 150, SMALL, STAR),
        (MESH, 400, SMALL, FEDERATED),
        (STAR, 450, SMALL, FEDERATED),
        (FEDERATED, 300, SMALL, MESH),
    ],
)
def test_the_number_of_nodes_decides(
    current: TopologyKind, nodes: int, limits: FabricLimits, expected: TopologyKind
) -> None:
    assert decide_topology(current, nodes, limits).kind is expected


def test_the_reason_of_a_switch_names_the_numbers() -> None:
    reason = decide_topology(STAR, 812, LIMITS).reason
    assert reason == "812 nodes are 800 or more, which outgrows a star; a federated carries 10,000"


def test_what_an_operator_chose_is_outgrown_but_not_shrunk() -> None:
    assert decide_topology(FEDERATED, 3, LIMITS, by_hand=True).kind is FEDERATED
    assert decide_topology(MESH, 10, LIMITS, by_hand=True).kind is MESH
    assert decide_topology(MESH, 400, LIMITS, by_hand=True).kind is STAR


def test_a_topology_that_is_set_is_taken_unless_it_cannot_carry_the_nodes() -> None:
    fixed = FabricLimits(topology=TopologyChoice.MESH)
    assert decide_topology(STAR, 10, fixed).kind is MESH
    assert decide_topology(MESH, 499, fixed).kind is MESH
    assert decide_topology(STAR, 501, fixed).kind is STAR


@settings(deadline=None)
@given(
    current=st.sampled_from(TopologyKind),
    nodes=st.integers(0, 12_000),
    limits=st.sampled_from([LIMITS, SMALL]),
    by_hand=st.booleans(),
)
def test_a_decision_is_at_rest_and_has_room(
    current: TopologyKind, nodes: int, limits: FabricLimits, *, by_hand: bool
) -> None:
    decided = decide_topology(current, nodes, limits, by_hand=by_hand).kind
    assert decide_topology(decided, nodes, limits, by_hand=by_hand).kind is decided
    if decided is not current:
        assert nodes <= limits.most(decided)


@settings(deadline=None)
@given(st.sampled_from([LIMITS, SMALL]), st.integers(0, 1_000), st.lists(st.integers(-20, 20), max_size=50))
def test_nodes_that_come_and_go_around_a_number_switch_at_most_twice(
    limits: FabricLimits, centre: int, wobble: list[int]
) -> None:
    # Once onto what fits, and once more if the number moves across a threshold; never back.
    current, switches = STAR, 0
    for offset in [0, *wobble]:
        decided = decide_topology(current, max(centre + offset, 0), limits).kind
        switches += decided is not current
        current = decided
    assert switches <= 2


def test_a_switch_waits_until_it_has_been_due_for_the_dwell() -> None:
    big, small = decide_topology(STAR, 900, LIMITS), decide_topology(STAR, 700, LIMITS)
    due = advance_due(None, big, STAR, now=10)
    assert due == Due(FEDERATED, 10)
    assert not is_ripe(due, LIMITS, now=69)
    assert is_ripe(advance_due(due, big, STAR, now=70), LIMITS, now=70)
    # A moment below the threshold starts the wait anew.
    assert advance_due(due, small, STAR, now=60) is None


def test_a_topology_that_somebody_set_does_not_wait() -> None:
    fixed = FabricLimits(topology=TopologyChoice.MESH)
    assert is_ripe(advance_due(None, decide_topology(STAR, 3, fixed), STAR, now=0), fixed, now=0)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"star_switch": 1_001}, "star_switch"),
        ({"mesh": 300}, "mesh_switch"),
        ({"missed": 1}, "missed"),
        ({"heartbeat": timedelta(milliseconds=10)}, "heartbeat"),
        ({"calm_share": 1.0}, "calm_share"),
        ({"cell_size": 1}, "cell_size"),
    ],
)
def test_limits_that_contradict_each_other_are_refused_when_built(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        FabricLimits(**changes)  # type: ignore[arg-type]
    assert refused.value.field == field
