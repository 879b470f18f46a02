"""Which unread records make room when a stream that may drop is full: a plan first, then the act."""

import math
from dataclasses import dataclass

from dw_platform.streaming.depth import Positions


@dataclass(frozen=True, slots=True)
class DropPlan:
    """The ranges [first, end) to drop, by partition."""

    ranges: dict[int, tuple[int, int]]

    @property
    def records(self) -> int:
        """Return how many records that is; where a broker leaves gaps, at most."""
        return sum(end - first for first, end in self.ranges.values())


def plan_drop(positions: Positions, keep: int) -> DropPlan:
    """Return what has to go so that at most `keep` records wait: the oldest, the same share of every partition.

    A partition's unread records begin where its slowest group reads next.
    """
    unread = {
        partition: (min(positions.next_of(group, partition) for group in positions.groups), end)
        for partition, end in positions.ends.items()
        if positions.groups
    }
    waiting = sum(max(end - first, 0) for first, end in unread.values())
    if waiting <= keep:
        return DropPlan({})
    share = (waiting - keep) / waiting
    ranges = {
        partition: (first, first + math.ceil((end - first) * share))
        for partition, (first, end) in unread.items()
        if end > first
    }
    return DropPlan(ranges)
