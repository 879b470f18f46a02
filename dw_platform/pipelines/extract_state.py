"""How far an extraction has come, as it travels in the table's own commits.

An extraction reads *lanes*, ranges of the key that were cut when it began. Each commit says for every lane where it
goes on, and which files were finished since the commit before; together the commits of one run hold all its files.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime
from typing import Any

from dw_platform.extract.keyset import Position
from dw_platform.lake.parquet import DataFile
from dw_platform.lake.parts import Part
from dw_platform.pipelines.extract_report import Mode

# What a later version of this platform writes may mean something else; then a run begins anew.
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneState:
    """One range of the key: rows after `start` up to and with `upto`, read up to and with `at`."""

    start: Position | None
    upto: Position | None
    at: Position | None
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractState:
    """One run of an extraction."""

    run: str = field(default_factory=lambda: secrets.token_hex(8))
    mode: Mode
    binding: str
    """Hash of everything that decides what is read; a run goes on only under the same."""

    began: datetime
    first: int
    """Position of the run's first commit."""

    lanes: tuple[LaneState, ...]
    rows: int = 0
    pages: int = 0
    finished: bool = False
    cursor: str | None = None
    """What the table has up to, for incremental extraction: a position's text of the cursor column."""

    def with_parts(self, parts: Iterable[Part]) -> "ExtractState":
        """Return the state after these parts."""
        lanes, rows, pages = list(self.lanes), self.rows, self.pages
        for part in parts:
            at = lanes[part.lane].at if part.end is None else tuple(part.end)
            lanes[part.lane] = replace(lanes[part.lane], at=at, done=part.last)
            rows, pages = rows + part.rows, pages + part.pages
        return replace(self, lanes=tuple(lanes), rows=rows, pages=pages)

    def to_json(self, files: Sequence[DataFile] = ()) -> dict[str, Any]:
        """Return what a commit says; `files` are those finished since the one before."""
        return {
            "extract": _FORMAT,
            "run": self.run,
            "mode": self.mode,
            "binding": self.binding,
            "began": self.began.isoformat(),
            "first": self.first,
            "lanes": [[lane.start, lane.upto, lane.at, lane.done] for lane in self.lanes],
            "rows": self.rows,
            "pages": self.pages,
            "finished": self.finished,
            "cursor": self.cursor,
            "files": [astuple(file) for file in files],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any] | None) -> "ExtractState | None":
        """Return what a commit said; None if it said nothing that this version understands."""
        if told is None or told.get("extract") != _FORMAT:
            return None
        return cls(
            run=told["run"],
            mode=told["mode"],
            binding=told["binding"],
            began=datetime.fromisoformat(told["began"]),
            first=told["first"],
            lanes=tuple(
                LaneState(start=_position(start), upto=_position(upto), at=_position(at), done=done)
                for start, upto, at, done in told["lanes"]
            ),
            rows=told["rows"],
            pages=told["pages"],
            finished=told["finished"],
            cursor=told["cursor"],
        )


def files_of(told: Mapping[str, Any]) -> list[DataFile]:
    """Return the files that a commit named."""
    return [DataFile(*file) for file in told["files"]]


def _position(value: Sequence[str | None] | None) -> Position | None:
    return None if value is None else tuple(value)


def shown_position(state: ExtractState) -> str | None:
    """Return how far a run came, for people: the cursor, or the key of the last lane that has one."""
    if state.cursor is not None:
        return _plain(state.cursor)
    reached = [lane.at for lane in state.lanes if lane.at is not None]
    return ", ".join("NULL" if text is None else _plain(text) for text in reached[-1]) if reached else None


def _plain(text: str) -> str:
    """Return a position's text without the mark that MySQL's and SQLite's values have."""
    return text[2:] if text[1:2] == ":" and text[0] in "bdfimnrstx" else text
