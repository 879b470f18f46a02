"""One record as a subscriber sees it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from dw_platform.log import LogBatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_HEADERS: Mapping[str, bytes] = {}


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
        for offset, milliseconds, key, value, headers in zip(*_columns(part), strict=True):
            left -= 1
            # From whole numbers, because Arrow's own way to a time with a zone imports pandas.
            at = _EPOCH + timedelta(milliseconds=milliseconds)
            event = StreamEvent(topic, partition, offset, at, key, value, dict(headers) if headers else _NO_HEADERS)
            yield event, offset + 1 if left else batch.next_offset


def _columns(part: Any) -> Iterator[list[Any]]:
    yield part.column("offset").to_pylist()
    yield part.column("timestamp").cast(pa.int64()).to_pylist()
    for name in ("key", "value", "headers"):
        column = part.column(name)
        yield [None] * len(column) if column.null_count == len(column) else column.to_pylist()
