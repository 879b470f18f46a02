"""Parts of a long read that become known while it runs: tasks write files, and leave a note for each finished part.

A Spark job tells its driver what it did when it ends. A read that takes an hour should be able to go on where it was
after fifty minutes, so its tasks live through many pages, and whoever drives them commits what they have finished so
far. `PartBoard` is where they leave word: a small JSON file a part, in a hidden folder of the table.

A *lane* is what is read in order by one task: a range of keys, say. The parts of a lane are a chain: each begins where
the one before ended. An attempt that Spark starts anew finds the end of the chain on the board and goes on there. Of
two attempts at one lane, the driver takes whoever's part continues the chain first; VACUUM takes the other's files.

Durability: a part's files are durable before its note appears; the note itself appears by one rename.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from dw_platform.foundation import fsync_directory
from dw_platform.lake.location import TableLocation
from dw_platform.lake.parquet import DataFile, TaskFiles, WriteJob

FOLDER = "_dw_parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of one lane from `start` to `end`, in files that no log refers to yet."""

    lane: int
    start: Any
    """Where it begins and ends, in the reader's own terms; anything that JSON can hold."""

    end: Any
    last: bool
    """Whether the lane ends here."""

    pages: int
    rows: int
    files: tuple[DataFile, ...]

    def to_json(self) -> bytes:
        told = [
            self.lane,
            self.start,
            self.end,
            self.last,
            self.pages,
            self.rows,
            [astuple(file) for file in self.files],
        ]
        return json.dumps(told).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Part":
        lane, start, end, last, pages, rows, files = json.loads(text)
        listed = tuple(DataFile(*file) for file in files)
        return cls(lane=lane, start=start, end=end, last=last, pages=pages, rows=rows, files=listed)


@dataclass(frozen=True, slots=True)
class ReadPage:
    """One page of a lane: its rows, and where the lane goes on."""

    rows: pa.Table
    end: Any
    last: bool


LaneReader = Callable[[int, Any], Iterator[ReadPage]]
"""Reads a lane, by its number, from a place on; runs inside a task."""


@dataclass(frozen=True, slots=True)
class PartBoard:
    """The notes of one job; picklable."""

    location: TableLocation
    job_id: str

    def post(self, part: Part) -> None:
        """Leave word of a finished part."""
        system, folder = self._place()
        name = f"{folder}/{part.lane:06d}-{secrets.token_hex(8)}"
        if self.location.is_s3:
            with system.open_output_stream(f"{name}.json", compression=None) as sink:
                sink.write(part.to_json())
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        with Path(f"{name}.tmp").open("wb") as file:
            file.write(part.to_json())
            file.flush()
            os.fsync(file.fileno())
        Path(f"{name}.tmp").rename(f"{name}.json")
        fsync_directory(Path(folder))

    def names(self) -> list[str]:
        """Return the notes that are there."""
        system, folder = self._place()
        found = system.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return sorted(info.path for info in found if info.is_file and info.extension == "json")

    def read(self, name: str) -> Part:
        """Return what a note says."""
        system, _ = self._place()
        with system.open_input_stream(name) as note:
            return Part.from_json(note.read())

    def end_of(self, lane: int, start: Any) -> tuple[Any, bool]:
        """Return where the chain that begins at `start` has come to, and whether that is the lane's end."""
        parts = [self.read(name) for name in self.names() if name.rpartition("/")[2].startswith(f"{lane:06d}-")]
        following = {json.dumps(part.start): part for part in parts}
        at, ended = start, False
        while not ended and (part := following.get(json.dumps(at))) is not None:
            at, ended = part.end, part.last
        return at, ended

    def clear(self) -> None:
        """Remove the notes; the files that they name are somebody else's business."""
        system, folder = self._place()
        with contextlib.suppress(FileNotFoundError):
            system.delete_dir(folder)

    def _place(self) -> tuple[pafs.FileSystem, str]:
        system, root = self.location.filesystem()
        return system, f"{root}/{FOLDER}/{self.job_id}"


def jobs_with_notes(location: TableLocation) -> list[str]:
    """Return the jobs that left notes in the table's folder."""
    system, root = location.filesystem()
    found = system.get_file_info(pafs.FileSelector(f"{root}/{FOLDER}", allow_not_found=True))
    return sorted(info.base_name for info in found if info.type == pafs.FileType.Directory)


def write_lane(job: WriteJob, lane: int, start: Any, read: LaneReader, *, part_rows: int) -> None:
    """Read a lane from where its chain ends, and post a part whenever `part_rows` rows are written."""
    board = PartBoard(job.location, job.job_id)
    at, ended = board.end_of(lane, start)
    if ended:
        return
    writing = _Writing(job, lane, at)
    pages = read(lane, at)
    try:
        for page in pages:
            writing.add(page)
            if writing.rows >= part_rows or page.last:
                board.post(writing.finish(last=page.last))
                writing = _Writing(job, lane, page.end)
                # What the part took is given back, or Arrow's allocator would keep it for the next one.
                pa.default_memory_pool().release_unused()
    except BaseException:
        writing.discard()
        raise
    finally:
        close = getattr(pages, "close", None)
        if close is not None:
            close()


def write_lanes(job: WriteJob, lanes: Sequence[tuple[int, Any]], read: LaneReader, *, part_rows: int) -> None:
    """Write several lanes one after the other, as one task does."""
    for lane, start in lanes:
        write_lane(job, lane, start, read, part_rows=part_rows)


class _Writing:
    """One part under way."""

    def __init__(self, job: WriteJob, lane: int, start: Any) -> None:
        self._files, self._lane, self._start, self._end = TaskFiles(job), lane, start, start
        self.rows = self._pages = 0

    def add(self, page: ReadPage) -> None:
        for batch in page.rows.to_batches():
            self._files.add(batch)
        self.rows += page.rows.num_rows
        self._pages += 1
        self._end = page.end

    def finish(self, *, last: bool) -> Part:
        return Part(
            lane=self._lane,
            start=self._start,
            end=self._end,
            last=last,
            pages=self._pages,
            rows=self.rows,
            files=tuple(self._files.finish()),
        )

    def discard(self) -> None:
        self._files.discard()
