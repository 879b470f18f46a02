"""Spark's own Delta writer, for tables whose features the Arrow writer cannot honour, and for row-level changes.

On a session that this process launched, an append is Delta's own transaction: Spark writes the files with all the
table's rules (constraints, generated columns, column mapping), and only the commit at the end holds the lock,
together with as many source positions as the caller has. Spark Connect offers no transaction, so there the whole
write holds the lock and carries at most one position.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dw_platform.foundation import InvalidValueError, PermanentError, TransientError
from dw_platform.lake.commit import CommitConflictError, CommitNote, CommitRefusedError, PositionConflictError
from dw_platform.lake.location import TableLocation
from dw_platform.lake.lock import TableLock

_CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
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


def append_with_spark(
    spark: SparkSession,
    table: str,
    location: TableLocation,
    rows: DataFrame,
    *,
    positions: Mapping[str, int],
    note: CommitNote,
    lock: TableLock,
) -> int:
    """Append `rows` by Delta's own rules and return the version."""
    if is_connect(spark):
        return _append_over_connect(table, location, rows, positions=positions, note=note, lock=lock)
    with translated(table, positions):
        transaction = _delta_log(spark, location).startTransaction()
        for app_id, proposed in positions.items():
            # Reading the position inside the transaction makes a concurrent change of it a conflict.
            if transaction.txnVersion(app_id) >= proposed:
                raise PositionConflictError(table, [app_id])
        written = transaction.writeFiles(rows._jdf)  # noqa: SLF001  the frame as Delta's transaction takes it
        actions = written.concat(_set_transactions(spark, positions))
        with lock.exclusive():
            return int(transaction.commit(actions, _write_operation(spark, note)))


def overwrite_with_spark(
    location: TableLocation, rows: DataFrame, *, partition_by: tuple[str, ...], note: CommitNote
) -> None:
    """Replace rows and schema; the caller holds the lock exclusively."""
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.option("userMetadata", note.to_json()).save(location.spark_uri)


def run_with_note(spark: SparkSession, note: CommitNote, action: Callable[[], Any]) -> Any:
    """Run SQL that commits, with the platform's note in its commit; the caller holds the lock exclusively."""
    key = "spark.databricks.delta.commitInfo.userMetadata"
    spark.conf.set(key, note.to_json())
    try:
        return action()
    finally:
        spark.conf.unset(key)


def _append_over_connect(
    table: str,
    location: TableLocation,
    rows: DataFrame,
    *,
    positions: Mapping[str, int],
    note: CommitNote,
    lock: TableLock,
) -> int:
    if len(positions) > 1:
        raise OnePositionError(table, len(positions))
    writer = rows.write.format("delta").mode("append").option("userMetadata", note.to_json())
    for app_id, version in positions.items():
        writer = writer.option("txnAppId", app_id).option("txnVersion", version)
    with translated(table, positions), lock.exclusive():
        writer.save(location.spark_uri)
    return -1


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
        raise _meaning(table, text, list(positions or ())) from error


def _meaning(table: str, text: str, app_ids: list[str]) -> TransientError | PermanentError:
    if "CONCURRENT_TRANSACTION" in text or "ConcurrentTransaction" in text:
        return PositionConflictError(table, app_ids)
    if any(name in text for name in _CONFLICTS):
        return CommitConflictError(table, text.splitlines()[0])
    return CommitRefusedError(table, " ".join(text.split())[:_LONGEST_CAUSE])


def require_identifier(column: str, columns: list[str]) -> str:
    """Return `column` quoted for SQL, refusing one that the table does not have."""
    if column not in columns:
        raise InvalidValueError("column", column, f"one of {', '.join(columns)}")
    return "`" + column.replace("`", "``") + "`"
