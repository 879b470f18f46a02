"""Records out of an Arrow IPC stream: the quickest way in, because no record is looked at by Python.

Columns: `value` (binary or string), and as wanted `key` (binary or string), `headers` (map from string to binary or
string) and `timestamp`. Where the topic's key is a field of the record and there is no `key` column, values are
parsed as JSON for it.

Trust: Arrow's reader believes the offsets inside a stream, and a compressed one can unfold to any size. So only the
columns above are read, compressed streams are refused before they are unpacked, and every batch is validated.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dw_platform.gateway.arrow_message import is_compressed
from dw_platform.gateway.errors import MalformedBodyError, NothingAcceptedError
from dw_platform.gateway.parsing import Batch, Collector, Rejected
from dw_platform.gateway.settings import TopicRules
from dw_platform.log import Records

_TEXT = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())


def parse_arrow(body: bytes, rules: TopicRules) -> Batch:
    """Read the stream; raise MalformedBodyError if it is not one, or has other columns."""
    if not body:
        raise MalformedBodyError("it is empty")
    try:
        table = _read(pa.py_buffer(body))
    except (pa.ArrowException, OSError, ValueError, IndexError, TypeError) as error:
        raise MalformedBodyError(f"it is not an Arrow stream ({' '.join(str(error).split())[:200]})") from error
    if not table.num_rows:
        raise MalformedBodyError("it holds no record")
    if rules.key_field is not None and "key" not in table.column_names:
        return _keyed_by_content(table, rules)
    return _whole(table, rules)


def _read(buffer: Any) -> Any:
    """Return the stream as a table of which every part has been checked."""
    messages = pa.ipc.MessageReader.open_stream(buffer)
    schema = pa.ipc.read_schema(messages.read_next_message())
    _check_columns(schema)
    batches = []
    for message in messages:
        if is_compressed(message.metadata.to_pybytes()):
            raise MalformedBodyError("its buffers are compressed; send them as they are")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        batches.append(batch)
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _check_columns(schema: Any) -> None:
    if "value" not in schema.names or len(set(schema.names)) != len(schema.names):
        raise MalformedBodyError("it needs one column `value`, and each column once")
    for field in schema:
        if not _fits(field.name, field.type):
            raise MalformedBodyError(
                f"it has a column {field.name[:80]!r} of type {str(field.type)[:80]}; allowed are `value` and `key` "
                "(binary or string), `headers` (map from string to binary or string) and `timestamp`"
            )


def _fits(name: str, kind: Any) -> bool:
    if name in ("value", "key"):
        return kind in _TEXT
    if name == "headers":
        return pa.types.is_map(kind) and kind.key_type == pa.string() and kind.item_type in _TEXT
    return name == "timestamp" and (pa.types.is_timestamp(kind) or kind == pa.int64())


def _column(table: Any, name: str) -> Any:
    """Return a column as one array, or None."""
    if name not in table.column_names:
        return None
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _keyed_by_content(table: Any, rules: TopicRules) -> Batch:
    if len(table.column_names) > 1:
        raise MalformedBodyError(
            f"beside `headers` and `timestamp` it needs a column `key`, the value of {rules.key_field}"
        )
    collector = Collector(rules)
    collector.parse([value or b"null" for value in _column(table, "value").cast(pa.binary()).to_pylist()])
    return collector.batch()


def _whole(table: Any, rules: TopicRules) -> Batch:
    values, keys = _column(table, "value").cast(pa.binary()), _column(table, "key")
    if keys is not None:
        keys = keys.cast(pa.binary())
    headers, times = _headers(_column(table, "headers")), _times(_column(table, "timestamp"))
    sizes = _lengths(values) + _lengths(keys)
    if headers is not None:
        sizes = sizes + np.array([sum(len(n) + len(v) for n, v in (each or {}).items()) for each in headers])
    good, rejected = _judge(values, keys, sizes, rules.max_record_bytes)
    if rejected:
        if not good.any():
            raise NothingAcceptedError(rejected, too_large=bool((sizes > rules.max_record_bytes).all()))
        kept = pa.array(good)
        values, keys, times = (None if part is None else part.filter(kept) for part in (values, keys, times))
        headers = None if headers is None else [each for each, taken in zip(headers, good, strict=True) if taken]
    records = Records(values, keys=keys, headers=headers, timestamps_ms=times)
    return Batch(records, int(sizes[good].sum()), rejected)


def _judge(values: Any, keys: Any, sizes: Any, limit: int) -> tuple[Any, Rejected]:
    """Return which records are good, and why the others are not."""
    good = sizes <= limit
    rejected: Rejected = [
        (int(index), f"it has {int(sizes[index]):,} bytes, the topic takes {limit:,}")
        for index in np.flatnonzero(~good)
    ]
    if values.null_count:
        # Without a value a record says that its key is deleted, so it needs one.
        empty = pc.is_null(values).to_numpy(zero_copy_only=False)
        keyless = np.ones(len(values), bool) if keys is None else pc.is_null(keys).to_numpy(zero_copy_only=False)
        wrong = empty & keyless & good
        rejected += [(int(index), "it has neither a value nor a key") for index in np.flatnonzero(wrong)]
        good = good & ~wrong
    return good, sorted(rejected)


def _lengths(array: Any) -> Any:
    if array is None:
        return 0
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets).astype(np.int64)


def _headers(array: Any) -> list[dict[str, bytes] | None] | None:
    if array is None:
        return None
    return [None if each is None else {name: _bytes(value) for name, value in each} for each in array.to_pylist()]


def _bytes(value: Any) -> bytes:
    if value is None:
        raise MalformedBodyError("a header has no value")
    return value.encode() if isinstance(value, str) else bytes(value)


def _times(array: Any) -> Any:
    if array is None:
        return None
    if array.null_count:
        raise MalformedBodyError("a record has no timestamp; give each one, or leave the column out")
    if array.type == pa.int64():
        return array
    try:
        zone = array.type.tz
        return array.cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64())
    except pa.ArrowException as error:
        raise MalformedBodyError(f"its timestamps cannot be read ({' '.join(str(error).split())[:200]})") from error
