"""A ring buffer between threads: one producer, several consumers that each see every item in order.

Sequences count items for ever. Items lie in chunks, lists that are filled up one after the other; the chunk of a
sequence is given by its high bits and the place therein by its low bits, which is why the size is a power of two. The
producer never overtakes the slowest consumer (the barrier), a consumer never overtakes the producer. Nothing is
locked on the way: an item is announced by the append that stores it, because a chunk's length says how far it is
filled, and CPython's interpreter lock makes an append one step for all threads. A full chunk never changes again, so
consumers may be given the chunk itself instead of a copy.

One thread at a time produces; callers with several take turns under a lock of their own. Consumers are independent,
one thread each.

References: a chunk keeps its items until it is overwritten or `forget_consumed` is called.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from dw_platform.bus.waiting import Signal, WaitStrategy
from dw_platform.foundation import InvalidValueError

T = TypeVar("T")

DEFAULT_RING_SIZE = 65_536
# One slice of this many is copied at a time, so that a consumer far behind does not hold up the others.
DEFAULT_DRAIN = 1_024
# A drain that begins with a chunk copies it in one piece.
_LARGEST_CHUNK = DEFAULT_DRAIN
# What a list takes in without running Python code, in which other threads could see a part of it.
_ONE_STEP = frozenset({list, tuple, range})


class _SequenceMoved(Exception):  # noqa: N818 - a message to the generator, not an error
    """A batch takes the room that the generator has claimed."""


def check_ring_size(size: int) -> None:
    """Raise InvalidValueError unless `size` is a power of two from 2 on."""
    if size < 2 or size & (size - 1):
        raise InvalidValueError("ring_size", size, "a power of two from 2 on, such as 65536")


class RingBuffer(Generic[T]):
    """Room for `size` items; without consumers, items are overwritten unseen."""

    def __init__(self, size: int = DEFAULT_RING_SIZE, *, wait: WaitStrategy = WaitStrategy.BLOCK) -> None:
        check_ring_size(size)
        self.size, self.wait_strategy = size, wait
        self._chunk_size = min(size, _LARGEST_CHUNK)
        # Two more than the items need: one may be read in part and filled in part, and the one after the last is made
        # ahead. So a consumer that finds nothing at its place knows that nothing was published there.
        self._chunks: list[list[T]] = [[] for _ in range(size // self._chunk_size + 2)]
        self._tail = 0, self._chunks[0]
        """The chunk that is being filled, and the sequence of its first item; one value, so that they fit together."""
        self._consumers: tuple[RingConsumer[T], ...] = ()
        self._forgotten = 0
        self._barrier = size
        """The sequence up to which there is known to be room; looked up again only when it is reached."""
        self._run: list[None] = []
        self.items_ready, self.room_ready = Signal(wait, on_wait=self._run.clear), Signal(wait)
        self._claimed = False
        self._producer = self._produce()
        next(self._producer)
        self.offer: Callable[[T], bool] = self._producer.send
        """Publish one item and return True, or return False at once if the ring is full."""

    def _produce(self) -> Generator[bool, T, None]:
        """Take items by `send`, so that a single one costs neither a Python function's call nor a look around.

        Room is claimed in runs, up to the end of a chunk. A consumer that begins to wait empties the run: it then
        ends with the next item, and the consumer is woken. No wake-up is lost, see Signal: the run is looked at
        after each append. The price of a generator: an exception that a signal handler raises inside `offer` ends
        it. The bus publishes batches only.
        """
        run, signal = self._run, self.items_ready
        item = yield True
        while True:
            room = self._claim()
            if not room:
                item = yield False
                continue
            _, chunk = self._tail
            chunk.append(item)
            run[:] = [None] * (room - 1)
            if signal.waiting:
                run.clear()
            self._claimed = True
            try:
                for _ in run:
                    chunk.append((yield True))
            except _SequenceMoved:
                del chunk
                item = yield True
                continue
            self._claimed = False
            if signal.waiting:
                signal.wake()
            del chunk  # a full one is not kept alive from here
            item = yield True

    def _claim(self) -> int:
        """Return how much room there is in the last chunk, which is a new one if that was full."""
        base, chunk = self._tail
        if len(chunk) == self._chunk_size:
            base += self._chunk_size
            chunk = self._begin(base // self._chunk_size)
            self._tail = base, chunk
        place = len(chunk)
        return min(self._chunk_size - place, self._free(base + place, 1))

    def _begin(self, number: int) -> list[T]:
        """Return the chunk `number`, after the one behind it was emptied."""
        chunks = self._chunks
        chunks[(number + 1) % len(chunks)] = []
        return chunks[number % len(chunks)]

    def _free(self, published: int, wanted: int) -> int:
        """Return how much room is known to be there; all of it if that is less than `wanted`."""
        if published + wanted > self._barrier:
            self._barrier = self._slowest(published) + self.size
        return self._barrier - published

    def _slowest(self, published: int) -> int:
        return min((consumer.sequence for consumer in self._consumers), default=published)

    @property
    def published(self) -> int:
        """The sequence of the next item, which is also the number of items published so far."""
        base, chunk = self._tail
        return base + len(chunk)

    @property
    def consumed(self) -> int:
        """The sequence that the slowest consumer reads next."""
        return self._slowest(self.published)

    def offer_batch(self, items: Sequence[T]) -> int:
        """Publish the first items, as many as there is room for, all at once; return how many."""
        base, chunk = self._tail
        place, count = len(chunk), len(items)
        if base + place + count > self._barrier:
            items = items[: self._free(base + place, count)]
            count = len(items)
        if self._claimed:
            self._claimed = False
            self._producer.throw(_SequenceMoved)
        if items.__class__ not in _ONE_STEP:
            items = list(items)
        if place + count <= self._chunk_size:
            chunk += items
        else:
            self._tail = self._spread(base, chunk, items)
        if self.items_ready.waiting:
            self.items_ready.wake()
        return count

    def _spread(self, base: int, chunk: list[T], items: Sequence[T]) -> tuple[int, list[T]]:
        """Store items in this chunk and those behind it, and return the last one with its first item's sequence."""
        size, last = self._chunk_size, chunk
        fitting = size - len(chunk)
        for start in range(fitting, len(items), size):
            base += size
            last = self._begin(base // size)
            last += items[start : start + size]
        # At last, because consumers reach the others only through this one.
        chunk += items[:fitting]
        return base, last

    def publish(self, item: T, *, timeout_s: float | None = None) -> bool:
        """Publish one item, waiting for room; return False if there was none in time."""
        return self.offer(item) or (self._wait_for_room(timeout_s) and self.offer(item))

    def publish_batch(self, items: Sequence[T]) -> None:
        """Publish all items in order, waiting for room as often as needed."""
        if (done := self.offer_batch(items)) < len(items):
            self._publish_rest(items[done:])

    def _publish_rest(self, items: Sequence[T]) -> None:
        done = 0
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
        consumed, size, chunks = self.consumed, self._chunk_size, self._chunks
        if len(self._tail[1]) == size:
            self._claim()  # begins another chunk: full ones must not change, so they can only be replaced
        last = self._tail[0]
        oldest = last - (len(chunks) - 2) * size  # older ones were overwritten
        for base in range(max(self._forgotten - self._forgotten % size, oldest), consumed, size):
            chunk, forgotten = chunks[base // size % len(chunks)], list[Any]([None]) * min(size, consumed - base)
            if base == last:
                chunk[: len(forgotten)] = forgotten
            else:
                chunks[base // size % len(chunks)] = forgotten + chunk[len(forgotten) :]
        self._forgotten = consumed


class RingConsumer(Generic[T]):
    """One reader of a ring; `sequence` is the next item it will take."""

    def __init__(self, ring: RingBuffer[T], sequence: int) -> None:
        self.sequence = sequence
        self._ring = ring
        self._chunks, self._chunk_size = ring._chunks, ring._chunk_size  # noqa: SLF001 - two halves of one thing

    @property
    def available(self) -> int:
        """How many items it could take now."""
        return self._ring.published - self.sequence

    def drain(self, max_items: int = DEFAULT_DRAIN) -> list[T]:
        """Take what is there, at most `max_items`, in order; an empty list if there is nothing."""
        first, chunks, size = self.sequence, self._chunks, self._chunk_size
        number, place = divmod(first, size)
        taken = chunks[number % len(chunks)][place : place + max_items]
        while place + len(taken) == size and len(taken) < max_items:
            number, place = number + 1, place - size
            taken += chunks[number % len(chunks)][: max_items - len(taken)]
        if taken:
            self.sequence = first + len(taken)
            if self._ring.room_ready.waiting:
                self._ring.room_ready.wake()
        return taken

    def take(self) -> Sequence[T]:
        """Take what lies there in one piece, without copying a full chunk; empty only if there is nothing.

        Others may hold the same list: it is for reading.
        """
        first, size = self.sequence, self._chunk_size
        number, place = divmod(first, size)
        chunk = self._chunks[number % len(self._chunks)]
        taken = chunk[place:] if place or len(chunk) < size else chunk
        if taken:
            self.sequence = first + len(taken)
            if self._ring.room_ready.waiting:
                self._ring.room_ready.wake()
        return taken

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait the ring's way until there is an item; return False if there was none in time."""
        return self._ring.items_ready.wait_for(lambda: self._ring.published > self.sequence, timeout_s)

    def close(self) -> None:
        """Stop holding up the producer."""
        self._ring.unsubscribe(self)
