from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.fabric.limits import TopologyKind
from dw_platform.fabric.topology import (
    NO_ROLE,
    Group,
    Seat,
    cell_of,
    cells_for,
    plan_groups,
    roles_of,
    watchers_of,
)

NUMBERS = st.sets(st.integers(0, 500), min_size=1, max_size=120)
KINDS = st.sampled_from(TopologyKind)


def seat(number: int, hosts: int = 7) -> Seat:
    return Seat(f"worker-{number}", f"host{number % hosts}", ("127.0.0.1", 1_000 + number))


def plan(kind: TopologyKind, numbers: set[int], cells: int = 5, unfit: frozenset[str] = frozenset()) -> list[Group]:
    return list(plan_groups(kind, [seat(number) for number in numbers], cells=cells, unfit=unfit))


@settings(deadline=None)
@given(KINDS, st.permutations(range(40)))
def test_the_same_nodes_make_the_same_groups_in_whatever_order_they_come(kind: TopologyKind, order: list[int]) -> None:
    assert plan_groups(kind, [seat(number) for number in order], cells=5) == plan_groups(
        kind, [seat(number) for number in range(40)], cells=5
    )


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=60),
    st.lists(st.tuples(KINDS, st.integers(1, 9)), min_size=1, max_size=5),
)
def test_no_sequence_of_joins_leaves_and_switches_loses_a_node(
    moves: list[tuple[bool, int]], topologies: list[tuple[TopologyKind, int]]
) -> None:
    nodes: set[int] = set()
    for joins, number in moves:
        nodes = nodes | {number} if joins else nodes - {number}
        for kind, cells in topologies:
            members = Counter(each.name for group in plan(kind, nodes, cells) for each in group.members)
            expected = nodes if kind is not TopologyKind.STAR else set[int]()
            assert members == Counter(seat(number).name for number in expected)


@settings(deadline=None)
@given(NUMBERS, st.integers(1, 9))
def test_every_member_of_a_cell_reports_to_its_hub_and_the_hub_to_the_store(numbers: set[int], cells: int) -> None:
    for group in plan(TopologyKind.FEDERATED, numbers, cells):
        roles = roles_of(group)
        for each in group.members:
            role = roles[each.name]
            if each.name == group.hub:
                assert role.writes_summary
                assert not role.reports_to
                assert {ward.name for ward in role.wards} == roles.keys() - {each.name}
            else:
                assert [hub.name for hub in role.reports_to] == [group.hub]
                assert not role.wards


@settings(deadline=None)
@given(NUMBERS)
def test_in_a_mesh_everybody_has_three_watchers_and_who_is_watched_is_known_to_be(numbers: set[int]) -> None:
    (group,) = plan(TopologyKind.MESH, numbers)
    roles = roles_of(group)
    for name, role in roles.items():
        assert len(role.reports_to) == min(3, len(numbers) - 1)
        assert name not in {watcher.name for watcher in role.reports_to}
        for watcher in role.reports_to:
            assert name in {ward.name for ward in roles[watcher.name].wards}
        assert len(role.wards) <= 6
    assert sum(len(role.wards) for role in roles.values()) == sum(len(role.reports_to) for role in roles.values())


@settings(deadline=None)
@given(NUMBERS, st.integers(0, 500))
def test_a_node_that_joins_a_mesh_changes_the_watchers_of_few(numbers: set[int], newcomer: int) -> None:
    before = watchers_of([seat(number, hosts=1) for number in numbers - {newcomer}])
    after = watchers_of([seat(number, hosts=1) for number in numbers | {newcomer}])
    assert sum(after[name] != watchers for name, watchers in before.items()) <= 3


@settings(deadline=None)
@given(NUMBERS, st.integers(0, 500), st.integers(1, 9))
def test_a_node_that_joins_moves_nobody_to_another_cell(numbers: set[int], newcomer: int, cells: int) -> None:
    def cell_by_name(members: set[int]) -> dict[str, int]:
        groups = plan(TopologyKind.FEDERATED, members, cells)
        return {each.name: group.number for group in groups for each in group.members}

    before, after = cell_by_name(numbers - {newcomer}), cell_by_name(numbers | {newcomer})
    assert {name: after[name] for name in before} == before


@settings(deadline=None)
@given(st.integers(1, 60))
def test_another_cell_takes_only_what_it_will_hold(cells: int) -> None:
    for number in range(200):
        before, after = cell_of(f"n{number}", cells), cell_of(f"n{number}", cells + 1)
        assert after in {before, cells}


@settings(deadline=None)
@given(NUMBERS, st.integers(1, 9))
def test_a_lost_hub_is_replaced_and_no_other_cell_notices(numbers: set[int], cells: int) -> None:
    before = plan(TopologyKind.FEDERATED, numbers, cells)
    lost = before[0].hub
    after = {
        group.number: group
        for group in plan_groups(
            TopologyKind.FEDERATED, [seat(n) for n in numbers if seat(n).name != lost], cells=cells
        )
    }
    assert [after[group.number] for group in before[1:]] == before[1:]
    if len(before[0].members) > 1:
        assert after[before[0].number].hub not in {None, lost}


@settings(deadline=None)
@given(NUMBERS, st.integers(1, 9), st.sets(st.integers(0, 500)))
def test_an_unfit_node_is_a_hub_only_where_nobody_else_is_left(numbers: set[int], cells: int, unfit: set[int]) -> None:
    names = frozenset(seat(number).name for number in unfit)
    for group in plan(TopologyKind.FEDERATED, numbers, cells, names):
        assert group.hub not in names or {each.name for each in group.members} <= names


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000_000))
def test_cells_are_balanced(start: int) -> None:
    sizes = Counter(cell_of(f"worker@host{number % 9}/{number}", 20) for number in range(start, start + 2_000))
    assert len(sizes) == 20
    assert max(sizes.values()) <= 2 * 100


@settings(deadline=None)
@given(st.lists(st.integers(0, 20_000), min_size=1), st.integers(2, 200))
def test_the_number_of_cells_follows_the_nodes_with_slack(counts: list[int], size: int) -> None:
    cells = 0
    for nodes in counts:
        before, cells = cells, cells_for(nodes, cells, size)
        assert cells >= 1
        assert nodes / cells <= 1.5 * size
        assert cells_for(nodes, cells, size) == cells
        if before and 0.5 * size <= nodes / before <= 1.5 * size:
            assert cells == before


def test_watchers_are_taken_from_other_hosts_while_there_are_some_near() -> None:
    watchers = watchers_of([seat(number, hosts=2) for number in range(100)])
    host_of = {seat(number).name: seat(number, hosts=2).host for number in range(100)}
    own_host = sum(host_of[name] == host_of[other] for name, others in watchers.items() for other in others)
    assert own_host < 75  # of 300; without the preference it is half of them


def test_a_node_that_is_alone_reports_to_the_store() -> None:
    (mesh,) = plan(TopologyKind.MESH, {1})
    assert roles_of(mesh)[seat(1).name].reports_to == NO_ROLE.reports_to
