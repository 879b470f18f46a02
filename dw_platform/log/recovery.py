"""What opening a partition does before anything is written: check, cut a torn tail, refuse anything worse.

Only the last file can be torn, because a file is fsynced before the next one begins. There, the frames behind the
first bad one decide: if one of them says that the bad one was on disk, promised records are damaged, and opening is
refused with file and position. Otherwise the bad frame belongs to the last write before the crash and is cut.

If the mark says that records were acknowledged which the cut took with it, their offsets are not used again: a
subscriber that has read them must not take new records for old ones. The report and RecordsLostError name them.

The last file's unproven frames are written once more before anybody relies on them, see AppendFile.rewrite.
"""

import json
import logging
from dataclasses import dataclass, replace

from dw_platform.log.check import Tail, check_all_closed, check_last
from dw_platform.log.contract import RecoveryReport
from dw_platform.log.disk import Disk, Mark, read_all
from dw_platform.log.disk import replace as replace_file
from dw_platform.log.index import IndexWriter
from dw_platform.log.layout import CLEAN_NAME, Layout, SegmentInfo, is_temporary, read_layout
from dw_platform.log.segment import HEADER_BYTES, create_segment, new_header

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """A partition that is ready to be appended to: the last of `segments` is the active one."""

    segments: list[SegmentInfo]
    index: IndexWriter
    report: RecoveryReport


def recover(disk: Disk, directory: str, mark: Mark, now_ms: int) -> Recovered:
    """Check the partition, repair what a crash explains and return it; raise CorruptSegmentError for the rest."""
    _remove_temporary(disk, directory)
    layout = read_layout(disk, directory)
    clean = _take_clean(disk, directory, layout)
    _remove_leftovers(disk, directory, layout)
    # A writer may have died between a rename and its fsync; records must not go into a file that can still vanish.
    disk.sync_directory(directory)
    start, promised = mark.read() or (0, 0)
    if not layout.segments:
        return _begin(disk, directory, layout, (start, promised), now_ms)
    *closed, last = layout.segments
    if not clean:
        check_all_closed(disk, directory, closed)
    tail = check_last(disk, directory, last)
    if not clean:
        _settle(disk, directory, last, tail)
    segments = [*closed, replace(last, size=tail.position, end=tail.end)]
    report = RecoveryReport(
        clean=clean,
        segments=len(segments),
        checked_bytes=last.size if clean else sum(segment.size for segment in layout.segments),
        end_offset=max(tail.end, promised),
        torn=tail.torn,
        lost=(tail.end, promised) if promised > tail.end else None,
        foreign=layout.foreign,
    )
    _tell(directory, report)
    if report.lost or last.header.compacted_end is not None:
        return _continue_after(disk, directory, segments, report, now_ms)
    index = IndexWriter(disk, directory, last.base)
    index.note_all(tail.index)
    return Recovered(segments, index, report)


def write_clean(disk: Disk, directory: str, segments: list[SegmentInfo]) -> None:
    """Note that everything is on disk, so that the next opening need not read all of it."""
    sizes = {segment.name: segment.size for segment in segments}
    replace_file(disk, directory, CLEAN_NAME, json.dumps(sizes).encode())


def add_segment(disk: Disk, directory: str, base: int, *, previous_end: int, now_ms: int) -> SegmentInfo:
    """Make a new, empty segment and return it."""
    header = new_header(base, previous_end=previous_end, created_ms=now_ms)
    create_segment(disk, directory, header)
    return SegmentInfo(header, HEADER_BYTES, base)


def _begin(disk: Disk, directory: str, layout: Layout, kept: tuple[int, int], now_ms: int) -> Recovered:
    """Begin an empty log; if there was one, its records are all lost, and its offsets stay used."""
    start, promised = kept
    segment = add_segment(disk, directory, promised, previous_end=start, now_ms=now_ms)
    report = RecoveryReport(
        clean=False,
        segments=1,
        checked_bytes=0,
        end_offset=promised,
        lost=(start, promised) if promised > start else None,
        foreign=layout.foreign,
    )
    _tell(directory, report)
    return Recovered([segment], IndexWriter(disk, directory, segment.base), report)


def _continue_after(
    disk: Disk, directory: str, segments: list[SegmentInfo], report: RecoveryReport, now_ms: int
) -> Recovered:
    segment = add_segment(disk, directory, report.end_offset, previous_end=segments[-1].end, now_ms=now_ms)
    return Recovered([*segments, segment], IndexWriter(disk, directory, segment.base), report)


def _settle(disk: Disk, directory: str, last: SegmentInfo, tail: Tail) -> None:
    with disk.open_append(directory, last.name, tail.position) as file:
        file.rewrite(tail.unproven)


def _take_clean(disk: Disk, directory: str, layout: Layout) -> bool:
    """Return whether the folder is as its last writer left it, and forget that it was."""
    content = read_all(disk, directory, CLEAN_NAME)
    if content is None:
        return False
    disk.remove(directory, CLEAN_NAME)
    disk.sync_directory(directory)
    try:
        noted = json.loads(content)
    except ValueError:
        return False
    return bool(noted == {segment.name: segment.size for segment in layout.segments})


def _remove_temporary(disk: Disk, directory: str) -> None:
    # The lock is held, so whatever is half-made belongs to a dead writer.
    for name in disk.list(directory):
        if is_temporary(name):
            disk.remove(directory, name)


def _remove_leftovers(disk: Disk, directory: str, layout: Layout) -> None:
    for name in layout.leftovers:
        disk.remove(directory, name)
        disk.sync_directory(directory)


def _tell(directory: str, report: RecoveryReport) -> None:
    facts = {"partition": directory, "torn": str(report.torn), "lost": str(report.lost), "end": report.end_offset}
    if report.lost:
        log.error("acknowledged records did not survive", extra=facts)
    elif report.torn:
        log.warning("torn tail was cut", extra=facts)
