"""Applying changes to a table by Spark's MERGE, where the table's features need Spark."""

import time
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from dw_platform.lake.changes import Change, UpsertReport
from dw_platform.lake.commit_log import find_commit
from dw_platform.lake.features import Engine
from dw_platform.lake.parquet import DataFile, new_job_id
from dw_platform.lake.spark_writer import merge_statement, require_identifier, run_with_note, sql_name, translated

_DELETED, _ORDER, _RANK = "__dw_deleted", "__dw_order", "__dw_rank"
# Above every number that a row of a file gets: a deletion comes last.
_AFTER_ALL = 2**62
_ROWS_A_FILE = 2**40


def merge_changes(change: Change) -> UpsertReport:
    """Merge the changed rows; a change of the table in between is a CommitConflictError, as everywhere."""
    started, target = time.monotonic(), change.target
    spark, view = target.spark.get(), f"dw_changes_{new_job_id()}"
    _latest(change).createOrReplaceTempView(view)
    note = change.note_of(Engine.SPARK)
    app_id, version = change.position
    conf = {
        "spark.databricks.delta.write.txnAppId": app_id,
        "spark.databricks.delta.write.txnVersion": str(version),
    }
    try:
        with translated(target.table), target.lock.exclusive():
            change.check_newest()
            run_with_note(spark, note, lambda: spark.sql(_statement(change, view)).collect(), conf=conf)
    finally:
        spark.catalog.dropTempView(view)
    commit = find_commit(target.location, change.base.version, note.commit_id)
    target.remove(change.rows.files)
    if commit is None:  # a MERGE that finds nothing to change commits nothing
        return UpsertReport.nothing(change.count)
    inserted, updated, deleted = (
        int(commit.metrics.get(f"numTargetRows{what}", 0)) for what in ("Inserted", "Updated", "Deleted")
    )
    return UpsertReport(
        commit=target.report(change.base, note, started),
        written=inserted + updated,
        replaced=updated + deleted,
        unchanged=max(0, change.count - inserted - updated),
    )


def _latest(change: Change) -> DataFrame:
    """Return the last change of each key: MERGE refuses two, because either could win."""
    rows, spark = change.rows, change.target.spark.get()
    source = change.target.frame(rows.files, rows.schema)
    order = _read_order(rows.files) if rows.files else F.lit(0)
    source = source.withColumn(_ORDER, order).withColumn(_DELETED, F.lit(False))
    if rows.deleted is not None and len(rows.deleted):
        gone = spark.createDataFrame(rows.deleted.select(list(rows.keys)))
        gone = gone.withColumn(_ORDER, F.lit(_AFTER_ALL)).withColumn(_DELETED, F.lit(True))
        source = source.unionByName(gone, allowMissingColumns=True)
    latest = Window.partitionBy(*(_quoted(key) for key in rows.keys)).orderBy(F.col(_ORDER).desc())
    return source.withColumn(_RANK, F.row_number().over(latest)).where(F.col(_RANK) == 1)


def _statement(change: Change, view: str) -> str:
    rows = change.rows
    newer = rows.newest_by and require_identifier(rows.newest_by, rows.schema.names)
    return merge_statement(
        sql_name(change.target.location),
        view,
        rows.schema.names,
        [require_identifier(key, rows.schema.names) for key in rows.keys],
        f"source.{_DELETED}",
        update_when=f"target.{newer} IS NULL OR source.{newer} > target.{newer}" if newer else None,
        insert_when=f"NOT source.{_DELETED}",
    )


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _read_order(files: Sequence[DataFile]) -> Column:
    """Return a number that grows in the order in which rows were read: by file, then by place in it."""
    name = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -1)
    number = F.lit(-1)
    for index, file in enumerate(files):
        number = F.when(name == F.lit(file.path.rpartition("/")[2]), F.lit(index)).otherwise(number)
    return number.cast("long") * F.lit(_ROWS_A_FILE) + F.col("_metadata.row_index")
