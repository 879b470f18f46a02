"""Rows on their way into a table, in the three forms that callers have them.

* `pa.Table`: small, already in this process; written here, without a JVM.
* `ArrowTasks`: a source that Spark tasks read by themselves; rows never pass through the JVM.
* a Spark `DataFrame`: Spark computes the rows and hands them to the tasks as Arrow batches.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from dw_platform.foundation import PermanentError
from dw_platform.lake.parquet import DataFile, WriteJob, write_batches
from dw_platform.lake.schema import conform, normal_schema, without_rules
from dw_platform.lake.task_errors import carried, packed, task_error, unpacked

_FILES = "path string, size long, rows long, partition_values string, statistics string, modified_ms long, error string"


@dataclass(frozen=True, slots=True)
class ArrowTasks:
    """One Spark task for each payload; `read` runs inside the task and yields Arrow batches of `schema`."""

    schema: pa.Schema
    payloads: Sequence[Any]
    """Picklable; each describes what one task reads."""

    read: Callable[[Any], Iterator[pa.RecordBatch]]


Rows: TypeAlias = DataFrame | pa.Table | ArrowTasks


def rows_schema(rows: Rows) -> pa.Schema:
    """Return the normal Arrow schema of `rows`."""
    if isinstance(rows, pa.Table | ArrowTasks):
        return normal_schema(rows.schema)
    # Spark's own nullability describes an expression, not a promise, so nothing becomes NOT NULL by it.
    arrow = to_arrow_schema(rows.schema, timezone="UTC")
    return normal_schema(pa.schema([field.with_nullable(True) for field in arrow]))


def as_dataframe(rows: Rows, spark: SparkSession) -> DataFrame:
    """Return `rows` for Spark's own writer."""
    if isinstance(rows, pa.Table):
        normal = without_rules(normal_schema(rows.schema))
        batches = [conform(batch, normal) for batch in rows.to_batches()]
        return spark.createDataFrame(pa.Table.from_batches(batches, normal) if batches else normal.empty_table())
    if isinstance(rows, ArrowTasks):
        schema = without_rules(normal_schema(rows.schema))
        return _spread(rows, spark).mapInArrow(_reader(rows, schema), from_arrow_schema(schema))
    return rows


def write_files(rows: Rows, job: WriteJob, spark: Callable[[], SparkSession]) -> list[DataFile]:
    """Write `rows` as files of the table and return them; `spark` is called only where Spark is needed."""
    if isinstance(rows, pa.Table):
        return list(write_batches(job, rows.to_batches()))
    if isinstance(rows, ArrowTasks):
        if not rows.payloads:
            return []
        written = _spread(rows, spark()).mapInArrow(_reading_writer(rows, job), _FILES)
    else:
        written = rows.mapInArrow(_writer(job), _FILES)
    try:
        collected = written.collect()
    except PySparkException as error:
        raise task_error(str(error)) from error
    for row in collected:
        if row.error:
            raise unpacked(row.error)
    return [DataFile(*row[:6]) for row in collected]


def _spread(rows: ArrowTasks, spark: SparkSession) -> DataFrame:
    count = max(1, len(rows.payloads))
    return spark.range(0, count, 1, count)


def _reader(rows: ArrowTasks, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    payloads, read = list(rows.payloads), rows.read

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (value for batch in numbers for value in batch.column(0).to_pylist()):
            if number < len(payloads):
                with carried():
                    yield from (conform(batch, schema) for batch in read(payloads[number]))

    return run


def _reading_writer(rows: ArrowTasks, job: WriteJob) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    payloads, read = list(rows.payloads), rows.read

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = [value for batch in numbers for value in batch.column(0).to_pylist()]
        yield _report(job, (batch for number in mine for batch in read(payloads[number])))

    return run


def _writer(job: WriteJob) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _report(job, batches)

    return run


def _report(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """Write and describe the files; a permanent error travels as a row, because Spark would retry a raised one."""
    files: list[DataFile] = []
    error = None
    with carried():
        try:
            files = list(write_batches(job, batches))
        except PermanentError as refused:
            error = packed(refused)
    columns = [[getattr(file, name) for file in files] for name in DataFile.__slots__]
    if error:
        columns = [[None] for _ in columns]
    kinds = [pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string(), pa.int64()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    errors = pa.array([error] if error else [None] * len(files), pa.string())
    return pa.RecordBatch.from_arrays([*arrays, errors], names=[*DataFile.__slots__, "error"])
