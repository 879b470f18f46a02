"""What is about to change in a table: the table, the changed rows, and the commit that will carry them."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from dw_platform.lake.commit import CommitConflictError, CommitLostError, CommitNote
from dw_platform.lake.commit_log import find_commit
from dw_platform.lake.features import Engine
from dw_platform.lake.location import TableLocation
from dw_platform.lake.lock import TableLock
from dw_platform.lake.parquet import DataFile
from dw_platform.lake.reports import CommitReport
from dw_platform.lake.schema import without_rules
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """A table, and what it takes to commit to it."""

    table: str
    location: TableLocation
    lock: TableLock
    spark: SparkProvider

    def snapshot(self) -> Snapshot:
        """Return the newest version."""
        return Snapshot(self.table, self.location)

    def frame(self, files: Sequence[DataFile], schema: pa.Schema) -> DataFrame:
        """Return staged files as Spark sees them."""
        spark, plain = self.spark.get(), without_rules(schema)
        if not files:
            return spark.createDataFrame(plain.empty_table())
        paths = [f"{self.location.spark_uri}/{file.path}" for file in files]
        return spark.read.schema(from_arrow_schema(plain)).parquet(*paths)

    def report(self, base: Snapshot, note: CommitNote, started: float) -> CommitReport:
        """Return what the log says about the commit that carries `note`."""
        commit = find_commit(self.location, base.version, note.commit_id)
        if commit is None:
            raise CommitLostError(self.table, note.commit_id)
        return CommitReport(
            table=self.table,
            version=commit.version,
            engine=note.engine,
            reason=note.reason,
            duration_s=time.monotonic() - started,
            rows=commit.changed_rows,
            files=commit.files,
            bytes=commit.bytes,
        )

    def remove(self, files: Sequence[DataFile]) -> None:
        """Remove staged files that nobody needs; what cannot be removed now is left to VACUUM."""
        system, root = self.location.filesystem()
        for file in files:
            with contextlib.suppress(OSError):
                system.delete_file(f"{root}/{file.path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Rows that replace those of the same key, as staged files in the order in which they were read."""

    files: Sequence[DataFile]
    schema: pa.Schema
    keys: tuple[str, ...]
    newest_by: str | None = None
    """A column that grows with every change: a change that is not newer than the table's row counts for nothing."""

    deleted: pa.Table | None = None
    """Keys whose rows go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertReport:
    """What changes did to a table."""

    commit: CommitReport | None
    """None when nothing was news."""

    written: int = 0
    replaced: int = 0
    """Rows of the table that gave way, to a newer version or to a deletion."""

    unchanged: int = 0
    """Changes that the table had already, or that a later one overtook."""

    @classmethod
    def nothing(cls, changes: int) -> "UpsertReport":
        """Return that none of the changes was news."""
        return cls(commit=None, unchanged=changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Changed rows on their way into one version of a table."""

    target: LoadTarget
    base: Snapshot
    """The version that they are compared with; if there is a newer one at the commit, they are compared again."""

    rows: ChangedRows
    position: tuple[str, int]
    note_of: Callable[[Engine], CommitNote]

    @property
    def count(self) -> int:
        """How many changed rows there are, repeated keys among them."""
        return sum(file.rows for file in self.rows.files)

    def check_newest(self) -> None:
        """Raise CommitConflictError if the table has changed meanwhile; the caller holds its lock alone."""
        if self.target.snapshot().version != self.base.version:
            raise CommitConflictError(self.target.table, "the table was changed while rows were compared")
