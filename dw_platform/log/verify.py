"""Reads a whole partition and says what it finds, without changing or locking anything.

A log that is being written can be verified too; what is written meanwhile is not looked at.
"""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dw_platform.log.check import check_last
from dw_platform.log.disk import Disk
from dw_platform.log.errors import CorruptSegmentError
from dw_platform.log.file_disk import FileDisk
from dw_platform.log.frame import Frame
from dw_platform.log.index import load_index
from dw_platform.log.layout import Layout, SegmentInfo, read_layout
from dw_platform.log.segment import FrameWalk


class Severity(enum.StrEnum):
    """What a finding means for the records."""

    NOTE = "note"
    """Nothing is wrong with any record."""

    TORN = "torn"
    """The last write was not finished; the next writer cuts it."""

    LOST = "lost"
    """Acknowledged records are gone and known to be."""

    CORRUPT = "corrupt"
    """Acknowledged records are damaged; no writer will open the partition."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as in a healthy, closed log."""

    severity: Severity
    file: str
    position: int
    message: str


def verify(directory: str | Path, *, disk: Disk | None = None) -> list[Finding]:
    """Return everything that is wrong or unusual; nothing means that every record is readable."""
    place, disk = str(directory), disk or FileDisk()
    # Taken before the files are read, so that a writer at work can only add to what it promises.
    mark = disk.mark(place, writable=False)
    promised = mark.read()
    mark.close()
    try:
        layout = read_layout(disk, place)
    except FileNotFoundError:  # nobody has written yet
        return []
    except CorruptSegmentError as error:
        return [_corrupt(error)]
    findings = [Finding(Severity.NOTE, name, 0, "this file is not the log's") for name in layout.foreign]
    findings += [Finding(Severity.NOTE, name, 0, "a crash kept it from being removed") for name in layout.leftovers]
    for segment in layout.segments[:-1]:
        findings += _closed(disk, place, segment)
    findings += _gaps(layout)
    if layout.segments:
        findings += _last(disk, place, layout.segments[-1], None if promised is None else promised[1])
    return findings


def _closed(disk: Disk, directory: str, segment: SegmentInfo) -> list[Finding]:
    file = disk.open_read(directory, segment.name)
    findings, positions = list[Finding](), set[tuple[int, int]]()
    walk = FrameWalk(file, segment.header, segment.size)
    try:
        for frame in walk:
            positions.add((frame.header.base_offset, frame.position))
            findings += _body(file.name, frame)
    except CorruptSegmentError as error:
        return [*findings, _corrupt(error)]
    finally:
        file.close()
    end = segment.header.compacted_end or walk.next_offset
    if walk.problem is not None:
        findings.append(Finding(Severity.CORRUPT, file.name, walk.position, walk.problem))
    elif end != segment.end:
        message = f"it ends at offset {end}, but the next file follows {segment.end}"
        findings.append(Finding(Severity.CORRUPT, file.name, walk.position, message))
    return findings + _index(disk, directory, segment, positions)


def _last(disk: Disk, directory: str, segment: SegmentInfo, promised: int | None) -> list[Finding]:
    try:
        tail = check_last(disk, directory, segment)
    except CorruptSegmentError as error:
        return [_corrupt(error)]
    findings = list[Finding]()
    if tail.torn is not None:
        message = f"{tail.torn.reason}; {tail.torn.bytes} bytes are not, or not yet, wholly written"
        findings.append(Finding(Severity.TORN, tail.torn.file, tail.torn.position, message))
    if promised is not None and promised > tail.end:
        message = f"offsets {tail.end}..{promised - 1} were acknowledged and are not there"
        findings.append(Finding(Severity.LOST, segment.name, tail.position, message))
    return findings + _index(disk, directory, segment, set(tail.index))


def _gaps(layout: Layout) -> list[Finding]:
    """Return what earlier crashes took."""
    return [
        Finding(
            Severity.LOST,
            segment.name,
            0,
            f"offsets {segment.header.previous_end}..{segment.base - 1} did not survive an earlier crash",
        )
        for segment in layout.segments[1:]
        if segment.header.previous_end < segment.base
    ]


def _body(file: str, frame: Frame) -> list[Finding]:
    try:
        records: Any = frame.records()
        records.validate(full=True)
    except (ValueError, pa.ArrowException) as error:
        return [Finding(Severity.CORRUPT, file, frame.position, f"the frame holds no records: {error}")]
    return []


def _index(disk: Disk, directory: str, segment: SegmentInfo, frames: set[tuple[int, int]]) -> list[Finding]:
    wrong = [entry for entry in load_index(disk, directory, segment.base) if entry not in frames]
    if not wrong:
        return []
    message = f"{len(wrong)} entries of its index name no frame; reading is slower, not wrong"
    return [Finding(Severity.NOTE, segment.name, 0, message)]


def _corrupt(error: CorruptSegmentError) -> Finding:
    return Finding(Severity.CORRUPT, error.file, error.position, error.reason)
