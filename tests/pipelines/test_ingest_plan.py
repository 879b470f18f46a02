"""Planning: every offset that may be read is read once, fairly, within the limits."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dw_platform.pipelines.ingest_plan import LEAST_ROWS_A_TASK, IngestPlan, OffsetRange, plan_ranges

offsets = st.integers(0, 3_000_000)
partitions = st.dictionaries(st.integers(0, 30), st.tuples(offsets, offsets, offsets), min_size=1, max_size=12)


def planned(
    bounds: dict[int, tuple[int, int, int]], *, max_rows: int = 1 << 40, max_bytes: int = 1 << 60, tasks: int = 1
) -> tuple[IngestPlan, dict[int, int], dict[int, int], dict[int, int]]:
    """Plan for partitions with (position, start, end) in any order of size; a position of 0 stands for none."""
    positions = {each: position for each, (position, _, _) in bounds.items() if position}
    starts = {each: min(start, end) for each, (_, start, end) in bounds.items()}
    ends = {each: max(start, end) for each, (_, start, end) in bounds.items()}
    plan = plan_ranges(
        positions, starts, ends, max_rows=max_rows, max_bytes=max_bytes, bytes_per_row=100.0, tasks=tasks
    )
    return plan, positions, starts, ends


@given(bounds=partitions, max_rows=st.integers(1, 5_000_000), tasks=st.integers(1, 16))
def test_ranges_cover_what_moves_exactly_once(
    bounds: dict[int, tuple[int, int, int]], max_rows: int, tasks: int
) -> None:
    plan, positions, starts, _ = planned(bounds, max_rows=max_rows, tasks=tasks)
    for partition in bounds:
        parts = sorted(part for task in plan.tasks for part in task if part.partition == partition)
        at = max(positions.get(partition, 0), starts[partition])
        for part in parts:
            assert part.first == at
            assert part.next > part.first
            at = part.next
        assert plan.positions.get(partition, positions.get(partition, 0)) == at


@given(bounds=partitions, max_rows=st.integers(1, 5_000_000), max_bytes=st.integers(1, 1 << 30))
def test_a_plan_stays_within_its_limits_and_uses_them(
    bounds: dict[int, tuple[int, int, int]], max_rows: int, max_bytes: int
) -> None:
    plan, positions, starts, ends = planned(bounds, max_rows=max_rows, max_bytes=max_bytes)
    waiting = sum(max(0, end - max(positions.get(each, 0), starts[each])) for each, end in ends.items())
    assert plan.rows == min(waiting, max(1, min(max_rows, max_bytes // 100)))


@given(bounds=partitions, max_rows=st.integers(1, 5_000_000))
def test_no_partition_gets_less_than_its_share(bounds: dict[int, tuple[int, int, int]], max_rows: int) -> None:
    plan, positions, starts, ends = planned(bounds, max_rows=max_rows)
    got: Counter[int] = Counter()
    for task in plan.tasks:
        got.update({part.partition: 0 for part in task})
        for part in task:
            got[part.partition] += len(part)
    for partition, end in ends.items():
        waiting = max(0, end - max(positions.get(partition, 0), starts[partition]))
        assert got[partition] >= min(waiting, max_rows // len(ends))


@given(bounds=partitions, tasks=st.integers(1, 16))
def test_tasks_are_few_equal_and_never_empty(bounds: dict[int, tuple[int, int, int]], tasks: int) -> None:
    plan, *_ = planned(bounds, tasks=tasks)
    sizes = [sum(map(len, task)) for task in plan.tasks]
    assert len(sizes) <= tasks
    assert all(sizes)
    if sizes:
        assert sizes[:-1] == [sizes[0]] * (len(sizes) - 1), "only the last one may be smaller"
        assert sizes[-1] <= sizes[0]
        assert len(sizes) == 1 or sizes[0] >= LEAST_ROWS_A_TASK // 2


@given(bounds=partitions)
def test_what_the_broker_no_longer_has_is_named(bounds: dict[int, tuple[int, int, int]]) -> None:
    plan, positions, starts, _ = planned(bounds)
    expected = [
        OffsetRange(each, positions.get(each, 0), starts[each])
        for each in sorted(bounds)
        if positions.get(each, 0) < starts[each]
    ]
    assert list(plan.lost) == expected


def test_a_hot_partition_is_read_by_several_tasks() -> None:
    plan = plan_ranges({}, {}, {0: 1_000_000, 1: 10}, max_rows=1 << 30, max_bytes=1 << 40, bytes_per_row=1, tasks=4)
    assert [sum(map(len, task)) for task in plan.tasks] == [250_003, 250_003, 250_003, 250_001]


def test_a_partition_that_the_plan_was_not_asked_for_does_not_move() -> None:
    plan = plan_ranges({0: 5, 7: 3}, {0: 0, 7: 0}, {0: 9}, max_rows=99, max_bytes=999, bytes_per_row=1, tasks=1)
    assert plan.positions == {0: 9}


def test_one_record_larger_than_a_commit_does_not_stop_the_stream() -> None:
    plan = plan_ranges({}, {}, {0: 9}, max_rows=99, max_bytes=1_000, bytes_per_row=1e9, tasks=1)
    assert plan.rows == 1
