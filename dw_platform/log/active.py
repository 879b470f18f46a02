"""The segment that is being written, and the rolling from one to the next.

Not thread-safe: the partition calls it with one group at a time.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dw_platform.log.columns import Body
from dw_platform.log.disk import AppendFile, Disk
from dw_platform.log.frame import encode_frame
from dw_platform.log.index import IndexWriter
from dw_platform.log.layout import SegmentInfo
from dw_platform.log.policy import LogPolicy
from dw_platform.log.recovery import Recovered, add_segment
from dw_platform.log.segment import HEADER_BYTES


class ActiveSegment:
    """Appends frames; `on_roll` gets each segment that was closed, complete and fsynced, and the new one."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        recovered: Recovered,
        policy: LogPolicy,
        on_roll: Callable[[SegmentInfo, SegmentInfo], None],
    ) -> None:
        self._disk, self._directory, self._policy, self._on_roll = disk, directory, policy, on_roll
        self.info = recovered.segments[-1]
        self._index = recovered.index
        self._file: AppendFile = disk.open_append(directory, self.info.name, self.info.size)
        self.durable_offset = self.info.end
        self.fsyncs = 0
        self._unwritten: list[Any] = []

    @property
    def empty(self) -> bool:
        """Return whether there is no record in it."""
        return self.info.size == HEADER_BYTES

    def add(self, columns: Body, now_ms: int) -> None:
        """Encode a batch behind the last one; `write` brings it to the file."""
        if not self.empty and self._is_due(now_ms):
            self.roll(now_ms)
        info = self.info
        pieces, length = encode_frame(
            columns,
            base_offset=info.end,
            durable_offset=self.durable_offset,
            appended_ms=now_ms,
            salt=info.header.salt,
        )
        self._unwritten += pieces
        self._index.note(info.end, info.size)
        self.info = replace(info, size=info.size + length, end=info.end + len(columns))

    def write(self) -> None:
        """Hand everything encoded to the operating system."""
        if self._unwritten:
            self._file.write(self._unwritten)
            self._unwritten = []

    def sync(self) -> None:
        """Write, and return once it is on disk."""
        self.write()
        self._file.sync()
        self.fsyncs += 1
        self.durable_offset = self.info.end

    def roll(self, now_ms: int) -> None:
        """Close this segment for good and begin the next."""
        self.sync()
        self._file.close()
        self._index.close()
        closed = self.info
        self.info = add_segment(self._disk, self._directory, closed.end, previous_end=closed.end, now_ms=now_ms)
        self._file = self._disk.open_append(self._directory, self.info.name, self.info.size)
        self._index = IndexWriter(self._disk, self._directory, self.info.base)
        self._on_roll(closed, self.info)

    def is_old(self, now_ms: int) -> bool:
        """Return whether it has been open for longer than the policy says."""
        return now_ms - self.info.header.created_ms >= self._policy.segment_age.total_seconds() * 1000

    def close(self) -> None:
        """Release the files, without writing anything."""
        self._file.close()
        self._index.close()

    def _is_due(self, now_ms: int) -> bool:
        return self.info.size >= self._policy.segment_bytes or self.is_old(now_ms)
