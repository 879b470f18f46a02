"""Reads segments whole and says where they stop being whole."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from dw_platform.log.contract import TornTail
from dw_platform.log.disk import Disk
from dw_platform.log.errors import CorruptSegmentError
from dw_platform.log.layout import SegmentInfo
from dw_platform.log.segment import FrameWalk, promised_after

# Below this, starting threads costs more than they save.
_ALONE_BYTES = 8 * 1024 * 1024


def check_all_closed(disk: Disk, directory: str, segments: Sequence[SegmentInfo]) -> None:
    """Check closed segments; raise CorruptSegmentError for the oldest that is damaged.

    Two at a time: while one thread reads, which needs no interpreter lock, the other computes checksums.
    """
    if sum(segment.size for segment in segments) < _ALONE_BYTES:
        for segment in segments:
            check_closed(disk, directory, segment)
        return
    with ThreadPoolExecutor(2, "log check") as pool:
        deque(pool.map(partial(check_closed, disk, directory), segments), maxlen=0)


def check_closed(disk: Disk, directory: str, segment: SegmentInfo) -> None:
    """Read the whole segment; raise CorruptSegmentError unless every byte is as it was written."""
    file = disk.open_read(directory, segment.name)
    try:
        walk = FrameWalk(file, segment.header, segment.size)
        deque(walk.parts(), maxlen=0)
        if walk.problem is not None:
            raise CorruptSegmentError(file.name, walk.position, walk.problem)
        end = segment.header.compacted_end or walk.next_offset
        if end != segment.end:
            reason = f"the next file follows offset {segment.end}, but this one ends at {end}"
            raise CorruptSegmentError(file.name, walk.position, reason)
    finally:
        file.close()


@dataclass(frozen=True, slots=True)
class Tail:
    """How far the last segment is whole."""

    end: int
    position: int
    unproven: int
    """Position of the first frame that no later frame says was on disk."""

    torn: TornTail | None
    index: tuple[tuple[int, int], ...]


def check_last(disk: Disk, directory: str, segment: SegmentInfo) -> Tail:
    """Read the last segment up to where it is whole; raise CorruptSegmentError if promised records are damaged."""
    file = disk.open_read(directory, segment.name)
    try:
        walk = FrameWalk(file, segment.header, segment.size)
        unproven, index = deque[tuple[int, int]](), list[tuple[int, int]]()
        for position, header, _ in walk.parts():
            index.append((header.base_offset, position))
            unproven.append(index[-1])
            while unproven[0][0] < header.durable_offset:
                unproven.popleft()
        torn = None
        if walk.problem is not None:
            if segment.header.compacted_end is not None:
                raise CorruptSegmentError(file.name, walk.position, walk.problem)
            if proof := promised_after(file, segment.header, walk, segment.size):
                reason = f"{walk.problem}, and the frame at byte {proof.position} shows that it was on disk"
                raise CorruptSegmentError(file.name, walk.position, reason)
            torn = TornTail(file.name, walk.position, segment.size - walk.position, walk.problem)
        first = unproven[0][1] if unproven else walk.position
        return Tail(segment.header.compacted_end or walk.next_offset, walk.position, first, torn, tuple(index))
    finally:
        file.close()
