"""One Delta table: append, overwrite, merge, delete, read, history, upkeep.

Every write takes a snapshot first, writes files outside any lock, and holds the table's lock only for its commit.
Until that commit nothing of the write can be seen; after a failure nothing of it is ever referenced.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, TableFeatures
from deltalake import Field as DeltaField
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql import DataFrame, SparkSession

from dw_platform.foundation import InvalidValueError
from dw_platform.lake.commit import (
    NOTE_KEY,
    CommitConflictError,
    CommitNote,
    CommitRefusedError,
    NotCommittedError,
    check_positions,
    check_unmoved,
    commit_files,
)
from dw_platform.lake.commit_log import LoggedCommit, find_commit
from dw_platform.lake.features import Engine, filled_columns, reserved_columns
from dw_platform.lake.load import TableLoad
from dw_platform.lake.location import TableLocation
from dw_platform.lake.lock import TableBusyError, TableLock
from dw_platform.lake.maintenance import maintain_table
from dw_platform.lake.nesting import refuse_nesting
from dw_platform.lake.opening import StorageUnreachableError, TableMissingError
from dw_platform.lake.parquet import DataFile, WriteJob, new_job_id, remove_job_files
from dw_platform.lake.partitions import check_partitioning
from dw_platform.lake.planning import new_job, overwrite_choice
from dw_platform.lake.reports import CommitReport, HistoryEntry, MaintenanceReport
from dw_platform.lake.rows import Rows, as_dataframe, rows_schema, write_files
from dw_platform.lake.schema import (
    SchemaMismatchError,
    SchemaPlan,
    check_names,
    needed_features,
    normal_schema,
    plan_schema,
    same_columns,
)
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import MaintenancePolicy
from dw_platform.lake.snapshot import Snapshot
from dw_platform.lake.spark_writer import (
    append_with_spark,
    fit_frame,
    merge_statement,
    overwrite_with_spark,
    require_identifier,
    run_with_note,
    set_positions_with_spark,
    sql_name,
    translated,
)
from dw_platform.lake.staging import PreparedWrite, StagedWrite

Missing = Literal["refuse", "null"]

_FEATURES = {"timestampNtz": TableFeatures.TimestampWithoutTimezone, "invariants": TableFeatures.Invariants}


class _WrittenFiles(NamedTuple):
    job: WriteJob
    files: list[DataFile]


class LakeTable:
    """A table of the lake by name; holds no state of its own, so any number of processes may each have one."""

    def __init__(self, name: str, location: TableLocation, *, lock: TableLock, spark: SparkProvider) -> None:
        self.name = name
        self.location = location
        self._lock = lock
        self._spark = spark

    # Looking at it: no JVM

    def exists(self) -> bool:
        """Whether a Delta table is there."""
        return DeltaTable.is_deltatable(self.location.uri, storage_options=self.location.delta_options())

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the newest version, or an older one, to plan from."""
        return Snapshot(self.name, self.location, version=version)

    def history(self, limit: int = 20) -> list[HistoryEntry]:
        """Return the newest commits, newest first."""
        return [_history_entry(entry) for entry in self.snapshot().delta.history(limit)]

    # Writing

    def create(
        self,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
    ) -> Snapshot:
        """Make an empty table; if somebody else makes it first, theirs is returned."""
        normal = normal_schema(schema)
        check_names(self.name, normal)
        check_partitioning(normal, partition_by)
        self.location.prepare()
        refuse_nesting(self.name, self.location)
        # If another process is faster, deltalake reports a conflict, and theirs is the table.
        with self._lock.shared(), contextlib.suppress(CommitConflictError), self._refused():
            DeltaTable.create(
                self.location.uri,
                normal,
                mode="ignore",
                partition_by=list(partition_by),
                description=description,
                configuration=dict(properties or {}),
                storage_options=self.location.delta_options(),
                raise_if_key_not_exists=False,
                commit_properties=_noted("the table is made"),
            )
        return self._name_features(self.snapshot())

    def append(
        self,
        rows: Rows,
        *,
        positions: Mapping[str, int] | None = None,
        snapshot: Snapshot | None = None,
        partition_by: Sequence[str] = (),
        missing: Missing = "refuse",
    ) -> CommitReport:
        """Add rows, and the source positions they end at, in one commit.

        `positions` maps an application id to where its source is read next. Give the `snapshot` that the positions
        were planned from: if anybody has moved one of them since, the commit fails and nothing is written twice.
        A table that does not exist is made with the rows' columns.
        """
        started = time.monotonic()
        incoming = rows_schema(rows)
        base = snapshot or self._snapshot_or_create(incoming, partition_by)
        moved = dict(positions or {})
        planned_from = {app_id: base.position(app_id) for app_id in moved} if snapshot else None
        base = self._evolved(base, incoming, missing)
        # Columns may have been added on top of a newer version than the positions were planned from.
        check_positions(base, moved, planned_from)
        if base.writer.engine is Engine.SPARK:
            return self._append_with_spark(rows, base, moved, planned_from, started)
        files = self._write_files(rows, base, base.schema)
        return self._commit_arrow(base, files, mode="append", positions=moved, started=started)

    def prepare(self, schema: pa.Schema, *, missing: Missing = "refuse") -> PreparedWrite:
        """Make ready for rows of `schema` that `stage` writes, adding columns where it takes that.

        Plan from the snapshot in the result: `commit_staged` commits with it. TableMissingError if there is no table.
        """
        incoming = normal_schema(schema)
        base = self._evolved(self._name_features(self.snapshot()), incoming, missing)
        return PreparedWrite(base, new_job(base, base.schema), incoming)

    def commit_staged(self, staged: StagedWrite, *, positions: Mapping[str, int] | None = None) -> CommitReport:
        """Add the staged rows, and the source positions they end at, in one commit; as `append` does.

        If anybody has moved one of the positions since the write was prepared, PositionConflictError says so. After
        every error that proves that nothing was committed the files are gone; prepare, plan and stage anew.
        """
        started = time.monotonic()
        moved = dict(positions or {})
        base, job = staged.prepared.snapshot, staged.prepared.job
        if staged.deferred is not None:
            planned_from = {app_id: base.position(app_id) for app_id in moved}
            return self._append_with_spark(staged.deferred, base, moved, planned_from, started)
        files = _WrittenFiles(job, list(staged.files))
        return self._commit_arrow(base, files, mode="append", positions=moved, started=started)

    def overwrite(self, rows: Rows, *, partition_by: Sequence[str] | None = None) -> CommitReport:
        """Replace all rows, and the columns if they differ, in one commit; readers see the old or the new table."""
        started = time.monotonic()
        incoming = rows_schema(rows)
        base = self._snapshot_or_create(incoming, partition_by or ())
        layout = base.partition_by if partition_by is None else tuple(partition_by)
        choice = overwrite_choice(base, incoming, layout)
        kept = same_columns(base.schema, incoming) and layout == base.partition_by
        if not kept:
            check_names(self.name, incoming)
            check_partitioning(incoming, layout)
        if choice.engine is Engine.ARROW:
            files = self._write_files(rows, base, base.schema if kept else incoming)
            return self._commit_arrow(base, files, mode="overwrite", positions={}, started=started)
        spark = self._spark.get()
        note = CommitNote(engine=Engine.SPARK, reason=choice.reason)
        frame = as_dataframe(rows, spark)
        fitted = fit_frame(frame, base.facts) if kept else frame
        with translated(self.name), self._lock.exclusive():
            overwrite_with_spark(self.location, fitted, partition_by=layout, replace_schema=not kept, note=note)
        return self._spark_report(base, note, started)

    def merge(self, rows: Rows, *, keys: Sequence[str], delete_when: str | None = None) -> CommitReport:
        """Update rows whose `keys` match and insert the others, in one commit.

        `delete_when` is a SQL condition on the arriving row (alias `source`) under which a match is deleted.
        Two arriving rows with the same key are refused by Delta, because either could win.
        """
        started = time.monotonic()
        incoming = rows_schema(rows)
        base = self._evolved(self.snapshot(), incoming, "refuse")
        quoted = [require_identifier(key, incoming.names) for key in keys]
        if not quoted:
            raise InvalidValueError("keys", keys, "at least one column")
        spark = self._spark.get()
        view = f"dw_merge_{new_job_id()}"
        frame = as_dataframe(rows, spark)
        frame.createOrReplaceTempView(view)
        statement = merge_statement(sql_name(self.location), view, incoming.names, quoted, delete_when)
        try:
            return self._spark_statement(spark, base, statement, "rows are matched by Spark", started)
        finally:
            spark.catalog.dropTempView(view)

    def delete(self, predicate: str) -> CommitReport:
        """Delete the rows that a SQL condition names."""
        started = time.monotonic()
        base = self.snapshot()
        statement = f"DELETE FROM {sql_name(self.location)} WHERE {predicate}"  # noqa: S608
        return self._spark_statement(self._spark.get(), base, statement, "rows are found by Spark", started)

    def rewind(self, predicate: str, positions: Mapping[str, int], *, snapshot: Snapshot) -> None:
        """Delete the rows that a SQL condition names and set `positions`, lower ones too, with no commit in between.

        The only way to move a position back. If one of them was moved since `snapshot`, PositionConflictError is
        raised and nothing changed. These are two commits under one lock: after a crash between them the rows are
        gone and the positions as they were, so the caller remembers what it began and calls again.
        """
        planned_from = {app_id: snapshot.position(app_id) for app_id in positions}
        statement = f"DELETE FROM {sql_name(self.location)} WHERE {predicate}"  # noqa: S608
        spark = self._spark.get()
        note = CommitNote(engine=Engine.SPARK, reason="rows are read again")
        with translated(self.name, positions), self._lock.exclusive():
            check_unmoved(self.snapshot(), planned_from)
            run_with_note(spark, note, lambda: spark.sql(statement).collect())
            base = self.snapshot()
            check_unmoved(base, planned_from)
            self._set_positions(spark, base, positions)

    def load(self, app_id: str) -> TableLoad:
        """Return what brings rows in over a long time, in parts, and makes them visible at once."""
        return TableLoad(self.name, self.location, app_id, lock=self._lock, spark=self._spark)

    def read(self, version: int | None = None) -> DataFrame:
        """Return the rows as a Spark DataFrame."""
        self.snapshot(version)
        reader = self._spark.get().read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(self.location.spark_uri)

    def maintain(self, policy: MaintenancePolicy | None = None) -> MaintenanceReport:
        """Join small files and delete unreferenced ones that are older than the policy's retention."""
        return maintain_table(self.snapshot(), policy or MaintenancePolicy(), lock=self._lock, spark=self._spark)

    # Steps of a write

    def _snapshot_or_create(self, schema: pa.Schema, partition_by: Sequence[str]) -> Snapshot:
        try:
            return self._name_features(self.snapshot())
        except TableMissingError:
            return self.create(schema, partition_by=partition_by)

    def _name_features(self, base: Snapshot) -> Snapshot:
        """Name the features that the columns need; a step of `create` that a crash may have left undone.

        A timestamp without a zone moves a table to named features, and Spark then refuses its NOT NULL columns
        unless the feature behind them is named too, which deltalake leaves out.
        """
        missing = [_FEATURES[name] for name in needed_features(base.schema) if name not in base.facts.writer_features]
        if not missing:
            return base
        with self._lock.shared(), self._refused():
            base.delta.alter.add_feature(
                missing, allow_protocol_versions_increase=True, commit_properties=_noted("features are named")
            )
        return self.snapshot()

    def _evolved(self, base: Snapshot, incoming: pa.Schema, missing: Missing) -> Snapshot:
        """Return a snapshot into which the rows fit, after adding columns if it takes that."""
        if taken := sorted(reserved_columns(base.facts).intersection(incoming.names)):
            problem = f"the table itself numbers {', '.join(taken)}, so the data must not have it"
            raise SchemaMismatchError(self.name, [problem], base.schema, incoming)
        plan = plan_schema(self.name, base.schema, incoming, missing=missing, filled=filled_columns(base.facts))
        return self._add_columns(base, plan) if plan.added else base

    def _add_columns(self, base: Snapshot, plan: SchemaPlan) -> Snapshot:
        if base.configuration.get("delta.columnMapping.mode", "none") == "none":
            check_names(self.name, pa.schema(plan.added))
        fields = [DeltaField.from_arrow(field) for field in plan.added]
        if base.writer.engine is Engine.SPARK:
            spark = self._spark.get()
            frame = spark.createDataFrame(pa.schema(plan.added).empty_table())
            added = ", ".join(
                f"`{column.name.replace('`', '``')}` {column.dataType.simpleString()}" for column in frame.schema
            )
            statement = f"ALTER TABLE {sql_name(self.location)} ADD COLUMNS ({added})"
            self._spark_statement(spark, base, statement, "columns are added", time.monotonic())
        else:
            with self._lock.shared(), self._refused():
                base.delta.alter.add_columns(fields, commit_properties=_noted("columns are added"))
        return self._name_features(self.snapshot())

    def _write_files(self, rows: Rows, base: Snapshot, schema: pa.Schema) -> "_WrittenFiles":
        job = new_job(base, schema)
        with self._removing_files_of(job, BaseException):
            try:
                return _WrittenFiles(job, write_files(rows, job, self._spark.get))
            except OSError as error:
                raise StorageUnreachableError(self.name, str(error).splitlines()[0]) from error

    def _commit_arrow(
        self, base: Snapshot, written: "_WrittenFiles", *, mode: str, positions: Mapping[str, int], started: float
    ) -> CommitReport:
        note = CommitNote(engine=Engine.ARROW, reason=base.writer.reason)
        lock = self._lock.shared() if mode == "append" else self._lock.exclusive()
        # Only an error that says so proves that nothing was committed. After any other one (a signal between
        # commit and answer) the log may refer to the files, so they stay; VACUUM takes them if it does not.
        with self._removing_files_of(written.job, NotCommittedError, TableBusyError), lock:
            if mode == "overwrite":
                # What is replaced is the table as it is now, not as it was when the files were begun.
                version = self._commit_once(self._unchanged_since(base), written, mode, positions, note)
            else:
                version = self._commit_append(base, written, positions, note)
        return CommitReport(
            table=self.name,
            version=version,
            engine=Engine.ARROW,
            reason=note.reason,
            duration_s=time.monotonic() - started,
            rows=sum(file.rows for file in written.files),
            files=len(written.files),
            bytes=sum(file.size for file in written.files),
        )

    def _commit_append(
        self, base: Snapshot, written: "_WrittenFiles", positions: Mapping[str, int], note: CommitNote
    ) -> int:
        """Commit an append that read nothing, which by Delta's rules conflicts with changed rules and positions only.

        deltalake takes it for one that read the table and refuses it after a DELETE. The lock keeps Spark's deletes
        out by now, so one more attempt from the newest version settles it.
        """
        try:
            return self._commit_once(base, written, "append", positions, note)
        except CommitConflictError as conflict:
            planned_from = {app_id: base.position(app_id) for app_id in positions}
            try:
                newest = self._unchanged_since(base)
            except CommitConflictError:
                raise conflict from None
            check_positions(newest, positions, planned_from)
            return self._commit_once(newest, written, "append", positions, note)

    def _commit_once(
        self, base: Snapshot, written: "_WrittenFiles", mode: str, positions: Mapping[str, int], note: CommitNote
    ) -> int:
        schema = written.job.schema
        return commit_files(base, written.files, mode=mode, schema=schema, positions=positions, note=note)

    def _unchanged_since(self, base: Snapshot) -> Snapshot:
        newest = self.snapshot()
        if (newest.facts, newest.partition_by) != (base.facts, base.partition_by):
            raise CommitConflictError(self.name, "the table's columns or properties were changed")
        return newest

    def _set_positions(self, spark: SparkSession, base: Snapshot, positions: Mapping[str, int]) -> None:
        note = CommitNote(engine=base.writer.engine, reason="positions are moved")
        if base.writer.engine is Engine.SPARK:
            set_positions_with_spark(spark, base, positions, note)
        else:
            commit_files(
                base, [], mode="append", schema=base.schema, positions=positions, note=note, forward_only=False
            )

    def _append_with_spark(
        self,
        rows: Rows,
        base: Snapshot,
        positions: Mapping[str, int],
        planned_from: Mapping[str, int | None] | None,
        started: float,
    ) -> CommitReport:
        spark = self._spark.get()
        note = CommitNote(engine=Engine.SPARK, reason=base.writer.reason)
        commit = append_with_spark(
            spark,
            base,
            as_dataframe(rows, spark),
            positions=positions,
            planned_from=planned_from,
            note=note,
            lock=self._lock,
        )
        return self._report_of(commit, note, started)

    def _spark_statement(
        self, spark: SparkSession, base: Snapshot, statement: str, reason: str, started: float
    ) -> CommitReport:
        note = CommitNote(engine=Engine.SPARK, reason=reason)
        with translated(self.name), self._lock.exclusive():
            run_with_note(spark, note, lambda: spark.sql(statement).collect())
        return self._spark_report(base, note, started)

    def _spark_report(self, base: Snapshot, note: CommitNote, started: float) -> CommitReport:
        commit = find_commit(self.location, base.version, note.commit_id)
        # A statement that finds nothing to change commits nothing.
        return self._report_of(
            commit or LoggedCommit(version=self.snapshot().version, files=0, bytes=0, rows=0), note, started
        )

    def _report_of(self, commit: LoggedCommit, note: CommitNote, started: float) -> CommitReport:
        return CommitReport(
            table=self.name,
            version=commit.version,
            engine=note.engine,
            reason=note.reason,
            duration_s=time.monotonic() - started,
            rows=commit.changed_rows,
            files=commit.files,
            bytes=commit.bytes,
        )

    @contextlib.contextmanager
    def _removing_files_of(self, job: WriteJob, *causes: type[BaseException]) -> Iterator[None]:
        try:
            yield
        except causes:
            with contextlib.suppress(OSError):
                remove_job_files(self.location, job.job_id)
            raise

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError as error:
            raise CommitConflictError(self.name, str(error).splitlines()[0]) from error
        except DeltaError as error:
            raise CommitRefusedError(self.name, str(error).splitlines()[0]) from error
        except BaseException as error:
            # A panic inside deltalake arrives under a name that cannot be imported.
            if type(error).__name__ != "PanicException":
                raise
            raise CommitRefusedError(self.name, f"deltalake gave up: {error}") from error


def _noted(reason: str) -> CommitProperties:
    return CommitProperties(custom_metadata={NOTE_KEY: CommitNote(engine=Engine.ARROW, reason=reason).to_json()})


def _history_entry(entry: Mapping[str, Any]) -> HistoryEntry:
    note: dict[str, str] = {}
    with contextlib.suppress(ValueError):  # somebody else's user metadata may be any text
        note = json.loads(entry.get(NOTE_KEY) or entry.get("userMetadata") or "{}")
    return HistoryEntry(
        version=int(entry["version"]),
        at=datetime.fromtimestamp(entry["timestamp"] / 1000, UTC),
        operation=str(entry.get("operation", "")),
        engine=note.get("engine") or str(entry.get("engineInfo", "unknown")),
        reason=note.get("reason", ""),
    )
