"""Applying changes to a table by this platform's own files: those that lose a row are written again without it."""

import contextlib
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from dw_platform.lake.changes import Change, LoadTarget, UpsertReport
from dw_platform.lake.commit import LoggedFile, NotCommittedError, commit_files
from dw_platform.lake.features import Engine
from dw_platform.lake.lock import TableBusyError
from dw_platform.lake.merging import merge_changes
from dw_platform.lake.parquet import write_batches
from dw_platform.lake.planning import new_job
from dw_platform.lake.snapshot import Snapshot
from dw_platform.lake.staging import PreparedWrite, SplitTasks, StagedWrite, Staging, discard, stage
from dw_platform.lake.upsert import (
    REMAINS,
    Changes,
    candidates,
    counted,
    found,
    reduced,
    survivors,
    upsert_engine,
)

# From here on the work is worth a job of Spark, and from there on also the start of a JVM.
_WORTH_A_JOB_BYTES = 32 * 1024 * 1024
_WORTH_A_JVM_BYTES = 512 * 1024 * 1024
# Parquet is read and written outside the interpreter's lock, so two fill two cores; more need Spark.
_THREADS = 2


def apply_changes(change: Change) -> UpsertReport:
    """Apply the changed rows; CommitConflictError if anybody commits in between, and then try again."""
    if upsert_engine(change.base).engine is Engine.SPARK:
        return merge_changes(change)
    with _deleted_keys(change) as deleted:
        return _write_again(change, deleted)


@contextlib.contextmanager
def _deleted_keys(change: Change) -> Iterator[tuple[str, ...]]:
    """Write the keys of deleted rows where tasks find them, for as long as they need them."""
    deleted, keys = change.rows.deleted, list(change.rows.keys)
    if deleted is None or not len(deleted):
        yield ()
        return
    schema = pa.schema([change.base.schema.field(key) for key in keys])
    files = list(write_batches(new_job(change.base, schema), deleted.select(keys).to_batches()))
    try:
        yield tuple(file.path for file in files)
    finally:
        change.target.remove(files)


def _write_again(change: Change, deleted: tuple[str, ...]) -> UpsertReport:
    started, rows = time.monotonic(), change.rows
    changes = Changes(
        location=change.target.location,
        files=tuple(file.path for file in rows.files),
        deleted=deleted,
        keys=rows.keys,
        newest_by=rows.newest_by,
    )
    changed = changes.load()
    old = candidates(change.base, changed, rows.keys)
    staging = _stage_remains(change.target, change.base, changes, old)
    remains, outcome = staging.writes[REMAINS], found(staging.notes)
    whole = counted(changed, change.count) == change.count and not outcome.stale
    news = None if whole else _stage_news(change.base, reduced(changes, changed, outcome.stale, change.count))
    written = change.count if news is None else news.rows
    staged = [remains] if news is None else [remains, news]
    if not outcome.touched and not written:
        _discard(staged)
        change.target.remove(rows.files)
        return UpsertReport.nothing(change.count)
    note = change.note_of(Engine.ARROW)
    try:
        added = [*remains.files, *(rows.files if news is None else news.files)]
        with change.target.lock.exclusive():
            change.check_newest()
            commit_files(
                change.base,
                added,
                mode="append",
                schema=change.base.schema,
                positions=dict([change.position]),
                note=note,
                removed=[file for file in old if file.path in outcome.touched],
            )
    except (NotCommittedError, TableBusyError):
        _discard(staged)
        raise
    if news is not None:
        change.target.remove(rows.files)
    return UpsertReport(
        commit=change.target.report(change.base, note, started),
        written=written,
        replaced=outcome.replaced,
        unchanged=change.count - written,
    )


def _stage_remains(target: LoadTarget, base: Snapshot, changes: Changes, old: Sequence[LoggedFile]) -> Staging:
    least = _WORTH_A_JOB_BYTES if target.spark.started else _WORTH_A_JVM_BYTES
    worth = sum(file.size for file in old) >= least
    tasks = survivors(changes, old, target.spark.parallelism if worth else _THREADS)
    return stage(tasks, _prepared(base), spark=target.spark.get if worth else None, threads=_THREADS)


def _stage_news(base: Snapshot, tasks: SplitTasks) -> StagedWrite:
    return stage(tasks, _prepared(base), spark=None).writes[REMAINS]


def _prepared(base: Snapshot) -> dict[str, PreparedWrite]:
    return {REMAINS: PreparedWrite(base, new_job(base, base.schema), base.schema)}


def _discard(staged: Sequence[StagedWrite]) -> None:
    for write in staged:
        discard(write)
