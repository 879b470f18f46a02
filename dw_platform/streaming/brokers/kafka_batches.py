"""The batches in an answer of Kafka (message format 2): which there are, whom they are for, where their records begin.

    batch     base offset i64, length i32, leader epoch i32, magic i8, CRC-32C u32, then under the CRC: attributes i16,
              last offset delta i32, base time i64, highest time i64, producer id i64, epoch i16, sequence i32,
              count i32, records (compressed as a whole if the attributes say so)

A record begins with its length, a varint; kafka_columns.py knows the rest of it. Every checksum is verified, and the
records of a batch must end where it does, so damage is an error and never wrong records.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

_HEADER = struct.Struct(">qiibIhiqqqhii")
# What the length field does not count, and where the checksum begins.
_UNCOUNTED, _CHECKED = 12, 21
_MAGIC = 2
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT = 0
# Reading a number looks at most this far; a buffer has as many bytes to spare behind its last record.
SPARE = 16
# Records that are walked through before looking whether all have the same length now.
_BLOCK = 128
# How far to go for a length of one byte, or the low part of one of two bytes.
_STEP = [(byte >> 1) + 1 if byte < 128 else ((byte & 127) >> 1) + 2 for byte in range(256)]


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

    @property
    def append_time(self) -> bool:
        """Return whether all records have the time at which the server took the batch."""
        return bool(self.attributes & _APPEND_TIME)


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
        if magic != _MAGIC:
            raise OldFormatError
        if length < _HEADER.size - _UNCOUNTED:
            raise DamagedError(base, "a batch is shorter than its header")
        if google_crc32c.value(view.slice(start + _CHECKED, stop - start - _CHECKED)) != crc:
            raise DamagedError(base, "the checksum is wrong")
        body = start + _HEADER.size
        if count < 0 or (count == 0 and body < stop):
            raise DamagedError(base, f"a batch says that it has {count} records")
        yield Part(base, base + delta + 1, attributes, time, highest, producer, count, body, stop)
        start = stop


def visible(data: bytearray, parts: Sequence[Part], aborted: Sequence[tuple[int, int]]) -> list[Part]:
    """Return the batches that hold records for readers: no markers, nothing of an aborted transaction.

    `aborted` are producer and first offset of each aborted transaction, as the server lists them.
    """
    waiting, dead, kept = sorted(aborted, key=lambda pair: pair[1]), set[int](), list[Part]()
    for part in parts:
        while waiting and waiting[0][1] < part.next_offset:
            dead.add(waiting.pop(0)[0])
        if part.attributes & _CONTROL:
            if _is_abort(data, part):
                dead.discard(part.producer)
        elif part.count > 0 and not (part.attributes & _TRANSACTIONAL and part.producer in dead):
            kept.append(part)
    return kept


def _is_abort(data: bytearray, part: Part) -> bool:
    if part.count < 1:
        return False
    # Length, attributes, time delta, offset delta and key length have a byte each in a marker; then version and kind.
    return bool(struct.unpack_from(">h", data, part.start + 5 + 2)[0] == _ABORT)


def record_places(data: bytes | bytearray, part: Part) -> list[Any]:
    """Return where the records of a batch begin, at their lengths, as arrays one after the other.

    This is the one loop over records: where one begins is known when the length of the one before is.
    """
    found, at, left = list[Any](), part.start, part.count
    try:
        while left > 0:
            places, at = _walk(data, at, min(left, _BLOCK))
            found.append(np.array(places, np.int64))
            left -= len(places)
            if left and len(places) > 2 and at - places[-1] == places[-1] - places[-2] == places[-2] - places[-3]:
                same = _alike(data, places[-1], at, min(left, (part.end - at) // (at - places[-1])))
                found.append(same)
                at += len(same) * (at - places[-1])
                left -= len(same)
    except IndexError as error:
        raise DamagedError(part.base_offset, "a record is longer than its batch") from error
    if at != part.end:
        raise DamagedError(part.base_offset, f"{part.count} records do not fill the batch")
    return found


def _walk(data: bytes | bytearray, at: int, count: int) -> tuple[list[int], int]:
    """Return where `count` records begin, and where the next one would."""
    places, step = [0] * count, _STEP
    for index in range(count):
        places[index] = at
        low = data[at]
        if low > 127:
            high = data[at + 1]
            at = at + step[low] + (high << 6) if high < 128 else _behind(data, at)
        else:
            at += step[low]
    return places, at


def _behind(data: bytes | bytearray, at: int) -> int:
    """Return where the record at `at` ends, whose length has three bytes or more."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return at + (value >> 1)


def _alike(data: bytes | bytearray, model: int, at: int, most: int) -> Any:
    """Return where the records from `at` on begin, at most `most`, as long as each has the length of `model`."""
    stride = at - model
    if most < 1:
        return np.empty(0, np.int64)
    # The bytes of a length are the same then; no other length begins with them.
    size = 1 if data[model] < 128 else 2 if data[model + 1] < 128 else 5
    window = np.frombuffer(data, np.uint8, most * stride, at).reshape(most, stride)[:, :size]
    same = (window == np.frombuffer(data, np.uint8, size, model)).all(axis=1)
    count = most if same.all() else int(same.argmin())
    return at + stride * np.arange(count, dtype=np.int64)
