"""Changed rows into a table by key: files that hold an old version of a row are written again without it.

The changes are files already, in the order in which they were read: of several with the same key the last one counts.
One commit removes the files that were written again and adds their successors and the changes, so readers see all
changes or none.

Memory: a task holds the keys of the changes, the keys of one file, and one row group of it. Nothing grows with the
table; whoever has more changes than fit commits them in several steps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dw_platform.lake.commit import LoggedFile
from dw_platform.lake.features import Engine, WriterChoice, opaque_columns
from dw_platform.lake.location import TableLocation
from dw_platform.lake.snapshot import Snapshot
from dw_platform.lake.staging import SplitTasks, Targeted

_NUMBER, _ROW, _OURS, _THEIRS = "__dw_change", "__dw_row", "__dw_ours", "__dw_theirs"
REMAINS = "remains"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Rows that replace those of the same key, and keys whose rows go; picklable."""

    location: TableLocation
    files: tuple[str, ...]
    """Paths of the changed rows, oldest first."""

    deleted: tuple[str, ...]
    """Paths of files that hold only the keys of deleted rows."""

    keys: tuple[str, ...]
    newest_by: str | None = None
    """A column that grows with every change of a row: a change that is not newer than the table's row is dropped."""

    def load(self) -> pa.Table:
        """Return the keys of all changes, numbered in order; of each key only the last, deletions after all."""
        parts = [self._keys(path, newest_by=self.newest_by) for path in self.files]
        # Without a value to compare, a deletion is newer than everything.
        told = [self._keys(path, newest_by=None) for path in self.deleted]
        rows = pa.concat_tables([*parts, *told], promote_options="default") if parts or told else pa.table({})
        rows = rows.append_column(_NUMBER, pa.array(np.arange(len(rows))))
        newest = rows.group_by(list(self.keys)).aggregate([(_NUMBER, "max")])
        return rows.take(newest[f"{_NUMBER}_max"])

    def _keys(self, path: str, *, newest_by: str | None) -> pa.Table:
        system, root = self.location.filesystem()
        with pq.ParquetFile(f"{root}/{path}", filesystem=system) as file:
            return _key_columns(file, self.keys, newest_by, _OURS)


@dataclass(frozen=True, slots=True)
class Found:
    """What the tasks found out: which files lose rows, how many, and which changes are no news."""

    touched: frozenset[str]
    replaced: int
    stale: frozenset[int]


def upsert_engine(snapshot: Snapshot) -> WriterChoice:
    """Return who changes rows of this table, and why."""
    if snapshot.writer.engine is Engine.SPARK:
        return snapshot.writer
    reasons = {
        "the table may have deletion vectors": "deletionVectors" in snapshot.facts.writer_features,
        "the table is partitioned": bool(snapshot.partition_by),
        "the table keeps a change data feed": _is_on(snapshot, "delta.enableChangeDataFeed"),
        "the table is append-only": _is_on(snapshot, "delta.appendOnly"),
        "the table has variant columns": bool(opaque_columns(snapshot.facts)),
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    return WriterChoice(Engine.SPARK, why) if why else WriterChoice(Engine.ARROW, "changed files are written again")


def _is_on(snapshot: Snapshot, name: str) -> bool:
    return snapshot.configuration.get(name, "").lower() == "true"


def logged_files(snapshot: Snapshot) -> list[LoggedFile]:
    """Return the files of a version, as the log names them."""
    actions = pa.table(snapshot.delta.get_add_actions(flatten=True))
    counts = actions["num_records"].to_pylist() if "num_records" in actions.schema.names else [None] * len(actions)
    rows = zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), counts, strict=True)
    return [LoggedFile(*row) for row in rows]


def candidates(snapshot: Snapshot, changed: pa.Table, keys: Sequence[str]) -> list[LoggedFile]:
    """Return the files that may hold one of the keys, by the bounds in the log; only exact bounds count."""
    files = logged_files(snapshot)
    actions = pa.table(snapshot.delta.get_add_actions(flatten=True))
    for key in keys:
        kind = changed.schema.field(key).type
        names = (f"min.{key}", f"max.{key}")
        if not (pa.types.is_integer(kind) or pa.types.is_date(kind)) or not {*names} <= {*actions.schema.names}:
            continue
        bounds = pc.min_max(changed[key]).as_py()
        ranges = zip(actions["path"].to_pylist(), *(actions[name].to_pylist() for name in names), strict=True)
        apart = {path for path, low, high in ranges if _apart(low, high, bounds["min"], bounds["max"])}
        files = [file for file in files if file.path not in apart]
    return files


def _apart(low: Any, high: Any, first: Any, last: Any) -> bool:
    if isinstance(low, str | type(None)) or isinstance(high, str | type(None)):
        return False
    return bool(high < first or low > last) if isinstance(low, int | date) else False


def survivors(changes: Changes, files: Sequence[LoggedFile], hands: int) -> SplitTasks:
    """Return tasks that write the rows of `files` which no change replaces, of those files only that lose rows."""
    largest_first = sorted(files, key=lambda file: -file.size)
    dealt = [[file.path for file in largest_first[first::hands]] for first in range(min(hands, len(files)))]
    return SplitTasks(dealt, _reader(changes))


def _reader(changes: Changes) -> Callable[[list[str]], Targeted]:
    def read(paths: list[str]) -> Targeted:
        changed = changes.load()
        system, root = changes.location.filesystem()
        touched, stale, replaced = list[str](), list[int](), 0
        for path in paths:
            # Spark writes instants as INT96, which would be read as nanoseconds and lose what lies beyond 1677 to 2262.
            with pq.ParquetFile(f"{root}/{unquote(path)}", filesystem=system, coerce_int96_timestamp_unit="us") as file:
                kept, old = _kept(file, changed, changes)
                stale += old
                if kept.all():
                    continue
                touched.append(path)
                replaced += int(len(kept) - kept.sum())
                yield from ((REMAINS, batch) for batch in _rows(file, kept))
        return {"touched": touched, "replaced": replaced, "stale": stale}

    return read


def _kept(file: pq.ParquetFile, changed: pa.Table, changes: Changes) -> tuple[Any, list[int]]:
    """Return a mask of the rows that stay, and the changes that are no newer than their row."""
    rows = _key_columns(file, changes.keys, changes.newest_by, _THEIRS)
    rows = rows.cast(pa.schema([_cast_field(field, changed.schema) for field in rows.schema]))
    rows = rows.append_column(_ROW, pa.array(np.arange(len(rows))))
    matched = rows.join(changed, keys=list(changes.keys), join_type="inner")
    kept, stale = np.ones(len(rows), dtype=bool), list[int]()
    if {_OURS, _THEIRS} <= {*matched.schema.names}:
        no_news = pc.fill_null(pc.greater_equal(matched[_THEIRS], matched[_OURS]), False)
        stale = matched.filter(no_news)[_NUMBER].to_pylist()
        matched = matched.filter(pc.invert(no_news))
    kept[matched[_ROW].to_numpy()] = False
    return kept, stale


def _key_columns(file: pq.ParquetFile, keys: Sequence[str], newest_by: str | None, named: str) -> pa.Table:
    """Return the columns of the key and, under another name, the one that tells what is newer.

    A column that was added later is not in older files; it is NULL there, and NULL is older than everything.
    """
    compared = newest_by if newest_by in file.schema_arrow.names else None
    rows = file.read(columns=list(dict.fromkeys([*keys, *([compared] if compared else [])])))
    columns = {key: rows[key] for key in keys} | ({named: rows[compared]} if compared else {})
    return pa.table(columns)


def _cast_field(field: pa.Field, changed: pa.Schema) -> pa.Field:
    """Return the field with the type that it has in the changes: other writers keep instants in other units."""
    other = _OURS if field.name == _THEIRS else field.name
    return field.with_type(changed.field(other).type) if other in changed.names else field


def _rows(file: pq.ParquetFile, kept: Any) -> Iterator[pa.RecordBatch]:
    first = 0
    for number in range(file.num_row_groups):
        group = file.read_row_group(number)
        mine = kept[first : first + len(group)]
        first += len(group)
        if mine.any():
            yield from group.filter(pa.array(mine)).to_batches()


def found(notes: Sequence[Any]) -> Found:
    """Put together what the tasks found out."""
    return Found(
        touched=frozenset(path for note in notes for path in note["touched"]),
        replaced=sum(note["replaced"] for note in notes),
        stale=frozenset(number for note in notes for number in note["stale"]),
    )


def counted(changed: pa.Table, count: int) -> int:
    """Return how many of `count` changed rows are the last of their key, and not deleted afterwards."""
    return int((changed[_NUMBER].to_numpy() < count).sum())


def reduced(changes: Changes, changed: pa.Table, stale: frozenset[int], count: int) -> SplitTasks:
    """Return a task that writes, of `count` changed rows, the last of each key, unless it is no news."""
    wanted = np.zeros(count, dtype=bool)
    numbers = changed[_NUMBER].to_numpy()
    wanted[numbers[numbers < count]] = True
    wanted[list(stale)] = False

    def read(_: Any) -> Targeted:
        system, root = changes.location.filesystem()
        first = 0
        for path in changes.files:
            with pq.ParquetFile(f"{root}/{path}", filesystem=system) as file:
                rows = file.metadata.num_rows
                yield from ((REMAINS, batch) for batch in _rows(file, wanted[first : first + rows]))
                first += rows

    return SplitTasks([None], read)
