"""The body of a frame: Arrow's own buffers, one after the other, each padded to 8 bytes.

    times      count x int64                          if a record has a time of its own
    deltas     count x int32                          if offsets have gaps: distance from the base offset
    keys       [bitmap] (count + 1) x int32, bytes    if a record has a key
    headers    [bitmap] (count + 1) x int32, names, values    if a record has headers; both as keys are
    values     [bitmap] (count + 1) x int32, bytes

A bitmap (Arrow's validity, least significant bit first) is there if its column has nulls. Flags say what is there.
Reading is slicing: the arrays point into the bytes that were read.
"""

import struct
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dw_platform.log.contract import HEADERS, SCHEMA
from dw_platform.log.errors import InvalidRecordsError, RecordTooLargeError
from dw_platform.log.policy import LARGEST_BATCH_BYTES
from dw_platform.log.records import Records

Buffers = list[Any]
_PADDING = [bytes(size) for size in range(8)]
_TIME = SCHEMA.field("timestamp").type
_NO_KEYS, _NO_HEADERS = pa.nulls(4096, pa.binary()), pa.nulls(4096, HEADERS)


class Flag:
    """What a frame's body holds besides the values; plain numbers, because enum's operators cost more than a frame."""

    KEYS = 1
    KEY_NULLS = 2
    VALUE_NULLS = 4
    HEADERS = 8
    HEADER_NULLS = 16
    TIMES = 32
    GAPS = 64


@dataclass(frozen=True, slots=True)
class Columns:
    """A batch as Arrow arrays; `deltas` are set by compaction only."""

    values: Any
    keys: Any = None
    headers: Any = None
    times: Any = None
    deltas: Any = None

    @classmethod
    def of(cls, records: Records) -> "Columns":
        """Return the batch as Arrow; raise InvalidRecordsError for what Arrow cannot hold."""
        try:
            return cls(
                values=_array(records.values, pa.binary()),
                keys=None if records.keys is None else _array(records.keys, pa.binary()),
                headers=None if records.headers is None else _header_array(records.headers),
                times=None if records.timestamps_ms is None else _times(records.timestamps_ms),
            )
        except (pa.ArrowException, OverflowError, ValueError, TypeError, AttributeError) as error:
            raise InvalidRecordsError(" ".join(str(error).split())) from error

    def __len__(self) -> int:
        return len(self.values)

    def check_sizes(self, max_record_bytes: int) -> int:
        """Return the bytes of all records; raise RecordTooLargeError if one or all of them have too many."""
        sizes = [_offsets(self.values)]
        if self.keys is not None:
            sizes.append(_offsets(self.keys))
        if self.headers is not None:
            sizes.append(_header_lengths(self.headers))
        total = sum(int(lengths[-1] - lengths[0]) for lengths in sizes)
        if total > max_record_bytes:
            largest = int(sum(np.diff(lengths.astype(np.int64)) for lengths in sizes).max())
            if largest > max_record_bytes:
                raise RecordTooLargeError("record", largest, max_record_bytes)
        if total > LARGEST_BATCH_BYTES:
            raise RecordTooLargeError("batch", total, LARGEST_BATCH_BYTES)
        return total

    def encode(self) -> tuple[int, Buffers]:
        """Return what the body holds, and its buffers with their padding."""
        flags, body = 0, Buffers()
        if self.times is not None:
            flags |= Flag.TIMES
            _put(body, _fixed(self.times))
        if self.deltas is not None:
            flags |= Flag.GAPS
            _put(body, _fixed(self.deltas))
        if self.keys is not None and self.keys.null_count < len(self.keys):
            flags |= Flag.KEYS | _put_nulls(body, self.keys, Flag.KEY_NULLS)
            _put_binary(body, self.keys)
        if self.headers is not None:
            flags |= Flag.HEADERS | _put_nulls(body, self.headers, Flag.HEADER_NULLS)
            _put_headers(body, self.headers)
        flags |= _put_nulls(body, self.values, Flag.VALUE_NULLS)
        _put_binary(body, self.values)
        return flags, body


class Plain:
    """A small batch of values without nulls and nothing else: the same bytes as Columns would give, without Arrow."""

    __slots__ = ("_count", "_parts")

    def __init__(self, count: int, parts: Buffers) -> None:
        self._count, self._parts = count, parts

    @classmethod
    def of(cls, records: Records) -> "Plain | None":
        """Return the batch, or None if it needs more than this can hold."""
        values = records.values
        if records.keys is not None or records.headers is not None or records.timestamps_ms is not None:
            return None
        try:
            data = b"".join(values)
        except TypeError:  # one of them is None
            return None
        count = len(values)
        offsets = struct.pack(f"<{count + 1}i", *accumulate(map(len, values), initial=0))
        return cls(count, [offsets, _PADDING[-len(offsets) % 8], data, _PADDING[-len(data) % 8]])

    def __len__(self) -> int:
        return self._count

    def encode(self) -> tuple[int, Buffers]:
        """Return what the body holds, and its one buffer."""
        return 0, [b"".join(self._parts)]


Body = Columns | Plain


class _Body:
    """Takes a body apart, buffer by buffer."""

    def __init__(self, body: Any, count: int) -> None:
        self._body, self._count, self.at = body, count, 0

    def take(self, size: int) -> Any:
        start, self.at = self.at, self.at + size + (-size % 8)
        if size < 0 or self.at > self._body.size:
            raise ValueError("its columns are longer than the frame")
        return self._body.slice(start, size)

    def bitmap(self, *, present: bool) -> Any:
        return self.take((self._count + 7) // 8) if present else None

    def binary(self, kind: Any, count: int, validity: Any = None) -> Any:
        offsets = self.take(4 * (count + 1))
        size = int.from_bytes(offsets.slice(4 * count, 4), "little")
        return pa.Array.from_buffers(kind, count, [validity, offsets, self.take(size)])

    def headers(self, validity: Any) -> Any:
        offsets = self.take(4 * (self._count + 1))
        entries = int.from_bytes(offsets.slice(4 * self._count, 4), "little")
        names, values = self.binary(pa.string(), entries), self.binary(pa.binary(), entries)
        pairs = pa.StructArray.from_arrays([names, values], fields=[HEADERS.key_field, HEADERS.item_field])
        return pa.Array.from_buffers(HEADERS, self._count, [validity, offsets], children=[pairs])


def decode(body: Any, flags: int, count: int, base_offset: int, appended_ms: int) -> Any:
    """Return the body as a pa.RecordBatch over the same memory; raise ValueError if it is not one."""
    parts = _Body(body, count)
    if flags & Flag.TIMES:
        times = pa.Array.from_buffers(_TIME, count, [None, parts.take(8 * count)])
    else:
        times = pa.Array.from_buffers(_TIME, count, [None, pa.py_buffer(np.full(count, appended_ms, np.int64))])
    offsets = np.arange(base_offset, base_offset + count, dtype=np.int64)
    if flags & Flag.GAPS:
        offsets = base_offset + np.frombuffer(parts.take(4 * count), np.int32).astype(np.int64)
    keys, headers = _nulls(_NO_KEYS, count), _nulls(_NO_HEADERS, count)
    if flags & Flag.KEYS:
        keys = parts.binary(pa.binary(), count, parts.bitmap(present=bool(flags & Flag.KEY_NULLS)))
    if flags & Flag.HEADERS:
        headers = parts.headers(parts.bitmap(present=bool(flags & Flag.HEADER_NULLS)))
    values = parts.binary(pa.binary(), count, parts.bitmap(present=bool(flags & Flag.VALUE_NULLS)))
    if parts.at != body.size:
        raise ValueError("its columns are shorter than the frame")
    numbers = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(offsets)])
    return pa.RecordBatch.from_arrays([numbers, times, keys, values, headers], schema=SCHEMA)


def _nulls(some: Any, count: int) -> Any:
    """Return so many nulls; most frames share these, because making them costs a sixth of reading a frame."""
    return some.slice(0, count) if count <= len(some) else pa.nulls(count, some.type)


def _array(given: Any, kind: Any) -> Any:
    return given if isinstance(given, pa.Array) and given.type == kind else pa.array(given, kind)


def _times(given: Any) -> Any:
    times = _array(given, pa.int64())
    if times.null_count:
        raise InvalidRecordsError("timestamps_ms must be whole numbers")
    return times


def _header_array(headers: Any) -> Any:
    return pa.array([None if mapping is None else list(mapping.items()) for mapping in headers], HEADERS)


def _offsets(array: Any) -> Any:
    """Return the int32 offsets of a binary, string or map array; they need not start at 0."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _header_lengths(headers: Any) -> Any:
    """Return running sums of the headers' bytes, one more than there are records."""
    entries = _offsets(headers)
    if entries[-1] == 0:
        return entries
    return _offsets(headers.keys)[entries] + _offsets(headers.items)[entries]


def _put(body: Buffers, buffer: Any) -> None:
    size = buffer.nbytes if isinstance(buffer, np.ndarray) else buffer.size
    if size:
        body.append(buffer)
    if padding := -size % 8:
        body.append(_PADDING[padding])


def _put_nulls(body: Buffers, array: Any, flag: int) -> int:
    if not array.null_count:
        return 0
    _put(body, _bits(pc.is_valid(array)))
    return flag


def _bits(flags: Any) -> Any:
    """Return the bitmap of a boolean array that starts at a byte; bits beyond its end are 0."""
    return pa.py_buffer(np.packbits(flags.to_numpy(zero_copy_only=False), bitorder="little"))


def _put_binary(body: Buffers, array: Any) -> None:
    offsets, data = _offsets(array), array.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    _put(body, offsets - offsets[0] if first else offsets)
    if last > first:
        _put(body, data.slice(first, last - first))


def _put_headers(body: Buffers, headers: Any) -> None:
    offsets = _offsets(headers)
    first, entries = int(offsets[0]), int(offsets[-1] - offsets[0])
    _put(body, offsets - offsets[0] if first else offsets)
    for part in (headers.keys, headers.items):
        if entries:
            _put_binary(body, part.slice(first, entries))
        else:
            _put(body, np.zeros(1, np.int32))


def _fixed(array: Any) -> Any:
    width = array.type.bit_width // 8
    return array.buffers()[1].slice(array.offset * width, len(array) * width)
