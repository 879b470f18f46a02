"""Spark's own Delta writer, for tables whose features the Arrow writer cannot honour, and for row-level changes.

On a session that this process launched, an append is Delta's own transaction: Spark writes the files with all the
table's rules (constraints, generated columns, column mapping), and only the commit at the end holds the lock,
together with as many source positions as the caller has. Spark Connect offers no transaction, so there the whole
write holds the lock and carries at most one position.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from dw_platform.foundation import InvalidValueError, PermanentError, PlatformError
from dw_platform.lake.commit import (
    CommitConflictError,
    CommitLostError,
    CommitNote,
    CommitRefusedError,
    PositionConflictError,
    check_positions,
)
from dw_platform.lake.commit_log import LoggedCommit, find_commit
from dw_platform.lake.features import TableFacts, filled_columns
from dw_platform.lake.location import TableLocation
from dw_platform.lake.lock import TableLock
from dw_platform.lake.opening import NewerProtocolError
from dw_platform.lake.snapshot import Snapshot
from dw_platform.lake.task_errors import CarriedError, task_error

_CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_TOO_NEW = ("DELTA_UNSUPPORTED_FEATURES_FOR", "DELTA_INVALID_PROTOCOL_VERSION")
# The note of a statement is a setting of the session, so statements that commit take turns inside a process.
_STATEMENTS = threading.Lock()
_LONGEST_CAUSE = 600
# Arguments of Delta's `Write` operation after mode, partitioning, predicate and user metadata; all optional.
_FURTHER_WRITE_OPTIONS = 5


class OnePositionError(PermanentError):
    """Spark Connect cannot commit several positions with one write."""

    def __init__(self, table: str, count: int) -> None:
        self.table, self.count = table, count
        super().__init__(
            f"{table} needs Spark's writer, which commits one source position at a time over Spark Connect, and "
            f"{count} were given. Use `spark.master` instead of `spark.remote`, or a table without that feature."
        )


def is_connect(spark: SparkSession) -> bool:
    """Whether `spark` is a Connect session, which has no JVM of its own in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def fit_frame(rows: DataFrame, facts: TableFacts) -> DataFrame:
    """Return `rows` with the table's columns and types, because a transaction writes a frame as it is.

    Columns that the table computes stay absent when the rows do not have them; other absent ones become NULL.
    """
    filled = filled_columns(facts)
    wanted = [column for column in facts.columns if column["name"] in rows.columns or column["name"] not in filled]
    schema = StructType.fromJson({"type": "struct", "fields": wanted}).toNullable()
    return rows.to(StructType([StructField(field.name, field.dataType) for field in schema]))


def append_with_spark(
    spark: SparkSession,
    base: Snapshot,
    rows: DataFrame,
    *,
    positions: Mapping[str, int],
    planned_from: Mapping[str, int | None] | None,
    note: CommitNote,
    lock: TableLock,
) -> LoggedCommit:
    """Append `rows` by Delta's own rules and return the commit."""
    write = _append_over_connect if is_connect(spark) else _append_in_transaction
    with translated(base.table, positions):
        write(spark, base, rows, positions=positions, planned_from=planned_from, note=note, lock=lock)
    commit = find_commit(base.location, base.version, note.commit_id)
    if commit is None:
        raise CommitLostError(base.table, note.commit_id)
    return commit


def _append_in_transaction(
    spark: SparkSession,
    base: Snapshot,
    rows: DataFrame,
    *,
    positions: Mapping[str, int],
    planned_from: Mapping[str, int | None] | None,
    note: CommitNote,
    lock: TableLock,
) -> None:
    transaction = _delta_log(spark, base.location).startTransaction()
    started_from = Snapshot(base.table, base.location, version=transaction.readVersion())
    check_positions(started_from, positions, planned_from)
    for app_id in positions:
        # Reading the position inside the transaction makes a concurrent change of it a conflict.
        transaction.txnVersion(app_id)
    written = transaction.writeFiles(fit_frame(rows, started_from.facts)._jdf)  # noqa: SLF001  as Delta takes it
    actions = written.concat(_set_transactions(spark, positions))
    with lock.exclusive():
        transaction.commit(actions, _write_operation(spark, note))


def set_positions_with_spark(
    spark: SparkSession, base: Snapshot, positions: Mapping[str, int], note: CommitNote
) -> None:
    """Commit positions, lower ones too, and no rows; the caller holds the lock exclusively."""
    if is_connect(spark):
        raise OnePositionError(base.table, len(positions))
    transaction = _delta_log(spark, base.location).startTransaction()
    for app_id in positions:
        transaction.txnVersion(app_id)
    transaction.commit(_set_transactions(spark, positions), _write_operation(spark, note))


def _append_over_connect(
    spark: SparkSession,  # noqa: ARG001  the frame knows its session
    base: Snapshot,
    rows: DataFrame,
    *,
    positions: Mapping[str, int],
    planned_from: Mapping[str, int | None] | None,
    note: CommitNote,
    lock: TableLock,
) -> None:
    if len(positions) > 1:
        raise OnePositionError(base.table, len(positions))
    writer = fit_frame(rows, base.facts).write.format("delta").mode("append").option("userMetadata", note.to_json())
    for app_id, version in positions.items():
        writer = writer.option("txnAppId", app_id).option("txnVersion", version)
    with lock.exclusive():
        # Spark skips a position that it has without a word, so it is looked at here, where nobody can move it.
        check_positions(Snapshot(base.table, base.location), positions, planned_from)
        writer.save(base.location.spark_uri)


def overwrite_with_spark(
    location: TableLocation,
    rows: DataFrame,
    *,
    partition_by: tuple[str, ...],
    replace_schema: bool,
    note: CommitNote,
    position: tuple[str, int] | None = None,
) -> None:
    """Replace all rows, and the columns with their rules if `replace_schema`; the caller holds the lock exclusively.

    Spark skips a position that the table has already without a word, so the caller makes sure that it is a new one.
    """
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", str(replace_schema).lower())
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    if position:
        writer = writer.option("txnAppId", position[0]).option("txnVersion", position[1])
    writer.option("userMetadata", note.to_json()).save(location.spark_uri)


def run_with_note(
    spark: SparkSession, note: CommitNote, action: Callable[[], Any], *, conf: Mapping[str, str] | None = None
) -> Any:
    """Run SQL that commits, with the platform's note in its commit; the caller holds the lock exclusively."""
    settings = {"spark.databricks.delta.commitInfo.userMetadata": note.to_json(), **(conf or {})}
    with _STATEMENTS:
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            return action()
        finally:
            for key in settings:
                spark.conf.unset(key)


def _delta_log(spark: SparkSession, location: TableLocation) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001  the only door to Delta's transaction
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location.spark_uri)  # noqa: SLF001


def _set_transactions(spark: SparkSession, positions: Mapping[str, int]) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001
    actions = jvm.java.util.ArrayList()
    for app_id, version in positions.items():
        now = jvm.scala.Some(jvm.java.lang.System.currentTimeMillis())
        actions.add(jvm.org.apache.spark.sql.delta.actions.SetTransaction(app_id, version, now))
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()


def _write_operation(spark: SparkSession, note: CommitNote) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001
    nothing = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    append = jvm.org.apache.spark.sql.SaveMode.Append
    options = [nothing] * _FURTHER_WRITE_OPTIONS
    return jvm.org.apache.spark.sql.delta.DeltaOperations.Write(
        append, nothing, nothing, jvm.scala.Some(note.to_json()), *options
    )


@contextlib.contextmanager
def translated(table: str, positions: Mapping[str, int] | None = None) -> Iterator[None]:
    """Turn Delta's exceptions into the platform's: conflicts are transient, refusals are not."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        java = getattr(error, "java_exception", None)
        text = str(java.toString() if java is not None else error).split(": ", 1)[-1]
        if CarriedError.__name__ in str(error):
            raise task_error(str(error)) from error
        raise _meaning(table, text, list(positions or ())) from error


def _meaning(table: str, text: str, app_ids: list[str]) -> PlatformError:
    if "CONCURRENT_TRANSACTION" in text or "ConcurrentTransaction" in text:
        return PositionConflictError(table, app_ids)
    if any(name in text for name in _CONFLICTS):
        return CommitConflictError(table, text.splitlines()[0])
    if any(name in text for name in _TOO_NEW):
        return NewerProtocolError(table, " ".join(text.split())[:_LONGEST_CAUSE])
    return CommitRefusedError(table, " ".join(text.split())[:_LONGEST_CAUSE])


def require_identifier(column: str, columns: Sequence[str]) -> str:
    """Return `column` quoted for SQL, refusing one that the table does not have."""
    if column not in columns:
        raise InvalidValueError("column", column, f"one of {', '.join(columns)}")
    return "`" + column.replace("`", "``") + "`"


def sql_name(location: TableLocation) -> str:
    """Return the table's name in Spark SQL."""
    return f"delta.`{location.spark_uri.replace('`', '``')}`"


def merge_statement(
    table: str,
    source: str,
    columns: Sequence[str],
    quoted_keys: Sequence[str],
    delete_when: str | None = None,
    *,
    update_when: str | None = None,
    insert_when: str | None = None,
) -> str:
    """Return the SQL that updates matches and inserts the others; columns that the rows lack are left to Delta."""
    quoted = [require_identifier(column, columns) for column in columns]
    condition = " AND ".join(f"target.{key} <=> source.{key}" for key in quoted_keys)
    deletion = f" WHEN MATCHED AND ({delete_when}) THEN DELETE" if delete_when else ""
    newer, wanted = (f" AND ({when})" if when else "" for when in (update_when, insert_when))
    # Names are quoted above; the conditions are the caller's own SQL.
    return (
        f"MERGE INTO {table} AS target USING {source} AS source ON {condition}{deletion}"  # noqa: S608
        f" WHEN MATCHED{newer} THEN UPDATE SET {', '.join(f'target.{column} = source.{column}' for column in quoted)}"
        f" WHEN NOT MATCHED{wanted} THEN INSERT ({', '.join(quoted)})"
        f" VALUES ({', '.join(f'source.{column}' for column in quoted)})"
    )
