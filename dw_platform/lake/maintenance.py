"""Upkeep of a table: small files are joined, files that no version needs are deleted after their retention.

Joining happens in deltalake where the table allows it, because its commits do not keep other Arrow writers out;
it happens in Spark where deltalake would write bounds that lose rows (long decimals, NaN) or would not understand
the table.
"""

import math
import time
from datetime import timedelta

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from dw_platform.foundation import PermanentError, parse_duration
from dw_platform.lake.commit import NOTE_KEY, CommitConflictError, CommitNote, CommitRefusedError
from dw_platform.lake.features import Engine, WriterChoice, opaque_columns
from dw_platform.lake.lock import TableLock
from dw_platform.lake.reports import MaintenanceReport
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import MaintenancePolicy
from dw_platform.lake.snapshot import Snapshot
from dw_platform.lake.spark_writer import require_identifier, run_with_note, translated

_EXACT_IN_A_DOUBLE = 15
_DEFAULT_RETENTION = timedelta(days=7)


class RetentionGuardError(PermanentError):
    """A retention shorter than the table's own would delete files that its readers were promised."""

    def __init__(self, table: str, asked: timedelta, promised: timedelta) -> None:
        self.table, self.asked, self.promised = table, asked, promised
        super().__init__(
            f"{table}: a retention of {asked} is shorter than the {promised} that the table promises its readers and "
            "backups. Lower the table property delta.deletedFileRetentionDuration first if that is meant."
        )


def maintain_table(
    snapshot: Snapshot, policy: MaintenancePolicy, *, lock: TableLock, spark: SparkProvider
) -> MaintenanceReport:
    """Join and delete by `policy`; raises before anything happens if the retention is too short."""
    promised = table_retention(snapshot)
    if policy.retention < promised:
        raise RetentionGuardError(snapshot.table, policy.retention, promised)
    started = time.monotonic()
    choice = upkeep_engine(snapshot)
    files_before = snapshot.file_count  # now, because joining moves the handle on
    note = CommitNote(engine=choice.engine, reason=choice.reason)
    if choice.engine is Engine.ARROW:
        removed = _with_deltalake(snapshot, policy, lock, note)
    else:
        removed = _with_spark(snapshot, policy, lock, spark, note)
    return MaintenanceReport(
        table=snapshot.table,
        engine=choice.engine,
        files_before=files_before,
        files_after=Snapshot(snapshot.table, snapshot.location).file_count,
        files_removed=removed,
        duration_s=time.monotonic() - started,
    )


def upkeep_engine(snapshot: Snapshot) -> WriterChoice:
    """Return who joins the files of this table, and why."""
    if snapshot.writer.engine is Engine.SPARK:
        return snapshot.writer
    if "deletionVectors" in snapshot.facts.writer_features:
        return WriterChoice(Engine.SPARK, "the table may have deletion vectors")
    if opaque := sorted(opaque_columns(snapshot.facts)):
        return WriterChoice(Engine.SPARK, f"column {opaque[0]} holds variants")
    for field in snapshot.schema:
        if why := _lossy_in_deltalake(field.type):
            return WriterChoice(Engine.SPARK, f"column {field.name} holds {why}")
    return WriterChoice(Engine.ARROW, "files are joined by deltalake")


def table_retention(snapshot: Snapshot) -> timedelta:
    """Return how long the table promises to keep removed files."""
    text = snapshot.configuration.get("delta.deletedFileRetentionDuration")
    if not text:
        return _DEFAULT_RETENTION
    words = text.lower().removeprefix("interval").split()
    units = {"week": 7 * 24, "day": 24, "hour": 1}
    if len(words) == 2 and words[1].rstrip("s") in units:
        return timedelta(hours=float(words[0]) * units[words[1].rstrip("s")])
    return parse_duration("".join(words))


def _whole_hours(retention: timedelta) -> int:
    """Round up: keeping a file longer is harmless."""
    return math.ceil(retention / timedelta(hours=1))


def _with_deltalake(snapshot: Snapshot, policy: MaintenancePolicy, lock: TableLock, note: CommitNote) -> int:
    properties = CommitProperties(custom_metadata={NOTE_KEY: note.to_json()})
    hours = _whole_hours(policy.retention)
    try:
        with lock.shared():
            if policy.zorder:
                snapshot.delta.optimize.z_order(
                    list(policy.zorder), target_size=policy.target_file_bytes, commit_properties=properties
                )
            else:
                snapshot.delta.optimize.compact(target_size=policy.target_file_bytes, commit_properties=properties)
            fresh = Snapshot(snapshot.table, snapshot.location).delta
            # Full: also the files that a crashed job left behind and that no commit ever named.
            return len(fresh.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True))
    except CommitFailedError as error:
        raise CommitConflictError(snapshot.table, str(error).splitlines()[0]) from error
    except DeltaError as error:
        raise CommitRefusedError(snapshot.table, str(error).splitlines()[0]) from error


def _with_spark(
    snapshot: Snapshot, policy: MaintenancePolicy, lock: TableLock, provider: SparkProvider, note: CommitNote
) -> int:
    spark = provider.get()
    name = f"delta.`{snapshot.location.spark_uri.replace('`', '``')}`"
    columns = ", ".join(require_identifier(column, snapshot.schema.names) for column in policy.zorder)
    hours = _whole_hours(policy.retention)
    statement = f"OPTIMIZE {name}" + (f" ZORDER BY ({columns})" if columns else "")
    size = {"spark.databricks.delta.optimize.maxFileSize": str(policy.target_file_bytes)}
    with translated(snapshot.table), lock.exclusive():
        run_with_note(spark, note, lambda: spark.sql(statement).collect(), conf=size)
        doomed = spark.sql(f"VACUUM {name} RETAIN {hours} HOURS DRY RUN").count()
        spark.sql(f"VACUUM {name} RETAIN {hours} HOURS").collect()
    return int(doomed)


def _lossy_in_deltalake(kind: pa.DataType) -> str | None:
    """Say what deltalake's own files would lose: Spark skips by their bounds, and these bounds are wrong."""
    if pa.types.is_decimal(kind) and kind.precision > _EXACT_IN_A_DOUBLE:
        return "decimals that deltalake's statistics round"
    if pa.types.is_floating(kind):
        return "floats, whose NaN deltalake's statistics leave out"
    if not pa.types.is_nested(kind):
        return None
    return next(filter(None, (_lossy_in_deltalake(kind.field(i).type) for i in range(kind.num_fields))), None)
