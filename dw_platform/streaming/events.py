"""One record as a subscriber sees it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from dw_platform.log import LogBatch


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """A record with the place that it was read from."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


def events_of(topic: str, partition: int, batch: LogBatch) -> Iterator[tuple[StreamEvent, int]]:
    """Yield each record with the offset to read next once it is done; behind the last one a gap is skipped."""
    left = len(batch)
    for part in batch.batches:
        columns = [part.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value", "headers")]
        for offset, timestamp, key, value, headers in zip(*columns, strict=True):
            left -= 1
            event = StreamEvent(topic, partition, offset, timestamp, key, value, dict(headers or ()))
            yield event, offset + 1 if left else batch.next_offset
