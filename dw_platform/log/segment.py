"""One file of a partition: a header, then frames with rising offsets.

     0  magic "DWLOGSEG"   8 bytes
     8  version            uint16   1
    10  flags              uint16   1: rewritten by compaction, so offsets may have gaps
    12  salt               uint32   random; frame headers' checksums begin with it
    16  base_offset        uint64   no record has a lower offset; also the file's name
    24  previous_end       uint64   where the file before ended; below base_offset if a crash took records
    32  end_offset         uint64   first offset of the next file, if compacted; else 0
    40  created_ms         int64    milliseconds since 1970
    48  reserved           12 bytes
    60  checksum           uint32   CRC-32C of bytes 0 to 59

A segment gets its name only when its header is on disk, so a bad header is damage and never an unfinished write.
Each file names the end of the one before, so that a missing file is noticed.
"""

import re
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import google_crc32c
import pyarrow as pa

from dw_platform.log.disk import Disk, ReadFile
from dw_platform.log.errors import CorruptSegmentError
from dw_platform.log.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from dw_platform.log.frame import MAGIC as FRAME_MAGIC
from dw_platform.log.frame import Bad, Frame, FrameHeader, Incomplete, check_frame, read_header, take_frame

MAGIC = b"DWLOGSEG"
VERSION = 1
HEADER_BYTES = 64
COMPACTED = 1
# Large enough that system calls vanish beside checksums, small enough to be still in a core's cache when they are
# computed: with 4 MiB, checking takes a third longer.
BLOCK_BYTES = 1024 * 1024
_HEADER = struct.Struct("<8sHHIQQQq12xI")
_NAME = re.compile(r"(\d{20})\.segment", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """What a segment says about itself before its first frame."""

    base_offset: int
    previous_end: int
    created_ms: int
    salt: int
    compacted_end: int | None = None

    def encode(self) -> bytes:
        """Return the 64 bytes at the start of the file."""
        flags, end = (0, 0) if self.compacted_end is None else (COMPACTED, self.compacted_end)
        fields = (MAGIC, VERSION, flags, self.salt, self.base_offset, self.previous_end, end, self.created_ms)
        checked = _HEADER.pack(*fields, 0)[:-4]
        crc: int = google_crc32c.value(checked)
        return checked + crc.to_bytes(4, "little")


def new_header(
    base_offset: int, *, previous_end: int, created_ms: int, compacted_end: int | None = None
) -> SegmentHeader:
    """Return a header with a salt of its own."""
    return SegmentHeader(
        base_offset=base_offset,
        previous_end=previous_end,
        created_ms=created_ms,
        salt=secrets.randbits(32),
        compacted_end=compacted_end,
    )


def segment_name(base_offset: int) -> str:
    """Return the file's name, which sorts as the offset does."""
    return f"{base_offset:020}.segment"


def base_of(name: str) -> int | None:
    """Return the offset in a segment's name, or None if it is another file's."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def create_segment(disk: Disk, directory: str, header: SegmentHeader) -> None:
    """Make an empty segment that survives a crash once this has returned."""
    name = segment_name(header.base_offset)
    with disk.create(directory, f"{name}.tmp") as file:
        file.write([header.encode()])
        file.sync()
    disk.rename(directory, f"{name}.tmp", name)
    disk.sync_directory(directory)


def read_segment_header(file: ReadFile, name: str) -> SegmentHeader:
    """Return the header of the segment `name`; raise CorruptSegmentError if it has none."""
    data = file.read(0, HEADER_BYTES)
    if len(data) < HEADER_BYTES or google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise CorruptSegmentError(file.name, 0, "there is no segment header with a matching checksum")
    magic, version, flags, salt, base, previous_end, end, created_ms, _ = _HEADER.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise CorruptSegmentError(file.name, 0, f"it is no segment of version {VERSION}")
    if base != base_of(name):
        raise CorruptSegmentError(file.name, 0, f"its first offset is {base}, not the one in its name")
    return SegmentHeader(
        base_offset=base,
        previous_end=previous_end,
        created_ms=created_ms,
        salt=salt,
        compacted_end=end if flags & COMPACTED else None,
    )


class FrameWalk:
    """Goes through a segment's frames and stops where there is no further valid one.

    Afterwards `position` is where it stopped, `next_offset` the offset expected there, and `problem` why it stopped
    before `size`; None if it did not.
    """

    def __init__(self, file: ReadFile, header: SegmentHeader, size: int, *, position: int = HEADER_BYTES) -> None:
        self._file, self._header, self._size = file, header, size
        self.position, self.next_offset = position, header.base_offset
        self.problem: str | None = None

    def __iter__(self) -> Iterator[Frame]:
        return (Frame(position, header, body) for position, header, body in self.parts())

    def parts(self) -> Iterator[tuple[int, FrameHeader, Any]]:
        """Yield position, header and body of each frame; cheaper than frames where that is enough."""
        needed = BLOCK_BYTES
        while self.position < self._size and self.problem is None:
            start, wanted = self.position, min(max(needed, BLOCK_BYTES), self._size - self.position)
            data = self._file.read(start, wanted)
            needed, at, buffer = BLOCK_BYTES, 0, pa.py_buffer(data)
            while at < len(data):
                item = check_frame(data, buffer, at, self._header.salt)
                if not isinstance(item, tuple):
                    needed = self._stop_at(item, short=len(data) < wanted)
                    break
                header, body = item
                self._step(start + at, header)
                yield start + at, header, body
                at += header.length
            if not data:
                self.problem = "the file ends before its last frame"

    def _stop_at(self, item: Incomplete | Bad, *, short: bool) -> int:
        """Return how much to read for the next frame, or note why there is none."""
        if isinstance(item, Bad):
            self.problem = item.reason
        elif self.position + item.needed > self._size or short:
            self.problem = "the file ends inside a frame"
        else:
            return item.needed
        return 0

    def _step(self, position: int, header: FrameHeader) -> None:
        base = header.base_offset
        # A whole frame with a wrong offset was never half-written, so no recovery may cut it away.
        if base != self.next_offset and (self._header.compacted_end is None or base < self.next_offset):
            reason = f"a valid frame has offset {base} where {self.next_offset} belongs"
            raise CorruptSegmentError(self._file.name, position, reason)
        self.position, self.next_offset = position + header.length, base + header.span


def frames_in(data: bytes, position: int, salt: int) -> Iterator[Frame | Incomplete | Bad]:
    """Yield the frames of a block that was read from `position`, and at last what came instead of a frame."""
    at, buffer = 0, pa.py_buffer(data)
    while at < len(data):
        item = take_frame(data, buffer, at, position, salt)
        yield item
        if not isinstance(item, Frame):
            return
        at += item.header.length


def promised_after(file: ReadFile, header: SegmentHeader, walk: FrameWalk, size: int) -> Frame | None:
    """Return a valid frame behind the bad one which proves that the bad one was on disk, if there is one."""
    start = walk.position
    while start < size:
        data = file.read(start, BLOCK_BYTES + FRAME_HEADER_BYTES)
        for at in _aligned_hits(data, start):
            found = read_header(data, at, header.salt)
            if found is None or found.durable_offset <= walk.next_offset or found.base_offset < walk.next_offset:
                continue
            frame = file.read(start + at, found.length)
            item = take_frame(frame, pa.py_buffer(frame), 0, start + at, header.salt)
            if isinstance(item, Frame):
                return item
        start += BLOCK_BYTES
    return None


def _aligned_hits(data: bytes, position: int) -> Iterator[int]:
    at = data.find(FRAME_MAGIC)
    while at >= 0:
        if (position + at) % 8 == 0:
            yield at
        at = data.find(FRAME_MAGIC, at + 1)
