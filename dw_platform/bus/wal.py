"""A partition whose messages are written to the log before they are acknowledged.

Durability: the future of `put` is done once the log's fsync policy is satisfied; readers see a message only then. A
group's place is stored with every commit, so a restart goes on after it: what was taken and not committed is
delivered again, and nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from dw_platform.bus.message import Delivery, Message
from dw_platform.bus.private import is_private
from dw_platform.bus.spot import Spot
from dw_platform.log import AppendResult, Log, LogBatch, Records, SubscriberOffsets

# Headers are text on the bus and bytes in the log; this way every byte of another writer comes through unchanged.
_CODING = ("utf-8", "surrogateescape")


class WalMessageQueue:
    """One partition of a topic of the log; this process is its only writer while it is open.

    Offsets are the log's. They can have gaps, where compaction or a crash left some.
    """

    def __init__(self, log: Log, offsets: SubscriberOffsets, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.log, self.offsets = log, offsets
        self._writer = log.writer(topic, partition)

    def put(self, messages: Sequence[Message]) -> "Future[AppendResult]":
        """Hand the messages to the log, in order; values are bytes."""
        keys = [message.key for message in messages]
        return self._writer.submit(
            Records(
                [message.value for message in messages],
                keys=keys if any(key is not None for key in keys) else None,
                headers=[_to_bytes(message.headers) for message in messages],
            )
        )

    def reader(self, group: str) -> "WalReader":
        """Return the place of `group` in the whole partition."""
        return WalReader(self, group, Spot(self.topic, 1, self.partition), Bounds())

    @property
    def start(self) -> int:
        """The lowest offset that is kept."""
        return self._writer.stats().start_offset

    @property
    def end(self) -> int:
        """The offset that the next acknowledged message will have at least."""
        return self._writer.stats().end_offset

    def metrics(self) -> dict[str, float]:
        """Return what the log says about itself."""
        stats = self._writer.stats()
        return {"log_bytes": stats.bytes, "log_segments": stats.segments, "log_fsyncs": stats.fsyncs}

    def maintain(self) -> None:
        """Drop what the topic's retention no longer keeps, and older values of keys where it asks for that."""
        self._writer.retain(self.offsets.lowest(self.topic, self.partition))
        self._writer.compact()

    def close(self) -> None:
        """Write what is pending and let another process write."""
        self._writer.close()


@dataclass(slots=True)
class Bounds:
    """The offsets [start, stop) of a partition that a reader sees; without `stop`, wherever the log ends."""

    start: int = 0
    stop: int | None = None

    def clamp(self, offset: int) -> int:
        """Return the nearest offset that is not outside."""
        offset = max(offset, self.start)
        return offset if self.stop is None else min(offset, self.stop)


class WalReader:
    """One group's place in a part of a partition.

    A group that the store does not know begins with the oldest message. A private one is not stored at all.
    """

    def __init__(self, queue: WalMessageQueue, group: str, spot: Spot, bounds: Bounds) -> None:
        self._queue, self._group, self._spot, self._bounds = queue, group, spot, bounds
        self._source = queue.log.reader(queue.topic, queue.partition)
        self.committed = self._position = bounds.clamp(self._begin())
        self._last_taken = self.committed - 1

    def _begin(self) -> int:
        if is_private(self._group):
            return self._source.start_offset()
        queue = self._queue
        known = queue.offsets.committed(queue.topic, self._group).get(queue.partition)
        if known is None:
            known = self._source.start_offset()
            # Retention waits for a group only once it is known.
            queue.offsets.register(queue.topic, self._group, {queue.partition: known})
        return known

    def take(self, max_messages: int) -> list[Delivery]:
        if self._position == self._bounds.clamp(self._queue.end):
            return []
        batch = self._source.read(self._position, max_records=max_messages)
        taken = [
            Delivery(*self._spot, offset, message)
            for offset, message in _messages(batch)
            if self._bounds.clamp(offset + 1) == offset + 1
        ]
        nothing_held = self.committed == self._position
        self._position = self._bounds.clamp(batch.next_offset)
        if taken:
            self._last_taken = taken[-1].offset
        elif nothing_held:
            self.committed = self._position  # a gap at the end, which nobody can commit
        return taken

    def commit(self, next_offset: int) -> None:
        # All that was taken: then also the gap behind it is done.
        done = self._position if next_offset == self._last_taken + 1 else next_offset
        if not is_private(self._group):
            self._queue.offsets.commit(self._queue.topic, self._group, {self._queue.partition: done})
        self.committed = done

    def close(self) -> None:
        self._source.close()

    def forget(self) -> None:
        """Close; the topic removes the stored place, which belongs to all partitions together."""
        self._source.close()


def _messages(batch: LogBatch) -> Iterator[tuple[int, Message]]:
    for part in batch.batches:
        columns = (part.column(name).to_pylist() for name in ("offset", "value", "key", "headers"))
        for offset, value, key, headers in zip(*columns, strict=True):
            yield offset, Message(value, key, _to_text(headers))


def _to_bytes(headers: Mapping[str, str]) -> dict[str, bytes] | None:
    return {name: text.encode(*_CODING) for name, text in headers.items()} or None


def _to_text(headers: Any) -> dict[str, str]:
    return {name: value.decode(*_CODING) for name, value in headers or ()}
