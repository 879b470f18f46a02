"""Which offsets one commit of a stream reads, and which task reads what: a pure function of offsets and limits.

Fair: every partition gets its share of the commit, and what one does not need is given to the others. Balanced: the
ranges are laid end to end and cut into equal pieces, so a hot partition is read by several tasks at once while small
ones share a task. Offsets can have gaps, so a range holds at most as many records as it is long.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Below this a task costs more to start than it saves.
LEAST_ROWS_A_TASK = 50_000


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets [first, next) of one partition."""

    partition: int
    first: int
    next: int

    def __len__(self) -> int:
        return self.next - self.first

    def __str__(self) -> str:
        return f"partition {self.partition}, offsets {self.first} to {self.next - 1}"


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What one commit will hold."""

    tasks: tuple[tuple[OffsetRange, ...], ...]
    """Ranges to read, by task; together they hold every offset once."""

    positions: Mapping[int, int]
    """Where each partition that moves is read next, once this is committed."""

    lost: tuple[OffsetRange, ...]
    """Offsets before the ranges that the broker no longer has; nobody may pass over them without a word."""

    @property
    def rows(self) -> int:
        """The most records that it can hold."""
        return sum(len(part) for task in self.tasks for part in task)

    @property
    def empty(self) -> bool:
        """Whether nothing would move."""
        return not self.positions


def plan_ranges(
    positions: Mapping[int, int],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    max_rows: int,
    max_bytes: int,
    bytes_per_row: float,
    tasks: int,
) -> IngestPlan:
    """Return what to read next.

    `positions`: where each partition is read next; one that has none begins at 0. `starts` and `ends`: what the
    broker has; `ends` says which partitions count. At least one row is planned where there is one, so that a record
    larger than `max_bytes` does not stop the stream.
    """
    begins = {partition: max(positions.get(partition, 0), starts.get(partition, 0)) for partition in ends}
    waiting = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
    budget = max(1, min(max_rows, int(max_bytes / max(bytes_per_row, 1.0))))
    shares = _fair_shares(waiting, budget)
    ranges = [OffsetRange(each, begins[each], begins[each] + shares[each]) for each in sorted(ends) if shares[each]]
    reached = {partition: begins[partition] + shares[partition] for partition in ends}
    return IngestPlan(
        tasks=tuple(_cut(ranges, _pieces(sum(shares.values()), tasks))),
        positions={each: offset for each, offset in reached.items() if offset > positions.get(each, 0)},
        lost=tuple(
            OffsetRange(each, positions.get(each, 0), begins[each])
            for each in sorted(ends)
            if begins[each] > positions.get(each, 0)
        ),
    )


def _fair_shares(waiting: Mapping[int, int], budget: int) -> dict[int, int]:
    """Give each partition an equal share; what the small ones leave goes to the larger ones."""
    shares: dict[int, int] = {}
    left = budget
    for number, partition in enumerate(sorted(waiting, key=lambda each: (waiting[each], each))):
        # Rounded up, so that a budget below the number of partitions still moves some of them.
        share = -(-left // (len(waiting) - number))
        shares[partition] = min(waiting[partition], share)
        left -= shares[partition]
    return shares


def _pieces(rows: int, tasks: int) -> int:
    return max(1, min(tasks, -(-rows // LEAST_ROWS_A_TASK)))


def _cut(ranges: list[OffsetRange], pieces: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Yield `pieces` groups of equal length, cutting ranges where a group is full."""
    total = sum(map(len, ranges))
    room, group, done = -(-total // pieces), list[OffsetRange](), 0
    for each in ranges:
        first = each.first
        while first < each.next:
            upto = min(each.next, first + room)
            group.append(OffsetRange(each.partition, first, upto))
            room, done, first = room - (upto - first), done + upto - first, upto
            if room == 0 and done < total:
                yield tuple(group)
                room, group = min(-(-total // pieces), total - done), []
    if group:
        yield tuple(group)
