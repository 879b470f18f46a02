"""The order in which waiting requests go to the device: shares by weight, and nobody starves.

Start-time fair queueing. Each request gets a start tag: the later of its priority's own tag and the tag of the request
that went last; it then moves its priority's tag on by `cost / weight`. The waiting request with the smallest tag goes
first, of equal ones that of the higher priority. Within a priority it is first come, first served.

Bounds, exact and tested, for the first waiting request of a priority p (usually Low), whatever others send, counted
from when it became first: each other priority j sends at most

    weight_j / weight_p * (cost of p's request before it) + (cost of j's largest request)

before it goes, and never more than a single request if p's request before it is long gone. So with weights 16, 4, 1
and requests of 1 MiB everywhere, at most 17 requests of High and 5 of Normal go between two of Low.

A request costs its bytes, but at least `LEAST_COST`: small ones cost a device about the same, however small.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import lcm
from typing import Generic, TypeVar

from dw_platform.fileio.priority import IoPriority
from dw_platform.scaling import bounded, check_limits

T = TypeVar("T", bound=Hashable)

# Below this size a read takes about as long as one of this size: seek, command and interrupt outweigh the transfer.
LEAST_COST = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityWeights:
    """The share of the device that each priority gets while all three have something waiting."""

    high: int = field(default=16, metadata=bounded(at_least=1, at_most=1_000, reason="share while all wait"))
    normal: int = field(default=4, metadata=bounded(at_least=1, at_most=1_000, reason="share while all wait"))
    low: int = field(default=1, metadata=bounded(at_least=1, at_most=1_000, reason="never 0: Low always gets on"))

    def __post_init__(self) -> None:
        check_limits(self)

    def of(self, priority: IoPriority) -> int:
        """Return the weight of that priority."""
        return {IoPriority.HIGH: self.high, IoPriority.NORMAL: self.normal, IoPriority.LOW: self.low}[priority]


def cost_of(nbytes: int) -> int:
    """Return what a request of that size costs."""
    return max(nbytes, LEAST_COST)


class DispatchQueue(Generic[T]):
    """Waiting items by priority; not thread-safe, its owner holds the lock.

    Tags are whole numbers, `cost * (common multiple of the weights) / weight`, so shares stay exact for ever.
    """

    def __init__(self, weights: PriorityWeights) -> None:
        # Ordered, because an item may leave from the middle and the first one must be found at once.
        self._lanes: dict[IoPriority, OrderedDict[T, int]] = {priority: OrderedDict() for priority in IoPriority}
        self.reweigh(weights)

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def waiting(self, priority: IoPriority) -> int:
        """Return how many items of that priority wait."""
        return len(self._lanes[priority])

    def reweigh(self, weights: PriorityWeights) -> None:
        """Share by other weights from now on; what priorities had used before is forgotten."""
        unit = lcm(*(weights.of(priority) for priority in IoPriority))
        self._per_cost = {priority: unit // weights.of(priority) for priority in IoPriority}
        self._tags = dict.fromkeys(IoPriority, 0)
        self._now = 0

    def push(self, item: T, priority: IoPriority, nbytes: int) -> None:
        """Let `item` wait behind the others of its priority."""
        lane = self._lanes[priority]
        if not lane:
            # While it had nothing waiting it saved nothing up, or it could later keep the others away.
            self._tags[priority] = max(self._tags[priority], self._now)
        lane[item] = cost_of(nbytes)

    def pop(self) -> T:
        """Return the item that goes next; there must be one."""
        priority = min((lane for lane in IoPriority if self._lanes[lane]), key=self._tags.__getitem__)
        item, cost = self._lanes[priority].popitem(last=False)
        self._now = self._tags[priority]
        self._tags[priority] += cost * self._per_cost[priority]
        return item

    def remove(self, item: T, priority: IoPriority) -> None:
        """Let an item go that gave up waiting; it has cost its priority nothing."""
        del self._lanes[priority][item]

    def drain(self) -> list[T]:
        """Return all items and hold none."""
        items = [item for lane in self._lanes.values() for item in lane]
        for lane in self._lanes.values():
            lane.clear()
        return items
