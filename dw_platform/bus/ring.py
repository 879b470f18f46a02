"""A ring buffer between threads: one producer, several consumers that each see every item in order.

Sequences count items for ever; the slot of a sequence is its low bits, which is why the size is a power of two. The
producer never overtakes the slowest consumer (the barrier), a consumer never overtakes the producer. Nothing is
locked on the way: an item is stored before its sequence is announced, and CPython's interpreter lock keeps that
order for all threads.

One thread at a time produces; callers with several take turns under a lock of their own. Consumers are independent,
one thread each.

References: a slot keeps its item until it is overwritten or `forget_consumed` is called.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar

from dw_platform.bus.waiting import Signal, WaitStrategy
from dw_platform.foundation import InvalidValueError

T = TypeVar("T")

DEFAULT_RING_SIZE = 65_536
# One slice of this many is copied at a time, so that a consumer far behind does not hold up the others.
DEFAULT_DRAIN = 1_024


class _SequenceMoved(Exception):  # noqa: N818 - a message to the generator, not an error
    """A batch was published past the run of slots that the generator had claimed."""


def check_ring_size(size: int) -> None:
    """Raise InvalidValueError unless `size` is a power of two from 2 on."""
    if size < 2 or size & (size - 1):
        raise InvalidValueError("ring_size", size, "a power of two from 2 on, such as 65536")


class RingBuffer(Generic[T]):
    """Slots for `size` items; without consumers, items are overwritten unseen."""

    def __init__(self, size: int = DEFAULT_RING_SIZE, *, wait: WaitStrategy = WaitStrategy.BLOCK) -> None:
        check_ring_size(size)
        self.size, self._mask, self.wait_strategy = size, size - 1, wait
        self._slots: list[T | None] = [None] * size
        self._consumers: tuple[RingConsumer[T], ...] = ()
        self._forgotten = 0
        self._barrier = size
        """The sequence up to which slots are known to be free; looked up again only when it is reached."""
        self.items_ready, self.room_ready = Signal(wait), Signal(wait)
        self.offer: Callable[[T], bool]
        """Publish one item and return True, or return False at once if the ring is full."""
        self.offer, self._advance, self._read_published = self._start_producer()

    def _start_producer(self) -> tuple[Callable[[T], bool], Callable[[int], None], Callable[[], int]]:
        """Return how to offer one item, how to announce a stored batch, and how to read the announced sequence.

        Offering is a generator's `send`: slots are claimed in runs, so a single item costs neither a call of a
        Python function nor a look at the consumers. Closures share `published` more cheaply than attributes do.
        The price: an exception that a signal handler raises inside `offer` ends it. The bus publishes batches only.
        """
        published, slots, mask, claim, signal = 0, self._slots, self._mask, self._claim, self.items_ready
        in_run = False

        def produce() -> Generator[bool, T, None]:
            nonlocal published, in_run
            item = yield True
            while True:
                run = range(published & mask, (published & mask) + claim(published))
                in_run = bool(run)
                if not in_run:
                    item = yield False
                    continue
                try:
                    for index in run:
                        slots[index] = item
                        published += 1
                        if signal.waiting:
                            signal.wake()
                        item = yield True
                except _SequenceMoved:
                    item = yield True

        def advance(count: int) -> None:
            nonlocal published, in_run
            published += count
            if in_run:
                in_run = False
                producer.throw(_SequenceMoved)
            if signal.waiting:
                signal.wake()

        producer = produce()
        next(producer)
        return producer.send, advance, lambda: published

    def _claim(self, published: int) -> int:
        """Return how many slots from `published` on are free, up to the end of the lap."""
        return min(self.size - (published & self._mask), self._free(published, 1))

    def _free(self, published: int, wanted: int) -> int:
        """Return how many slots are known to be free; all of them if these are fewer than `wanted`."""
        if published + wanted > self._barrier:
            self._barrier = self._slowest(published) + self.size
        return self._barrier - published

    def _slowest(self, published: int) -> int:
        return min((consumer.sequence for consumer in self._consumers), default=published)

    @property
    def published(self) -> int:
        """The sequence of the next item, which is also the number of items published so far."""
        return self._read_published()

    @property
    def consumed(self) -> int:
        """The sequence that the slowest consumer reads next."""
        return self._slowest(self.published)

    def offer_batch(self, items: Sequence[T]) -> int:
        """Publish the first items, as many as there is room for, all at once; return how many."""
        published, count = self._read_published(), len(items)
        if (free := self._free(published, count)) < count:
            count, items = free, items[:free]
        start = published & self._mask
        until_end = self.size - start
        if count <= until_end:
            self._slots[start : start + count] = items
        else:
            self._slots[start:] = items[:until_end]
            self._slots[: count - until_end] = items[until_end:]
        if count:
            self._advance(count)
        return count

    def publish(self, item: T, *, timeout_s: float | None = None) -> bool:
        """Publish one item, waiting for room; return False if there was none in time."""
        return self.offer(item) or (self._wait_for_room(timeout_s) and self.offer(item))

    def publish_batch(self, items: Sequence[T]) -> None:
        """Publish all items in order, waiting for room as often as needed."""
        done = self.offer_batch(items)
        while done < len(items):
            self._wait_for_room(None)
            done += self.offer_batch(items[done : done + self.size])

    def _wait_for_room(self, timeout_s: float | None) -> bool:
        return self.room_ready.wait_for(lambda: self._free(self.published, 1) > 0, timeout_s)

    def subscribe(self) -> "RingConsumer[T]":
        """Add a consumer that sees every item from now on; call it where items are published, or before."""
        consumer = RingConsumer(self, self.published)
        self._consumers = (*self._consumers, consumer)
        return consumer

    def unsubscribe(self, consumer: "RingConsumer[T]") -> None:
        """Remove a consumer; the producer no longer waits for it."""
        self._consumers = tuple(other for other in self._consumers if other is not consumer)
        self.room_ready.wake()

    def forget_consumed(self) -> None:
        """Drop the references to items that every consumer has taken; only the producer may call this."""
        consumed = self.consumed
        first = max(self._forgotten, self.published - self.size)  # older ones were overwritten
        for sequence in range(first, consumed):
            self._slots[sequence & self._mask] = None
        self._forgotten = consumed


class RingConsumer(Generic[T]):
    """One reader of a ring; `sequence` is the next item it will take."""

    def __init__(self, ring: RingBuffer[T], sequence: int) -> None:
        self.sequence = sequence
        self._ring, self._slots, self._mask = ring, ring._slots, ring.size - 1  # noqa: SLF001 - two halves of one thing

    @property
    def available(self) -> int:
        """How many items it could take now."""
        return self._ring.published - self.sequence

    def drain(self, max_items: int = DEFAULT_DRAIN) -> list[T]:
        """Take what is there, at most `max_items`, in order; an empty list if there is nothing."""
        first = self.sequence
        last = min(self._ring.published, first + max_items)
        if first >= last:
            return []
        start, stop = first & self._mask, last & self._mask
        taken = self._slots[start:stop] if start < stop else self._slots[start:] + self._slots[:stop]
        self.sequence = last
        if self._ring.room_ready.waiting:
            self._ring.room_ready.wake()
        return taken  # type: ignore[return-value]  # slots below the announced sequence hold items

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait the ring's way until there is an item; return False if there was none in time."""
        return self._ring.items_ready.wait_for(lambda: self._ring.published > self.sequence, timeout_s)

    def close(self) -> None:
        """Stop holding up the producer."""
        self._ring.unsubscribe(self)
