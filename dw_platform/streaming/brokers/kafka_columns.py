"""Kafka's records as Arrow: numpy reads the numbers of all records of a few batches at once, Arrow copies the rest.

    record    length, attributes i8, time delta, offset delta, key length, key, value length, value,
              number of headers, headers: name length, name, value length, value

Numbers are varints, zigzag; a length of -1 stands for null. The fields of each record must fill its length exactly.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dw_platform.log.contract import HEADERS, SCHEMA
from dw_platform.streaming.brokers.kafka_batches import SPARE, DamagedError, Part, record_places
from dw_platform.streaming.brokers.kafka_codecs import decompress

# Batches are taken apart together up to this size; what numpy works on then fits into a processor's cache.
_TOGETHER = 2 << 20


def to_arrow(data: bytearray, parts: Sequence[Part]) -> Iterator[Any]:
    """Yield the records of the batches, in order, as pa.RecordBatch with SCHEMA.

    Each is made when it is asked for, so `data` must stay as it is until then.
    """
    waiting, size = list[Part](), 0
    for part in parts:
        if part.codec:
            if waiting:
                yield _decoded(data, waiting)
                waiting, size = [], 0
            whole = _unpacked(data, part)
            yield _decoded(whole, [replace(part, start=0, end=len(whole) - SPARE)])
            continue
        waiting.append(part)
        size += part.end - part.start
        if size >= _TOGETHER:
            yield _decoded(data, waiting)
            waiting, size = [], 0
    if waiting:
        yield _decoded(data, waiting)


def _unpacked(data: bytearray, part: Part) -> bytes:
    try:
        whole = decompress(part.codec, memoryview(data)[part.start : part.end])
    except (OSError, ValueError, struct.error, pa.ArrowException) as error:
        raise DamagedError(part.base_offset, f"the compressed records cannot be read ({error})") from error
    return b"".join((whole, bytes(SPARE)))


def _decoded(data: bytes | bytearray, parts: Sequence[Part]) -> Any:
    places = np.concatenate([found for part in parts for found in record_places(data, part)])
    try:
        return _Decoder(data, parts, places).batch()
    except IndexError as error:
        raise DamagedError(parts[0].base_offset, "a record is longer than its batch") from error


class _Decoder:
    """Walks through the fields of all records at once; `_at` is where each record's next field begins."""

    def __init__(self, data: bytes | bytearray, parts: Sequence[Part], places: Any) -> None:
        self._data, self._parts = data, parts
        self._bytes = np.frombuffer(data, np.uint8)
        self._counts = [part.count for part in parts]
        sizes, starts = _varints(self._bytes, places)
        # The first byte, attributes, is unused in this format.
        self._at, self._ends = starts + 1, starts + sizes

    def batch(self) -> Any:
        """Return the records."""
        times, offsets = self._number(), self._number()
        key, value = self._field(), self._field()
        headers = self._headers()
        if not np.array_equal(self._at, self._ends):
            raise DamagedError(self._parts[0].base_offset, "the fields of a record do not fill its length")
        keys, values = _binaries(self._data, key, value)
        numbers = _fixed(offsets + self._common([part.base_offset for part in self._parts]), pa.int64())
        return pa.RecordBatch.from_arrays([numbers, self._times(times), keys, values, headers], schema=SCHEMA)

    def _number(self) -> Any:
        value, self._at = _varints(self._bytes, self._at)
        return value

    def _field(self) -> tuple[Any, Any]:
        """Return where each record's field begins and how long it is, -1 for null."""
        size = self._number()
        start = self._at
        self._at = start + np.maximum(size, 0)
        return start, size

    def _common(self, values: Sequence[int]) -> Any:
        """Return for each record the value of its batch."""
        return np.repeat(np.array(values, np.int64), self._counts)

    def _times(self, deltas: Any) -> Any:
        times = deltas + self._common([part.base_time for part in self._parts])
        if any(part.append_time for part in self._parts):
            stamped = self._common([part.append_time for part in self._parts]).astype(bool)
            times = np.where(stamped, self._common([part.highest_time for part in self._parts]), times)
        return _fixed(times, SCHEMA.field("timestamp").type)

    def _headers(self) -> Any:
        counts = self._number()
        if not counts.any():
            return pa.nulls(len(counts), HEADERS)
        if counts.min() < 0:
            raise DamagedError(self._parts[0].base_offset, "a record has a negative number of headers")
        name_at, name_size, value_at, value_size = self._header_fields(counts)
        names, items = _binaries(self._data, (name_at, name_size), (value_at, value_size))
        ends = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        pairs = pa.StructArray.from_arrays([_text(names), items], fields=[HEADERS.key_field, HEADERS.item_field])
        validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
        return pa.Array.from_buffers(HEADERS, len(counts), [validity, pa.py_buffer(ends)], children=[pairs])

    def _header_fields(self, counts: Any) -> Any:
        """Return start and size of name and value of every header: the first of all records, then the second."""
        rounds, here = list[Any](), np.flatnonzero(counts)
        for number in range(int(counts.max())):
            here = here[counts[here] > number]
            name_size, name_at = _varints(self._bytes, self._at[here])
            value_size, value_at = _varints(self._bytes, name_at + np.maximum(name_size, 0))
            self._at[here] = value_at + np.maximum(value_size, 0)
            rounds.append(np.stack([here, name_at, name_size, value_at, value_size]))
        together = np.concatenate(rounds, axis=1)
        return together[1:, np.argsort(together[0], kind="stable")]


def _varints(data: Any, at: Any) -> tuple[Any, Any]:
    """Return the signed numbers at these places of `data`, and the places behind them."""
    byte = data[at]
    value, at = (byte & 127).astype(np.int64), at + 1
    more, shift = np.flatnonzero(byte > 127), 7
    while more.size:
        if shift > 63:
            raise IndexError("a number has more than 64 bits")
        byte = data[at[more]]
        value[more] |= (byte & 127).astype(np.int64) << shift
        at[more] += 1
        more, shift = more[byte > 127], shift + 7
    # Shifted as if it had no sign: the highest bit belongs to the number.
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), at


def _binaries(data: bytes | bytearray, *fields: tuple[Any, Any]) -> list[Any]:
    """Return an Arrow array for each field, given where it begins and how long it is; they lie in this order.

    A binary array over the whole of `data` has the fields and what lies between them as its elements, and `take` copies
    the ones that are wanted.
    """
    width = 2 * len(fields)
    edges = np.empty(width * len(fields[0][0]), np.int64)
    for place, (start, size) in enumerate(fields):
        edges[2 * place :: width] = start
        edges[2 * place + 1 :: width] = start + np.maximum(size, 0)
    # Arrow trusts its offsets.
    if (np.diff(edges) < 0).any() or edges[-1] > len(data) - SPARE:
        raise IndexError("fields lie behind each other or outside")
    narrow = pa.py_buffer(edges.astype(np.int32))
    everything = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, narrow, pa.py_buffer(data)])
    found = []
    for place, (_, size) in enumerate(fields):
        wanted = _fixed(np.arange(2 * place, len(edges), width, dtype=np.int32), pa.int32())
        found.append(_with_nulls(everything.take(wanted), size < 0))
    return found


def _fixed(numbers: Any, kind: Any) -> Any:
    """Return an Arrow array over numpy's memory; `pa.array` would load pandas first, a second in a new process."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


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
        return pa.array([(name or b"").decode(errors="replace") for name in names.to_pylist()], pa.string())
