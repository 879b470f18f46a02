"""One question to an Arrow message before it is unpacked: whether its buffers are compressed.

The metadata of a message is a FlatBuffers table whose header, a RecordBatch table, has `compression` as its fourth
field (format/Message.fbs in Arrow's specification). pyarrow verifies the bytes when it reads the message but does not
show this field.
"""

_RECORD_BATCH = 3
_HEADER_TYPE, _HEADER = 1, 2
_COMPRESSION = 3


def is_compressed(metadata: bytes) -> bool:
    """Return whether the message is a record batch with compressed buffers; raise ValueError for other messages."""
    message = _number(metadata, 0, 4)
    kind = _field(metadata, message, _HEADER_TYPE)
    header = _field(metadata, message, _HEADER)
    if kind is None or header is None or metadata[kind] != _RECORD_BATCH:
        raise ValueError("it holds something else than record batches")
    return _field(metadata, header + _number(metadata, header, 4), _COMPRESSION) is not None


def _field(data: bytes, table: int, index: int) -> int | None:
    """Return where a field of the table is, or None if it has its default."""
    vtable = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    place = 4 + 2 * index
    if place + 2 > _number(data, vtable, 2):
        return None
    offset = _number(data, vtable + place, 2)
    return table + offset if offset else None


def _number(data: bytes, at: int, size: int) -> int:
    if not 0 <= at <= len(data) - size:
        raise ValueError("its metadata points outside of itself")
    return int.from_bytes(data[at : at + size], "little")
