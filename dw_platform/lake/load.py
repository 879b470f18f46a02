"""Rows that arrive in parts over a long time, and become visible at once: a full copy, or changes by key.

    load = table.load(app_id)
    state = load.state()                         # how far the last one came, from the log itself
    job = new_job(state.snapshot, schema)
    for part in run_lanes(job, ...):             # files that no log refers to
        state = load.progress(state, {...}, ...) # a commit without rows: where to go on, and which files there are
    load.replace(state, job, files, {...}, ...)  # one commit: the old rows go, the new ones are there

Every commit of a load moves one position, `app_id`, by one. Who planned from an older one gets PositionConflictError,
so of two loads of one table only one goes on. `details` travel in the same commit and say how to go on after it.

Files between two commits are nobody's: after a crash VACUUM removes them, and a load that goes on makes sure that
those it remembers are still there.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dw_platform.foundation import TransientError
from dw_platform.lake.changes import Change, ChangedRows, LoadTarget, UpsertReport
from dw_platform.lake.changing import apply_changes
from dw_platform.lake.commit import CommitConflictError, CommitNote, check_unmoved, commit_files
from dw_platform.lake.commit_log import details_before
from dw_platform.lake.features import Engine
from dw_platform.lake.location import TableLocation
from dw_platform.lake.lock import TableLock
from dw_platform.lake.parquet import DataFile, WriteJob
from dw_platform.lake.parts import PartBoard, jobs_with_notes
from dw_platform.lake.planning import overwrite_choice
from dw_platform.lake.reports import CommitReport
from dw_platform.lake.schema import same_columns
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.snapshot import Snapshot
from dw_platform.lake.spark_writer import fit_frame, overwrite_with_spark, set_positions_with_spark, translated

# Another commit in between (OPTIMIZE, say) makes it look again; more often than this it is no coincidence.
_ATTEMPTS = 5


class StagedFilesGoneError(TransientError):
    """Files that a load wrote are not there any more, so it has to begin again."""

    def __init__(self, table: str, missing: int) -> None:
        self.table, self.missing = table, missing
        super().__init__(
            f"{table}: {missing:,} files of the load under way are gone; an upkeep with a retention shorter than the "
            "load removes them. Nothing was changed; start the load again."
        )


@dataclass(frozen=True, slots=True)
class LoadState:
    """How far a load has come, by the table's own log."""

    snapshot: Snapshot
    position: int | None
    """How many commits its loads have made; None before the first."""

    details: Mapping[str, Any] | None
    """What the last of them said; None when there was none, or the log no longer has it."""

    @property
    def next(self) -> int:
        """The position of the next commit."""
        return (self.position or 0) + 1


class TableLoad:
    """The loads of one source into one table."""

    def __init__(
        self, table: str, location: TableLocation, app_id: str, *, lock: TableLock, spark: SparkProvider
    ) -> None:
        self._target = LoadTarget(table, location, lock, spark)
        self._app_id = app_id

    def state(self) -> LoadState:
        """Return how far the last load came; the table must exist."""
        snapshot = self._target.snapshot()
        position = snapshot.position(self._app_id)
        told = next(self.told(snapshot), None) if position is not None else None
        # The newest commit with details must be the newest of all, or they would be those of an older one.
        return LoadState(snapshot, position, told[1] if told and told[0] == position else None)

    def told(self, snapshot: Snapshot) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield position and details of each commit of this source, newest first, as far as the log goes."""
        return details_before(snapshot.location, self._app_id, snapshot.version)

    def clear_notes(self) -> None:
        """Remove what tasks of loads that are over left on their boards; no other load may be under way."""
        for job_id in jobs_with_notes(self._target.location):
            PartBoard(self._target.location, job_id).clear()

    def missing(self, files: Sequence[DataFile]) -> int:
        """Return how many of the files are not there as they were written."""
        if not files:
            return 0
        system, root = self._target.location.filesystem()
        there = system.get_file_info([f"{root}/{file.path}" for file in files])
        return sum(info.size != file.size for info, file in zip(there, files, strict=True))

    def progress(self, state: LoadState, details: Mapping[str, Any], *, reason: str) -> LoadState:
        """Commit no rows, but how far the load has come."""

        def commit(newest: Snapshot) -> None:
            note = CommitNote(engine=newest.writer.engine, reason=reason, details=details)
            positions = {self._app_id: state.next}
            if newest.writer.engine is Engine.SPARK:
                set_positions_with_spark(self._target.spark.get(), newest, positions, note)
            else:
                commit_files(newest, [], mode="append", schema=newest.schema, positions=positions, note=note)

        self._commit(state, commit, alone=state.snapshot.writer.engine is Engine.SPARK)
        return replace(state, position=state.next, details=details)

    def replace(
        self, state: LoadState, job: WriteJob, files: Sequence[DataFile], details: Mapping[str, Any], *, reason: str
    ) -> CommitReport:
        """Let `files` be the table, and nothing else, in one commit; StagedFilesGoneError if one is missing."""
        started = time.monotonic()
        done = list[CommitReport]()

        def commit(newest: Snapshot) -> None:
            if missing := self.missing(files):
                raise StagedFilesGoneError(newest.table, missing)
            choice = overwrite_choice(newest, job.schema, newest.partition_by)
            note = CommitNote(engine=choice.engine, reason=reason, details=details)
            if choice.engine is Engine.ARROW:
                positions = {self._app_id: state.next}
                commit_files(newest, files, mode="overwrite", schema=job.schema, positions=positions, note=note)
            else:
                self._overwrite_with_spark(newest, state, job, files, note)
            done.append(self._target.report(newest, note, started))

        # Alone, because what is replaced is the table as it is now; and so that no VACUUM takes files meanwhile.
        self._commit(state, commit, alone=True)
        return replace(done[0], rows=sum(file.rows for file in files))

    def upsert(
        self,
        state: LoadState,
        changes: ChangedRows,
        details: Mapping[str, Any],
        *,
        reason: str,
    ) -> UpsertReport:
        """Let changed rows replace those of the same keys and remove deleted ones, in one commit.

        If nothing is news, nothing is committed, except that Spark's MERGE may write a file again as it was. The files
        are gone afterwards unless they are the table's; after an error that proves that nothing was committed they are
        still there, for another attempt.
        """
        for attempt in range(_ATTEMPTS):
            base = self._target.snapshot()
            check_unmoved(base, {self._app_id: state.position})
            change = Change(
                target=self._target,
                base=base,
                rows=changes,
                position=(self._app_id, state.next),
                note_of=lambda engine: CommitNote(engine=engine, reason=reason, details=details),
            )
            with contextlib.nullcontext() if attempt == _ATTEMPTS - 1 else contextlib.suppress(CommitConflictError):
                return apply_changes(change)
        raise AssertionError("the last attempt returns or raises")

    def _commit(self, state: LoadState, commit: Callable[[Snapshot], None], *, alone: bool) -> None:
        lock = self._target.lock
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1
            with (
                contextlib.nullcontext() if last else contextlib.suppress(CommitConflictError),
                lock.exclusive() if alone else lock.shared(),
                translated(self._target.table),
            ):
                newest = self._target.snapshot()
                check_unmoved(newest, {self._app_id: state.position})
                commit(newest)
                return

    def _overwrite_with_spark(
        self, newest: Snapshot, state: LoadState, job: WriteJob, files: Sequence[DataFile], note: CommitNote
    ) -> None:
        kept = same_columns(newest.schema, job.schema)
        rows = self._target.frame(files, job.schema)
        overwrite_with_spark(
            newest.location,
            fit_frame(rows, newest.facts) if kept else rows,
            partition_by=newest.partition_by,
            replace_schema=not kept,
            note=note,
            position=(self._app_id, state.next),
        )
