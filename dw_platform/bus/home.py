"""Where a topic's partitions are: what a topic asks for, and how memory provides it."""

from dataclasses import dataclass
from typing import Protocol

from dw_platform.bus.contract import MessageBus, PartitionQueue
from dw_platform.bus.generation import Generation
from dw_platform.bus.queues import RingQueue, StandardQueue
from dw_platform.bus.spot import Spot


@dataclass(frozen=True, slots=True)
class Layout:
    """How a generation's partitions are made."""

    partitions: int
    ring_size: int | None = None
    """Slots of each partition's ring; None for a standard queue or a log."""


class TopicHome(Protocol):
    """Creates, finds and removes the generations of one topic; used under the topic's lock."""

    @property
    def durable(self) -> bool:
        """Whether messages are kept for groups that come later."""

    def open(self, layout: Layout) -> list[Generation]:
        """Return the generations that are there, oldest first, or a first one with `layout`."""

    def create(self, version: int, layout: Layout) -> Generation:
        """Return a new generation; from now on `open` returns it, too."""

    def finished(self, generation: Generation) -> bool:
        """Return whether nobody who is not here now could ask for it; the topic asks those who are."""

    def discard(self, generation: Generation) -> None:
        """Remove a generation that nobody needs."""

    def forget_group(self, group: str) -> None:
        """Give up the place that a group has, whether it is here or not."""

    def maintain(self) -> None:
        """Remove what need not be kept any longer."""

    def close(self) -> None:
        """Release everything; what is durable stays."""


class MemoryHome:
    """Partitions as queues and rings."""

    durable = False

    def __init__(self, topic: str, inner: MessageBus) -> None:
        self._topic, self._inner = topic, inner

    def open(self, layout: Layout) -> list[Generation]:
        return [self.create(1, layout)]

    def create(self, version: int, layout: Layout) -> Generation:
        spots = [Spot(self._topic, version, index) for index in range(layout.partitions)]
        return Generation(version, [self._queue(spot, layout) for spot in spots])

    def _queue(self, spot: Spot, layout: Layout) -> PartitionQueue:
        if layout.ring_size is None:
            return StandardQueue(spot, self._inner)
        return RingQueue(spot, self._inner, layout.ring_size)

    def finished(self, generation: Generation) -> bool:
        del generation  # a group that is not here has no place in memory
        return True

    def discard(self, generation: Generation) -> None:
        """Nothing to remove: readers have ended their own parts."""

    def forget_group(self, group: str) -> None:
        """Nothing to forget: a place in memory is its reader."""

    def maintain(self) -> None:
        """Nothing to do: what was read is gone."""

    def close(self) -> None:
        """Nothing to release."""
