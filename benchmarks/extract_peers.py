"""How others copy a table of PostgreSQL into Delta: Spark's JDBC source, ADBC with deltalake, and dlt with connectorx.

None of them can go on after it was killed: each begins again.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.extract_postgres import Database
from dw_platform.lake.jars import Coordinate

JDBC_VERSION = "42.7.8"
JDBC_JARS = (Coordinate("org.postgresql", "postgresql", JDBC_VERSION),)
# The driver's own default is 16 MiB; it reads a tenth faster with this.
_BATCH_BYTES = 1024 * 1024
_COLUMNS = "id, customer, placed_at, shipped_on, amount, discount, paid, reference::text, details, note, updated_at"


def copy_by_jdbc(spark: SparkSession, database: Database, rows: int, place: str) -> None:
    """Two partitions of equal strides, which suits a key without gaps, into Spark's Delta sink."""
    options = {
        "url": database.jdbc,
        "driver": "org.postgresql.Driver",
        "dbtable": "orders",
        "partitionColumn": "id",
        "lowerBound": "1",
        "upperBound": str(rows),
        "numPartitions": "2",
        "fetchsize": "10000",
    }
    spark.read.format("jdbc").options(**options).load().write.format("delta").save(place)


def copy_by_adbc(database: Database, place: str) -> None:
    """One statement in one process, streamed into deltalake; numeric, uuid and json stay texts, as they arrive."""
    from adbc_driver_postgresql import dbapi
    from deltalake import write_deltalake

    with dbapi.connect(database.url) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": _BATCH_BYTES})
        names = (
            "id, customer, placed_at, shipped_on, amount, discount, paid, reference::text, details, note, updated_at"
        )
        cursor.execute(f"SELECT {names} FROM orders")
        reader = cursor.fetch_record_batch()
        schema = pa.schema([(field.name, _plain(field.type)) for field in reader.schema])
        write_deltalake(place, pa.RecordBatchReader.from_batches(schema, _unwrapped(reader, schema)))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _unwrapped(batches: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [each.storage if isinstance(each, pa.ExtensionArray) else each for each in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def copy_by_dlt(database: Database, folder: Path) -> None:
    """Copy by connectorx in a stream into `folder`/lake/bench/orders, with the pipeline's state beside it."""
    # Warnings about hints that differ would fill the screen; the rows are compared at the end.
    os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"}
    import dlt
    from dlt.sources.sql_database import sql_table

    destination: Any = dlt.destinations.filesystem(bucket_url=(folder / "lake").as_uri())
    pipeline = dlt.pipeline(
        "bench", pipelines_dir=str(folder / "pipelines"), destination=destination, dataset_name="bench"
    )
    rows = sql_table(
        database.url.replace("postgresql:", "postgresql+psycopg:"),
        table="orders",
        backend="connectorx",
        backend_kwargs={"conn": database.url, "return_type": "arrow_stream"},
    )
    pipeline.run(rows, table_format="delta", write_disposition="replace")
