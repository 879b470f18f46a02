"""Reading a partition, from any process, without a lock.

What a reader sees: batches that are acknowledged, each wholly or not at all. The mark says how far that is, so a
batch that is in the file but not yet fsynced is not shown; on a disk without marks (a database) everything readable
is committed, and whole frames count. Every frame's checksum is verified before its records are handed out.

Files that retention or compaction replaces meanwhile stay readable for as long as they are open here.
"""

import bisect
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from dw_platform.foundation import InvalidValueError
from dw_platform.log.contract import LogBatch
from dw_platform.log.disk import Disk, ReadFile
from dw_platform.log.errors import (
    CorruptSegmentError,
    OffsetOutOfRangeError,
    RecordsExpiredError,
    RecordsLostError,
)
from dw_platform.log.file_disk import FileDisk
from dw_platform.log.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from dw_platform.log.frame import Bad, Frame, Incomplete
from dw_platform.log.index import load_index, seek
from dw_platform.log.segment import (
    HEADER_BYTES,
    FrameWalk,
    base_of,
    frames_in,
    read_segment_header,
    segment_name,
)

# A file may be replaced between listing and opening; this often in a row it is something else.
_ATTEMPTS = 100


class _Open:
    """The segment that a reader is in, and where."""

    def __init__(self, disk: Disk, directory: str, base: int) -> None:
        self.base = base
        self.file: ReadFile = disk.open_read(directory, segment_name(base))
        try:
            self.header = read_segment_header(self.file, segment_name(base))
            self.index = load_index(disk, directory, base)
        except BaseException:
            self.file.close()
            raise
        self.position, self.offset = HEADER_BYTES, base

    def move_to(self, offset: int) -> None:
        """Stand at the frame that holds `offset`, or at the first one above it."""
        if offset != self.offset:
            self.position = seek(self.file, self.header, self.index, offset)
            self.offset = offset

    def take(self, offset: int, end: int, max_bytes: int, limit: int) -> LogBatch | None:
        """Return what is here from `offset` on, below `end` and within the limits; None if there is nothing."""
        batches, needed = list[Any](), max(max_bytes, FRAME_HEADER_BYTES)
        position, at = self.position, offset
        while needed:
            data, needed = self.file.read(position, needed), 0
            for item in frames_in(data, position, self.header.salt):
                if isinstance(item, Bad):
                    raise CorruptSegmentError(self.file.name, position, item.reason)
                if isinstance(item, Incomplete):
                    needed = 0 if batches else self._missing(position, len(data), item.needed)
                    break
                records = _part(item, at, limit, self.file.name)
                batches.append(records)
                limit -= records.num_rows
                if records.num_rows == item.header.rows:
                    at = item.header.next_offset
                else:
                    at = records["offset"][-1].as_py() + 1
                if at == item.header.next_offset:
                    position = item.end
                if limit <= 0 or at >= end:
                    break
        if not batches:
            return None
        self.position, self.offset = position, at
        return LogBatch(tuple(batches), at)

    def _missing(self, position: int, had: int, needed: int) -> int:
        """Return how much to read for a whole frame, or 0 if the file ends here."""
        return needed if needed > had and position + needed <= self.file.size() else 0


def _part(frame: Frame, offset: int, limit: int, file: str) -> Any:
    """Return the frame's records from `offset` on, at most `limit`."""
    try:
        records = frame.records()
    except (ValueError, pa.ArrowException) as error:
        raise CorruptSegmentError(file, frame.position, str(error)) from error
    first = 0
    if offset > frame.header.base_offset:
        first = int(np.searchsorted(records["offset"].to_numpy(), offset))
    return records.slice(first, limit) if first or limit < records.num_rows else records


class PartitionReader:
    """A PartitionReading of `directory`; see contract.py for what the methods promise."""

    def __init__(self, directory: str | Path, *, disk: Disk | None = None) -> None:
        self._directory, self._disk = str(directory), disk or FileDisk()
        self._mark = self._disk.mark(self._directory, writable=False)
        self._bases: list[int] = []
        self._open: _Open | None = None
        # Without a mark: the segment in which the end was last found, and position and offset of the end.
        self._walked: tuple[int, int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_offset(self) -> int:
        if mark := self._mark.read():
            return mark[0]
        self._list()
        return self._bases[0] if self._bases else 0

    def end_offset(self) -> int:
        return self._bounds()[1]

    def read(self, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None) -> LogBatch:
        limit = max_records if max_records is not None else 1 << 62
        if max_bytes < 1 or limit < 1:
            raise InvalidValueError("limit", min(max_bytes, limit), "at least 1")
        start, end = self._bounds()
        if not 0 <= offset <= end:
            raise OffsetOutOfRangeError(self._directory, offset, end)
        if offset < start:
            raise RecordsExpiredError(self._directory, offset, start)
        for _ in range(_ATTEMPTS):
            try:
                return self._read(offset, end, max_bytes, limit)
            except FileNotFoundError:
                self._forget()
        raise CorruptSegmentError(self._directory, 0, f"the segment of offset {offset} is listed but not there")

    def close(self) -> None:
        self._forget()
        self._mark.close()

    def _bounds(self) -> tuple[int, int]:
        if mark := self._mark.read():
            return mark
        self._list()
        walked = (self._bases[0], self._walked_end(self._bases[-1])) if self._bases else (0, 0)
        # The first writer may have come meanwhile; then its mark counts, as what was walked need not be acknowledged.
        return self._mark.read() or walked

    def _walked_end(self, base: int) -> int:
        """Return the end of the last segment by walking on from where the last walk ended."""
        last = _Open(self._disk, self._directory, base)
        try:
            walk = FrameWalk(last.file, last.header, last.file.size())
            if self._walked is not None and self._walked[0] == base:
                _, walk.position, walk.next_offset = self._walked
            deque(walk.parts(), maxlen=0)
        finally:
            last.file.close()
        self._walked = (base, walk.position, walk.next_offset)
        return last.header.compacted_end or walk.next_offset

    def _read(self, offset: int, end: int, max_bytes: int, limit: int) -> LogBatch:
        if offset == end:
            return LogBatch((), end)
        segment = self._enter(self._base_for(offset))
        segment.move_to(offset)
        while not (batch := segment.take(offset, end, max_bytes, limit)):
            following = self._base_after(segment.base)
            if following is None:
                reason = f"offsets {offset}..{end - 1} were acknowledged but are not there"
                raise CorruptSegmentError(segment.file.name, segment.position, reason)
            segment = self._enter(following)
            lost = segment.header.previous_end
            if lost < following:
                if offset >= lost:
                    raise RecordsLostError(self._directory, offset, following)
                return LogBatch((), lost)
        return batch

    def _enter(self, base: int) -> "_Open":
        if self._open is None or self._open.base != base:
            if self._open is not None:
                self._open.file.close()
                self._open = None
            self._open = _Open(self._disk, self._directory, base)
        return self._open

    def _base_for(self, offset: int) -> int:
        if not self._bases or offset < self._bases[0]:
            self._list()
        if not self._bases or offset < self._bases[0]:
            raise RecordsExpiredError(self._directory, offset, self._bases[0] if self._bases else self._bounds()[1])
        return self._bases[bisect.bisect_right(self._bases, offset) - 1]

    def _base_after(self, base: int) -> int | None:
        for _ in range(2):
            number = bisect.bisect_right(self._bases, base)
            if number < len(self._bases):
                return self._bases[number]
            self._list()
        return None

    def _list(self) -> None:
        try:
            names = self._disk.list(self._directory)
        except FileNotFoundError:  # nobody has written yet
            names = {}
        self._bases = sorted(base for name in names if (base := base_of(name)) is not None)

    def _forget(self) -> None:
        if self._open is not None:
            self._open.file.close()
        self._open, self._bases = None, []
