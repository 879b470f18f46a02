"""Partitions in memory: the standard queue, which is a topic of the bus underneath, and the ring in front of it.

A ring that is full spills into the standard queue. From then on everything goes there, until every group has taken
all of it; only then the ring is used again. Readers empty the ring first. So a group sees every message once and in
order, however often it switches.
"""

import threading
from collections.abc import Sequence

from dw_platform.bus.contract import MessageBus
from dw_platform.bus.message import Delivery, Message
from dw_platform.bus.ring import RingBuffer
from dw_platform.bus.spot import Spot
from dw_platform.bus.waiting import WaitStrategy


class StandardQueue:
    """One partition as a topic of another bus."""

    def __init__(self, spot: Spot, inner: MessageBus) -> None:
        self.spot, self.inner = spot, inner
        self._lock = threading.Lock()
        self.end = 0

    def put(self, messages: Sequence[Message]) -> None:
        with self._lock:
            self.inner.publish_sync(self.spot.name, messages)
            self.end += len(messages)

    def reader(self, group: str) -> "StandardReader":
        del group  # its place is this reader; nothing is remembered beyond it
        with self._lock:
            return StandardReader(self)

    def metrics(self) -> dict[str, float]:
        return {}


class StandardReader:
    """A group of its own on the bus underneath; what is taken counts as done there, because a lane keeps it."""

    def __init__(self, queue: StandardQueue) -> None:
        self.committed = self.taken = queue.end
        self._spot = queue.spot
        self._source = queue.inner.subscribe(queue.spot.name)

    def take(self, max_messages: int) -> list[Delivery]:
        messages = [delivery.message for delivery in self._source.take(max_messages)]
        self._source.commit_sync()
        first, self.taken = self.taken, self.taken + len(messages)
        return self._spot.deliver(first, messages)

    def commit(self, next_offset: int) -> None:
        self.committed = next_offset

    def close(self) -> None:
        self._source.close()

    def forget(self) -> None:
        self._source.close()


class RingQueue:
    """One hot partition: a ring, and a standard queue for what does not fit."""

    def __init__(self, spot: Spot, inner: MessageBus, ring_size: int) -> None:
        # The bus wakes its subscribers itself, so nobody waits inside the ring.
        self.spot, self.ring = spot, RingBuffer[Message](ring_size, wait=WaitStrategy.YIELD)
        self.spill = StandardQueue(spot, inner)
        self.lock = threading.Lock()
        self.readers: tuple[RingReader, ...] = ()
        self.end = 0

    def put(self, messages: Sequence[Message]) -> None:
        with self.lock:
            fitting = 0 if self._spilling() else self.ring.offer_batch(messages)
            if fitting < len(messages):
                self.spill.put(messages[fitting:])
            self.end += len(messages)

    def _spilling(self) -> bool:
        return any(reader.spill.taken < self.spill.end for reader in self.readers)

    def reader(self, group: str) -> "RingReader":
        del group  # its place is this reader; nothing is remembered beyond it
        with self.lock:
            reader = RingReader(self)
            self.readers = (*self.readers, reader)
        return reader

    def remove(self, reader: "RingReader") -> None:
        """Stop keeping messages for `reader`."""
        with self.lock:
            self.readers = tuple(other for other in self.readers if other is not reader)

    def metrics(self) -> dict[str, float]:
        ring = self.ring
        return {"ring_published": ring.published, "ring_consumed": ring.consumed, "ring_spilled": self.spill.end}


class RingReader:
    """A consumer of the ring and a reader of what was spilled."""

    def __init__(self, queue: RingQueue) -> None:
        self.committed = self._taken = queue.end
        self._queue, self._consumer, self.spill = queue, queue.ring.subscribe(), queue.spill.reader("")

    def take(self, max_messages: int) -> list[Delivery]:
        messages = self._consumer.drain(max_messages) or self._take_spilled(max_messages)
        first, self._taken = self._taken, self._taken + len(messages)
        return self._queue.spot.deliver(first, messages)

    def _take_spilled(self, max_messages: int) -> list[Message]:
        # Under the producer's lock and only if the ring is still empty: otherwise it could have been filled and have
        # spilled since, and the spilled messages would overtake those in the ring.
        with self._queue.lock:
            ring_first = self._consumer.drain(max_messages)
            return ring_first or [delivery.message for delivery in self.spill.take(max_messages)]

    def commit(self, next_offset: int) -> None:
        self.committed = next_offset
        ring = self._queue.ring
        if ring.consumed == ring.published:
            with self._queue.lock:
                ring.forget_consumed()

    def close(self) -> None:
        self._queue.remove(self)
        self._consumer.close()
        self.spill.close()

    def forget(self) -> None:
        self.close()
