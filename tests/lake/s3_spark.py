"""A program for tests: Spark beside the Arrow writer on S3, in a process whose JVM has the jars for it.

Usage: python -m tests.lake.s3_spark ENDPOINT STORE SCRATCH; prints one JSON document.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa

from dw_platform.lake.lake import Lake
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings, S3Settings, SparkSettings
from dw_platform.store import open_store


def main(endpoint: str, store: str, scratch: str) -> None:
    settings = LakeSettings(
        root="s3://bucket/lake", s3=S3Settings(endpoint=endpoint, access_key="key", secret_key="secret")
    )
    provider = SparkProvider(SparkSettings(master="local[2]", scratch=Path(scratch)), settings)
    table = Lake(settings, store=open_store(store), spark=provider).table("shop.orders")
    spark = provider.get()
    from_tasks = table.append(spark.range(3).selectExpr("id + 10 AS id", "'spark' AS v"))
    name = f"delta.`{table.location.spark_uri}`"
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (id > 0)")
    by_spark = table.append(pa.table({"id": [20], "v": ["checked"]}), positions={"a": 1, "b": 2})
    deleted = table.delete("id = 1")
    merged = table.merge(pa.table({"id": [2], "v": ["merged"]}), keys=["id"])
    rows = sorted((row.id, row.v) for row in table.read().collect())
    found = {
        "engines": [report.engine for report in (from_tasks, by_spark, deleted, merged)],
        "changed": [report.rows for report in (from_tasks, by_spark, deleted, merged)],
        "rows": rows,
    }
    provider.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
