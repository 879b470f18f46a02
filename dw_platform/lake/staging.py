"""One Spark job that writes files of several tables at once, to be committed table by table afterwards.

    ready = {"good": orders.prepare(schema), "bad": rejected.prepare(schema)}
    staged = stage(SplitTasks(payloads, read), ready, spark=lake.spark.get)
    rejected.commit_staged(staged.writes["bad"], positions=...)
    orders.commit_staged(staged.writes["good"], positions=...)

A staged write is files that no log refers to. Until it is committed nothing of it can be seen, and whoever decides
against it discards it. If the job fails, all files of all its tables are removed.

A table that needs Spark's writer has no files before its commit: its rows are counted here, and read a second time
by the commit. A source that cannot be read twice alike must not be used with such a table.
"""

import concurrent.futures
import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dw_platform.lake.features import Engine
from dw_platform.lake.jobs import run_job
from dw_platform.lake.opening import StorageUnreachableError
from dw_platform.lake.parquet import DataFile, TaskFiles, WriteJob, remove_job_files
from dw_platform.lake.rows import ArrowTasks
from dw_platform.lake.snapshot import Snapshot

Targeted = Generator[tuple[str, pa.RecordBatch], None, Any]


@dataclass(frozen=True, slots=True)
class SplitTasks:
    """One Spark task for each payload; `read` runs inside the task and yields (target, batch).

    What the generator returns at its end, anything that JSON can hold, is handed to the driver.
    """

    payloads: Sequence[Any]
    """Picklable; each describes what one task reads."""

    read: Callable[[Any], Targeted]


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """A table made ready for files: the snapshot to plan from and to commit with, and what the tasks must know."""

    snapshot: Snapshot
    job: WriteJob
    schema: pa.Schema
    """Of the rows; columns that the table computes may be missing in it."""


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """Rows of one table, written but not committed."""

    prepared: PreparedWrite
    rows: int
    files: tuple[DataFile, ...] = ()
    deferred: ArrowTasks | None = None
    """For Spark's writer: what it reads when it commits."""


@dataclass(frozen=True, slots=True)
class Staging:
    """What a job staged, by target, and what each task returned at its end, in the order of the payloads."""

    writes: Mapping[str, StagedWrite]
    notes: tuple[Any, ...]


@dataclass(slots=True)
class _Outcome:
    """What one task did."""

    files: dict[str, list[DataFile]]
    rows: dict[str, int] = field(default_factory=dict)
    note: Any = None

    def to_json(self) -> list[Any]:
        listed = {target: [astuple(file) for file in files] for target, files in self.files.items()}
        return [listed, self.rows, self.note]

    @classmethod
    def from_json(cls, told: list[Any]) -> "_Outcome":
        files, rows, note = told
        return cls({target: [DataFile(*file) for file in each] for target, each in files.items()}, rows, note)


def stage(
    tasks: SplitTasks,
    targets: Mapping[str, PreparedWrite],
    *,
    spark: Callable[[], SparkSession] | None,
    threads: int = 1,
) -> Staging:
    """Run the tasks and return what they wrote; without `spark` they run here, in so many threads.

    A PermanentError of a task arrives as itself and without a retry, a TransientError as itself after Spark's own
    retries, anything else as TaskFailedError. Whatever fails, no file of the job stays behind.
    """
    try:
        outcomes = _run_here(tasks, targets, threads) if spark is None else _run_in_spark(tasks, targets, spark())
    except BaseException as error:
        for target in targets.values():
            _remove(target.job)
        if isinstance(error, OSError):
            names = ", ".join(target.snapshot.table for target in targets.values())
            raise StorageUnreachableError(names, str(error).splitlines()[0]) from error
        raise
    writes = {name: _staged(name, target, tasks, outcomes) for name, target in targets.items()}
    return Staging(writes, tuple(outcome.note for outcome in outcomes))


def discard(staged: StagedWrite) -> None:
    """Remove the files of a write that will not be committed; what cannot be removed now is left to VACUUM."""
    if staged.files:
        _remove(staged.prepared.job)


def _remove(job: WriteJob) -> None:
    with contextlib.suppress(OSError):
        remove_job_files(job.location, job.job_id)


def _staged(name: str, target: PreparedWrite, tasks: SplitTasks, outcomes: Sequence[_Outcome]) -> StagedWrite:
    rows = sum(outcome.rows.get(name, 0) for outcome in outcomes)
    if target.snapshot.writer.engine is Engine.SPARK:
        return StagedWrite(target, rows, deferred=ArrowTasks(target.schema, tasks.payloads, _only(name, tasks)))
    return StagedWrite(target, rows, tuple(file for outcome in outcomes for file in outcome.files.get(name, ())))


def _only(name: str, tasks: SplitTasks) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    read = tasks.read
    return lambda payload: (batch for target, batch in read(payload) if target == name)


def _jobs(targets: Mapping[str, PreparedWrite]) -> dict[str, WriteJob | None]:
    return {
        name: target.job if target.snapshot.writer.engine is Engine.ARROW else None for name, target in targets.items()
    }


def _run_here(tasks: SplitTasks, targets: Mapping[str, PreparedWrite], threads: int) -> list[_Outcome]:
    jobs = _jobs(targets)
    if threads == 1:
        return [_write(jobs, tasks.read(payload)) for payload in tasks.payloads]
    with concurrent.futures.ThreadPoolExecutor(threads, "stage") as pool:
        return list(pool.map(lambda payload: _write(jobs, tasks.read(payload)), tasks.payloads))


def _run_in_spark(tasks: SplitTasks, targets: Mapping[str, PreparedWrite], session: SparkSession) -> list[_Outcome]:
    payloads, read, jobs = list(tasks.payloads), tasks.read, _jobs(targets)
    told = run_job(session, len(payloads), lambda number: _write(jobs, read(payloads[number])).to_json())
    return [_Outcome.from_json(each) for each in told]


def _write(jobs: Mapping[str, WriteJob | None], batches: Targeted) -> _Outcome:
    files = {name: TaskFiles(job) for name, job in jobs.items() if job is not None}
    rows = dict.fromkeys(jobs, 0)
    try:
        while True:
            try:
                target, batch = next(batches)
            except StopIteration as end:
                return _Outcome({name: each.finish() for name, each in files.items()}, rows, end.value)
            rows[target] += len(batch)
            if target in files:
                files[target].add(batch)
    except BaseException:
        for each in files.values():
            each.discard()
        raise
    finally:
        batches.close()
