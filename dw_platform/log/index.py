"""Where in a segment an offset is: one entry for every 256 KiB, so that seeking reads little.

    {base}.index    (offset uint64, position uint64) an entry, little-endian, in rising order

An index is a hint. It is never fsynced, may be behind, missing or wrong, and is believed only where the segment has
a frame with that offset at that position; otherwise the segment is walked from its start.
"""

import bisect
import contextlib
import re
import struct
from collections.abc import Iterable

from dw_platform.log.disk import Disk, ReadFile, read_all
from dw_platform.log.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from dw_platform.log.frame import read_header
from dw_platform.log.segment import HEADER_BYTES, SegmentHeader

INTERVAL_BYTES = 256 * 1024
_ENTRY = struct.Struct("<QQ")
# A growing file makes the next fsync of its neighbour dearer: the journal waits for both.
_ENTRIES_AT_ONCE = 16
_HOP_BYTES = 64 * 1024
_NAME = re.compile(r"\d{20}\.index", re.ASCII)


def index_name(base_offset: int) -> str:
    """Return the name of the index of the segment that begins at `base_offset`."""
    return f"{base_offset:020}.index"


def is_index(name: str) -> bool:
    """Return whether a file has the name of an index."""
    return _NAME.fullmatch(name) is not None


class IndexWriter:
    """Notes frames as they are written; what it cannot write, it leaves out."""

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._last = 0
        self._entries: list[bytes] = []
        self._file = None
        with contextlib.suppress(OSError):
            self._file = disk.create(directory, index_name(base_offset))

    def note(self, offset: int, position: int) -> None:
        """Take the frame in if it is far enough from the last one."""
        if position - self._last < INTERVAL_BYTES:
            return
        self._last = position
        self._entries.append(_ENTRY.pack(offset, position))
        if len(self._entries) >= _ENTRIES_AT_ONCE:
            self._flush()

    def note_all(self, frames: Iterable[tuple[int, int]]) -> None:
        """Take in offset and position of many frames."""
        for offset, position in frames:
            self.note(offset, position)

    def close(self) -> None:
        """Write what is left and release the file."""
        self._flush()
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if self._file is not None and self._entries:
            with contextlib.suppress(OSError):
                self._file.write(self._entries)
        self._entries = []


def load_index(disk: Disk, directory: str, base_offset: int) -> list[tuple[int, int]]:
    """Return the entries, or none if there is no usable index."""
    data = read_all(disk, directory, index_name(base_offset)) or b""
    return list(_ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]))


def seek(file: ReadFile, header: SegmentHeader, index: list[tuple[int, int]], offset: int) -> int:
    """Return the position of the frame that holds `offset`, or of the first one above it.

    Where there is neither, it is the end of the last whole header's frame: the caller reads and sees for itself.
    """
    position = begin = _start(file, header, index, offset)
    data = b""
    while True:
        if position + FRAME_HEADER_BYTES > begin + len(data):
            begin, data = position, file.read(position, _HOP_BYTES)
        frame = read_header(data, position - begin, header.salt)
        if frame is None or frame.next_offset > offset:
            return position
        position += frame.length


def _start(file: ReadFile, header: SegmentHeader, index: list[tuple[int, int]], offset: int) -> int:
    number = bisect.bisect_right(index, (offset, 1 << 64)) - 1
    if number < 0:
        return HEADER_BYTES
    noted, position = index[number]
    frame = read_header(file.read(position, FRAME_HEADER_BYTES), 0, header.salt)
    return position if frame is not None and frame.base_offset == noted else HEADER_BYTES
