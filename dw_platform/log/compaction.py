"""Keeps the newest value of each key and drops the older ones, in closed segments only.

Offsets stay as they were, so positions of readers stay true; the removed ones become gaps. Records without a key
all stay, and so does a value of None, which says that its key was deleted. Neighbours that have become small are
written into one file.

Crash: the new file is complete and fsynced before it takes the place of the first old one; then the other old ones
are removed. A crash in between leaves files whose records the new one holds too, and the next opening removes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dw_platform.log.columns import Columns
from dw_platform.log.disk import AppendFile, Disk
from dw_platform.log.errors import CorruptSegmentError
from dw_platform.log.frame import encode_frame
from dw_platform.log.index import IndexWriter, index_name
from dw_platform.log.layout import SegmentInfo
from dw_platform.log.segment import HEADER_BYTES, FrameWalk, SegmentHeader, new_header, segment_name

# Rows that are gathered before a frame is written, so that what is left of many frames does not become many more.
_FRAME_BYTES = 1024 * 1024
_MOST_SPAN = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Segments and the one that took their place, with how many records fewer."""

    old: tuple[SegmentInfo, ...]
    new: SegmentInfo
    removed: int


@dataclass(frozen=True, slots=True)
class _Worth:
    """How much of a segment would stay."""

    segment: SegmentInfo
    records: int
    kept: int

    @property
    def kept_bytes(self) -> int:
        return HEADER_BYTES + int(self.segment.size * self.kept / max(1, self.records))


def compact(disk: Disk, directory: str, closed: Sequence[SegmentInfo], segment_bytes: int) -> Iterator[Rewritten]:
    """Rewrite what is worth it and yield each step after it is durable."""
    newest = dict[bytes, int]()
    for segment in closed:
        for batch in _batches(disk, directory, segment):
            newest.update(zip(batch["key"].to_pylist(), batch["offset"].to_pylist(), strict=True))
    worths = [_worth(disk, directory, segment, newest) for segment in closed]
    for group in _groups(worths, segment_bytes):
        if len(group) > 1 or group[0].kept < group[0].records:
            old = tuple(worth.segment for worth in group)
            new = _rewrite(disk, directory, old, newest)
            yield Rewritten(old, new, sum(worth.records - worth.kept for worth in group))


def _groups(worths: Sequence[_Worth], segment_bytes: int) -> Iterator[list[_Worth]]:
    """Yield neighbours whose remains fit into one segment."""
    group, size = list[_Worth](), 0
    for worth in worths:
        header = worth.segment.header
        # A gap that a crash left is told to readers by the file behind it, which therefore stays a file.
        apart = header.previous_end != header.base_offset
        if group and (apart or size + worth.kept_bytes > segment_bytes):
            yield group
            group, size = [], 0
        group.append(worth)
        size += worth.kept_bytes
    if group:
        yield group


def _batches(disk: Disk, directory: str, segment: SegmentInfo) -> Iterator[Any]:
    file = disk.open_read(directory, segment.name)
    try:
        walk = FrameWalk(file, segment.header, segment.size)
        for frame in walk:
            yield frame.records()
        if walk.problem is not None:
            raise CorruptSegmentError(file.name, walk.position, walk.problem)
    finally:
        file.close()


def _keep(batch: Any, newest: dict[bytes, int]) -> Any:
    keys, offsets = batch["key"].to_pylist(), batch["offset"].to_pylist()
    return pa.array([key is None or newest[key] == offset for key, offset in zip(keys, offsets, strict=True)])


def _worth(disk: Disk, directory: str, segment: SegmentInfo, newest: dict[bytes, int]) -> _Worth:
    records = kept = 0
    for batch in _batches(disk, directory, segment):
        records += batch.num_rows
        kept += _keep(batch, newest).true_count
    return _Worth(segment, records, kept)


def _rewrite(disk: Disk, directory: str, old: tuple[SegmentInfo, ...], newest: dict[bytes, int]) -> SegmentInfo:
    first, last = old[0].header, old[-1]
    header = new_header(
        first.base_offset, previous_end=first.previous_end, created_ms=first.created_ms, compacted_end=last.end
    )
    name = segment_name(first.base_offset)
    try:
        with disk.create(directory, f"{name}.tmp") as file:
            writer = _Writer(file, header)
            for segment in old:
                for batch in _batches(disk, directory, segment):
                    writer.add(batch.filter(_keep(batch, newest)))
            writer.finish()
            file.sync()
    except BaseException:
        disk.remove(directory, f"{name}.tmp")
        raise
    disk.rename(directory, f"{name}.tmp", name)
    disk.sync_directory(directory)
    for segment in old[1:]:
        disk.remove(directory, segment.name)
        disk.remove(directory, index_name(segment.base))
        disk.sync_directory(directory)
    index = IndexWriter(disk, directory, first.base_offset)
    index.note_all(writer.frames)
    index.close()
    return SegmentInfo(header, writer.size, last.end)


class _Writer:
    """Gathers what stays and writes it as frames with gaps."""

    def __init__(self, file: AppendFile, header: SegmentHeader) -> None:
        self._file, self._header = file, header
        self._gathered: list[Any] = []
        self._bytes = 0
        self.size = HEADER_BYTES
        self.frames: list[tuple[int, int]] = []
        file.write([header.encode()])

    def add(self, batch: Any) -> None:
        if not batch.num_rows:
            return
        if self._gathered and batch["offset"][-1].as_py() - self._gathered[0]["offset"][0].as_py() >= _MOST_SPAN:
            self.finish()
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _FRAME_BYTES:
            self.finish()

    def finish(self) -> None:
        if not self._gathered:
            return
        batch = pa.concat_batches(self._gathered)
        self._gathered, self._bytes = [], 0
        offsets = batch["offset"].to_numpy()
        base = int(offsets[0])
        columns = Columns(
            values=batch["value"],
            keys=batch["key"],
            headers=None if batch["headers"].null_count == batch.num_rows else batch["headers"],
            times=batch["timestamp"].cast(pa.int64()),
            deltas=pa.array((offsets - base).astype(np.int32)),
        )
        pieces, length = encode_frame(
            columns,
            base_offset=base,
            durable_offset=base,
            appended_ms=self._header.created_ms,
            salt=self._header.salt,
            span=int(offsets[-1]) - base + 1,
        )
        self._file.write(pieces)
        self.frames.append((base, self.size))
        self.size += length
