"""One frame of a segment: a batch with its header, little-endian, 8-byte aligned.

     0  magic "DWLF"     4 bytes
     4  version          uint8     1
     5  flags            uint8     what the body holds, see columns.py
     6  reserved         uint16    0
     8  length           uint32    of the whole frame, a multiple of 8
    12  count            uint32    records
    16  base_offset      uint64    of the first record
    24  span             uint32    next offset after the frame minus base_offset; above count only after compaction
    28  body checksum    uint32    CRC-32C
    32  appended_ms      int64     when it was written, milliseconds since 1970
    40  durable_offset   uint64    everything below was on disk before this frame was written
    48  reserved         uint32    0
    52  header checksum  uint32    CRC-32C of bytes 0 to 51, begun with the segment's salt
    56  body

`durable_offset` lets recovery tell two kinds of damage apart. A later frame that says that the bad one was on disk
proves corruption. Without such proof the bad frame belongs to the last, unfinished write, whose blocks may reach
the disk in any order. The salt keeps copies of frames inside records from being taken for frames.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c

from dw_platform.log.columns import Body, decode

MAGIC = b"DWLF"
VERSION = 1
HEADER_BYTES = 56
_HEADER = struct.Struct("<4sBBHIIQIIqQII")
_CHECKED = HEADER_BYTES - 4


class FrameHeader(NamedTuple):
    """The facts of a frame whose header matches its checksum."""

    flags: int
    length: int
    rows: int
    base_offset: int
    span: int
    body_crc: int
    appended_ms: int
    durable_offset: int

    @property
    def next_offset(self) -> int:
        """Return the first offset after the frame."""
        return self.base_offset + self.span


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that matches its checksums, and where its file has it."""

    position: int
    header: FrameHeader
    body: Any

    @property
    def end(self) -> int:
        """Return the position after the frame."""
        return self.position + self.header.length

    def records(self) -> Any:
        """Return its records as a pa.RecordBatch; raise ValueError if its body is no batch."""
        header = self.header
        return decode(self.body, header.flags, header.rows, header.base_offset, header.appended_ms)


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The bytes at hand end before the frame does."""

    needed: int


@dataclass(frozen=True, slots=True)
class Bad:
    """The bytes at hand are no frame."""

    reason: str


def encode_frame(
    columns: Body, *, base_offset: int, durable_offset: int, appended_ms: int, salt: int, span: int | None = None
) -> tuple[Sequence[Any], int]:
    """Return the buffers to write, and their length together."""
    flags, body = columns.encode()
    crc, length = 0, HEADER_BYTES
    for buffer in body:
        crc = google_crc32c.extend(crc, buffer)
        length += memoryview(buffer).nbytes
    count = len(columns)
    header = bytearray(
        _HEADER.pack(
            MAGIC, VERSION, flags, 0, length, count, base_offset, span or count, crc, appended_ms, durable_offset, 0, 0
        )
    )
    header[_CHECKED:] = google_crc32c.extend(salt, bytes(header[:_CHECKED])).to_bytes(4, "little")
    return [bytes(header), *body], length


def read_header(data: bytes, at: int, salt: int) -> FrameHeader | None:
    """Return the header at `at`, or None if what is there is not a whole header with the right checksum."""
    if len(data) - at < HEADER_BYTES:
        return None
    magic, version, flags, _, length, count, base, span, body_crc, appended_ms, durable, _, crc = _HEADER.unpack_from(
        data, at
    )
    if magic != MAGIC or version != VERSION or google_crc32c.extend(salt, data[at : at + _CHECKED]) != crc:
        return None
    if length < HEADER_BYTES or length % 8 or not 0 < count <= span:
        return None
    return FrameHeader(flags, length, count, base, span, body_crc, appended_ms, durable)


def check_frame(data: bytes, buffer: Any, at: int, salt: int) -> tuple[FrameHeader, Any] | Incomplete | Bad:
    """Return header and body of the frame at `at` of `data` if they match their checksums; `buffer` is Arrow's view."""
    available = len(data) - at
    if available < HEADER_BYTES:
        return Incomplete(HEADER_BYTES)
    header = read_header(data, at, salt)
    if header is None:
        return Bad("there is no frame header with a matching checksum")
    length = header.length
    if length > available:
        return Incomplete(length)
    body = buffer.slice(at + HEADER_BYTES, length - HEADER_BYTES)
    if google_crc32c.value(body) != header.body_crc:
        return Bad("the frame's body does not match its checksum")
    return header, body


def take_frame(data: bytes, buffer: Any, at: int, position: int, salt: int) -> Frame | Incomplete | Bad:
    """Return the frame at `at` of `data`, which was read from the file's byte `position`."""
    found = check_frame(data, buffer, at, salt)
    return Frame(position + at, *found) if isinstance(found, tuple) else found
