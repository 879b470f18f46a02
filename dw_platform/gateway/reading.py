"""Records as an answer: JSON for people and scripts, Arrow for programs."""

from typing import Any

import pyarrow as pa

from dw_platform.gateway.bus_topics import as_text
from dw_platform.log import SCHEMA, LogBatch


def as_json(topic: str, partition: int, batch: LogBatch) -> dict[str, Any]:
    """Return the records and where to read on; a value that is not UTF-8 is base64 and says so."""
    return {
        "topic": topic,
        "partition": partition,
        "records": [record for part in batch.batches for record in _records(part)],
        "next_offset": batch.next_offset,
    }


def _records(part: Any) -> list[dict[str, Any]]:
    times = part["timestamp"].cast(pa.int64()).to_pylist()
    columns = (part[name].to_pylist() for name in ("offset", "key", "value", "headers"))
    return [
        _record(offset, time, key, value, headers)
        for time, offset, key, value, headers in zip(times, *columns, strict=True)
    ]


def _record(offset: int, time_ms: int, key: bytes | None, value: bytes | None, headers: Any) -> dict[str, Any]:
    shown_key, key_encoding = as_text(key)
    shown, encoding = as_text(value)
    return {
        "offset": offset,
        "timestamp_ms": time_ms,
        "key": shown_key,
        "key_encoding": key_encoding,
        "value": shown,
        "encoding": encoding,
        "headers": {name: as_text(text)[0] for name, text in headers or ()},
    }


def as_arrow(batch: LogBatch) -> bytes:
    """Return the records as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for part in batch.batches:
            writer.write_batch(part)
    content: bytes = sink.getvalue().to_pybytes()
    return content
