"""Record batches of Kafka (message format 2) as Arrow, without a Python object for each record.

One loop finds where the records begin, because each says only how long it is. Everything else is done for all records
of a response at once: numpy reads their numbers, and Arrow copies keys and values out of the response.

    batch     base offset i64, length i32, leader epoch i32, magic i8, CRC-32C u32, then under the CRC: attributes i16,
              last offset delta i32, base time i64, highest time i64, producer id i64, epoch i16, sequence i32,
              count i32, records (compressed as a whole if the attributes say so)
    record    length, attributes i8, time delta, offset delta, key length, key, value length, value,
              number of headers, headers: name length, name, value length, value

Numbers within a record are varints, zigzag; a length of -1 stands for null. Every batch's checksum is verified and
every record must end where its length says, so damage is an error and never wrong records.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from dw_platform.log.contract import HEADERS, SCHEMA
from dw_platform.streaming.brokers.kafka_codecs import decompress

_HEADER = struct.Struct(">qiibIhiqqqhii")
# What the length field does not count, and where the checksum begins.
_UNCOUNTED, _CHECKED = 12, 21
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT = 0
# Reading a varint looks at most this far; a buffer has as many bytes to spare behind its last record.
SPARE = 16
# As many records of one length in a row are a reason to look for more of them by numpy.
_RUN = 8


class DamagedError(Exception):
    """The bytes are not what their checksum or their lengths say; `offset` is that of the batch."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset, self.reason = offset, reason
        super().__init__(f"{reason} at offset {offset}")


class OldFormatError(Exception):
    """The batch was written before Kafka 0.11 and has another layout."""


@dataclass(frozen=True, slots=True)
class Part:
    """One batch: where its records are and what they have in common."""

    base_offset: int
    next_offset: int
    attributes: int
    base_time: int
    highest_time: int
    producer: int
    count: int
    start: int
    end: int

    @property
    def codec(self) -> int:
        """Return the number of the compression; 0 for none."""
        return self.attributes & _CODEC


def parts_in(data: bytearray, start: int, end: int) -> Iterator[Part]:
    """Yield the whole batches of data[start:end]; the last one may be cut off, as servers do, and is left out."""
    view = pa.py_buffer(data)
    while end - start >= _HEADER.size:
        base, length, _, magic, crc, attributes, delta, time, highest, producer, _, _, count = _HEADER.unpack_from(
            data, start
        )
        stop = start + _UNCOUNTED + length
        if stop > end:
            return
        if magic != 2:
            raise OldFormatError
        if (
            length < _HEADER.size - _UNCOUNTED
            or google_crc32c.value(view.slice(start + _CHECKED, stop - start - _CHECKED)) != crc
        ):
            raise DamagedError(base, "the checksum is wrong")
        yield Part(base, base + delta + 1, attributes, time, highest, producer, count, start + _HEADER.size, stop)
        start = stop


def visible(data: bytearray, parts: Sequence[Part], aborted: Sequence[tuple[int, int]]) -> list[Part]:
    """Return the batches that hold records for readers: no markers, nothing of an aborted transaction.

    `aborted` are producer and first offset of each aborted transaction, as the server lists them.
    """
    waiting, dead, kept = sorted(aborted, key=lambda pair: pair[1]), set[int](), []
    for part in parts:
        while waiting and waiting[0][1] < part.next_offset:
            dead.add(waiting.pop(0)[0])
        if part.attributes & _CONTROL:
            if _is_abort(data, part):
                dead.discard(part.producer)
        elif not (part.attributes & _TRANSACTIONAL and part.producer in dead):
            kept.append(part)
    return [part for part in kept if part.count > 0]


def _is_abort(data: bytearray, part: Part) -> bool:
    starts = record_starts(data, part.start, part.end, part.count)
    # Attributes, time delta, offset delta and key length have a byte each in a marker; then version and kind.
    key = starts[0] + 4
    return part.count > 0 and struct.unpack_from(">h", data, key + 2)[0] == _ABORT


def to_arrow(data: bytearray, parts: Sequence[Part]) -> list[Any]:
    """Return the records of the batches, in order, as pa.RecordBatch with SCHEMA."""
    found = []
    for packed, group in groupby(parts, key=lambda part: part.codec > 0):
        members = list(group)
        found.append(_decode(*_unpacked(data, members)) if packed else _decode(data, members))
    return found


def _unpacked(data: bytearray, parts: Sequence[Part]) -> tuple[bytearray, list[Part]]:
    """Return the decompressed records of all the batches in one buffer, and the batches over it."""
    whole, moved = bytearray(), []
    for part in parts:
        start = len(whole)
        try:
            whole += decompress(part.codec, memoryview(data)[part.start : part.end])
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DamagedError(part.base_offset, f"the compressed records cannot be read ({error})") from error
        moved.append(replace(part, start=start, end=len(whole)))
    whole += bytes(SPARE)
    return whole, moved


def _decode(data: bytearray, parts: Sequence[Part]) -> Any:
    starts = list[int]()
    for part in parts:
        starts += record_starts(data, part.start, part.end, part.count)
    try:
        return _Decoder(data, parts, np.array(starts, np.int64)).batch()
    except IndexError as error:
        raise DamagedError(parts[0].base_offset, "a record is longer than its batch") from error


def record_starts(data: bytearray, at: int, end: int, count: int) -> list[int]:
    """Return where the records of one batch begin, behind their lengths."""
    starts, first, run, last = list[int](), at, 0, -1
    append = starts.append
    while at < end:
        size = data[at]
        if size < 128:
            size >>= 1
            at += 1
        elif data[at + 1] < 128:
            size = (size & 127 | data[at + 1] << 7) >> 1
            at += 2
        else:
            size, at = _long_size(data, at)
        append(at)
        at += size
        if size != last:
            last, run = size, 0
        elif run < _RUN:
            run += 1
        else:
            at = _follow(data, starts, at, end)
            run = 0
    if at != end or len(starts) != count:
        raise DamagedError(first, f"{len(starts)} of {count} records fit into the batch")
    return starts


def _follow(data: bytearray, starts: list[int], at: int, end: int) -> int:
    """Add the records that have the length of the last two; return where the next other one begins."""
    stride = starts[-1] - starts[-2]
    prefix = stride - (at - starts[-1])
    most = (end - at) // stride
    if most < 1:
        return at
    window = np.frombuffer(data, np.uint8, most * stride, at).reshape(most, stride)[:, :prefix]
    same = (window == np.frombuffer(data, np.uint8, prefix, starts[-1] - prefix)).all(axis=1)
    count = most if same.all() else int(np.argmin(same))
    starts += range(at + prefix, at + prefix + count * stride, stride)
    return at + count * stride


def _long_size(data: bytearray, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value >> 1, at
        shift += 7


class _Decoder:
    """Walks through the fields of all records at once; `at` is where each record's next field begins."""

    def __init__(self, data: bytearray, parts: Sequence[Part], starts: Any) -> None:
        self._data, self._parts, self._count = data, parts, len(starts)
        self._bytes = np.frombuffer(data, np.uint8)
        self._counts = [part.count for part in parts]
        # One byte of attributes, which no version uses.
        self._starts, self._at = starts, starts + 1

    def batch(self) -> Any:
        """Return the records."""
        times, offsets = self._number(), self._number()
        key_at, key_size = self._field()
        value_at, value_size = self._field()
        headers = self._headers()
        self._check_ends()
        keys, values = self._binaries((key_at, key_size), (value_at, value_size))
        return pa.RecordBatch.from_arrays(
            [self._offsets(offsets), self._times(times), keys, values, headers], schema=SCHEMA
        )

    def _number(self) -> Any:
        value, self._at = varints(self._bytes, self._at)
        return value

    def _field(self) -> tuple[Any, Any]:
        """Return where each record's field begins and how long it is, -1 for null."""
        size = self._number()
        start = self._at
        self._at = start + np.maximum(size, 0)
        return start, size

    def _offsets(self, deltas: Any) -> Any:
        return pa.array(deltas + np.repeat([part.base_offset for part in self._parts], self._counts), pa.int64())

    def _times(self, deltas: Any) -> Any:
        times = deltas + np.repeat([part.base_time for part in self._parts], self._counts)
        if any(part.attributes & _APPEND_TIME for part in self._parts):
            stamped = np.repeat([bool(part.attributes & _APPEND_TIME) for part in self._parts], self._counts)
            highest = np.repeat([part.highest_time for part in self._parts], self._counts)
            times = np.where(stamped, highest, times)
        return pa.array(times, pa.int64()).cast(SCHEMA.field("timestamp").type)

    def _check_ends(self) -> None:
        """Each record must end where the next one's length begins, and the last of a batch where the batch does."""
        ends = np.empty(self._count, np.int64)
        ends[:-1] = self._starts[1:]
        last = np.cumsum(self._counts) - 1
        ends[last] = [part.end for part in self._parts]
        # Between two records is the later one's length, of one to five bytes.
        gap = ends - self._at
        inner = np.ones(self._count, bool)
        inner[last] = False
        if (gap[last] != 0).any() or (gap[inner] < 1).any() or (gap[inner] > 5).any():
            raise DamagedError(self._parts[0].base_offset, "the fields of a record do not fit its length")

    def _binaries(self, *fields: tuple[Any, Any]) -> list[Any]:
        """Return an Arrow array for each field; the fields of a record lie in the order given.

        A binary array over the whole response has the fields and what lies between them as its elements, and `take`
        copies the ones that are wanted.
        """
        width = 2 * len(fields)
        edges = np.empty(width * self._count, np.int32)
        for place, (start, size) in enumerate(fields):
            edges[2 * place :: width] = start
            edges[2 * place + 1 :: width] = start + np.maximum(size, 0)
        everything = pa.Array.from_buffers(
            pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(self._data)]
        )
        return [
            _with_nulls(everything.take(pa.array(np.arange(2 * place, len(edges), width, dtype=np.int32))), size < 0)
            for place, (_, size) in enumerate(fields)
        ]

    def _headers(self) -> Any:
        counts = self._number()
        if not counts.any():
            return pa.nulls(self._count, HEADERS)
        if (counts < 0).any():
            raise DamagedError(self._parts[0].base_offset, "a record has a negative number of headers")
        found = self._header_fields(counts)
        names, items = self._columns(found)
        ends = np.zeros(self._count + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        return pa.MapArray.from_arrays(pa.array(ends), names, items, type=HEADERS, mask=pa.array(counts == 0))

    def _header_fields(self, counts: Any) -> Any:
        """Return record, name start and size, value start and size of every header, in their order."""
        rounds, here, at = [], np.flatnonzero(counts > 0), self._at
        for number in range(int(counts.max())):
            here = here[counts[here] > number]
            name_size, name_at = varints(self._bytes, at[here])
            value_size, value_at = varints(self._bytes, name_at + name_size)
            at[here] = value_at + np.maximum(value_size, 0)
            rounds.append(np.stack([here, name_at, name_size, value_at, value_size]))
        together = np.concatenate(rounds, axis=1)
        return together[:, np.argsort(together[0], kind="stable")]

    def _columns(self, found: Any) -> tuple[Any, Any]:
        inner = _Decoder.__new__(_Decoder)
        inner._data, inner._count = self._data, found.shape[1]  # noqa: SLF001
        names, items = inner._binaries((found[1], found[2]), (found[3], found[4]))  # noqa: SLF001
        return _text(names), items


def varints(data: Any, at: Any) -> tuple[Any, Any]:
    """Return the signed numbers at these places of `data`, and the places behind them."""
    byte = data[at]
    value, at = (byte & 127).astype(np.int64), at + 1
    more, shift = np.flatnonzero(byte > 127), 7
    while more.size:
        byte = data[at[more]]
        value[more] |= (byte & 127).astype(np.int64) << shift
        at[more] += 1
        more, shift = more[byte > 127], shift + 7
        if shift > 63 and more.size:
            raise IndexError("a number has more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def _with_nulls(array: Any, null: Any) -> Any:
    if not null.any():
        return array
    validity = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [validity, *array.buffers()[1:]])


def _text(names: Any) -> Any:
    """Return names as text; what is not UTF-8, which other clients may send, with marks in place of the odd bytes."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
