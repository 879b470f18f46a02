"""The files of one partition's folder.

    {base offset, 20 digits}.segment   records, see segment.py
    {base offset, 20 digits}.index     where they are, see index.py
    mark                               how far records are acknowledged and kept, see disk.py
    lock                               held by the writer
    clean                              names and sizes, written when the writer closed, removed when the next one opens

Any other name is foreign and left alone.
"""

from dataclasses import dataclass

from dw_platform.log.disk import Disk
from dw_platform.log.file_disk import LOCK_NAME, MARK_NAME
from dw_platform.log.index import index_name, is_index
from dw_platform.log.segment import SegmentHeader, base_of, read_segment_header, segment_name

CLEAN_NAME = "clean"
_OWN_NAMES = {CLEAN_NAME, MARK_NAME, LOCK_NAME}


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment as its writer knows it; `end` is the first offset after it."""

    header: SegmentHeader
    size: int
    end: int

    @property
    def base(self) -> int:
        """Return the lowest offset that it can hold."""
        return self.header.base_offset

    @property
    def name(self) -> str:
        """Return its file's name."""
        return segment_name(self.base)


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a partition's folder."""

    segments: list[SegmentInfo]
    """Ends of closed ones are what the next one says; that of the last is not known yet."""

    leftovers: list[str]
    """What a crash kept from being removed: segments whose records a compacted one holds, and lone indexes."""

    foreign: tuple[str, ...]


def read_layout(disk: Disk, directory: str) -> Layout:
    """Return what is in the folder; raise CorruptSegmentError for a segment without a valid header."""
    sizes = disk.list(directory)
    bases = sorted(base for name in sizes if (base := base_of(name)) is not None)
    own = _OWN_NAMES | {segment_name(base) for base in bases} | {index_name(base) for base in bases}
    foreign = tuple(sorted(name for name in sizes if name not in own and not is_temporary(name)))
    headers, leftovers = list[SegmentHeader](), [name for name in foreign if is_index(name)]
    for base in bases:
        header = _read_header(disk, directory, base)
        if headers and base < (headers[-1].compacted_end or 0):
            leftovers += [segment_name(base), *({index_name(base)} & sizes.keys())]
        else:
            headers.append(header)
    ends = [header.previous_end for header in headers[1:]] + [0]
    segments = [
        SegmentInfo(header, sizes[segment_name(header.base_offset)], end)
        for header, end in zip(headers, ends, strict=False)
    ]
    return Layout(segments, leftovers, tuple(name for name in foreign if not is_index(name)))


def is_temporary(name: str) -> bool:
    """Return whether the file is one that a log was about to rename; a stranger's `notes.tmp` is not."""
    stem = name.removesuffix(".tmp")
    return stem != name and (base_of(stem) is not None or stem in _OWN_NAMES)


def _read_header(disk: Disk, directory: str, base: int) -> SegmentHeader:
    file = disk.open_read(directory, segment_name(base))
    try:
        return read_segment_header(file, segment_name(base))
    finally:
        file.close()
