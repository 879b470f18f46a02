"""A program for tests: the lake through a Spark Connect server, in a process without a JVM of its own.

Usage: python -m tests.lake.connect_client REMOTE ROOT; prints one JSON document.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa

from dw_platform.foundation import PlatformError
from dw_platform.lake.lake import Lake
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings, SparkSettings
from dw_platform.lake.table import LakeTable
from dw_platform.store import MemoryStore


def attempt(table: LakeTable, **positions: int) -> str:
    try:
        report = table.append(pa.table({"id": [5], "v": ["once"]}), positions=positions)
    except PlatformError as error:
        return type(error).__name__
    return f"{report.engine} {report.version - table.snapshot().version}"


def main(remote: str, root: str) -> None:
    settings = LakeSettings(root=root)
    provider = SparkProvider(SparkSettings(remote=remote, scratch=Path(root).with_name("scratch_of_client")), settings)
    table = Lake(settings, store=MemoryStore(), spark=provider).table("t")
    spark = provider.get()
    by_arrow = table.append(spark.range(3).selectExpr("id + 1 AS id", "'frame' AS v"))
    spark.sql(f"ALTER TABLE delta.`{table.location.uri}` ADD CONSTRAINT positive CHECK (id > 0)").collect()
    found = {
        "frame": [by_arrow.engine, by_arrow.rows],
        "one position": attempt(table, a=1),
        "the same again": attempt(table, a=1),
        "two positions": attempt(table, a=2, b=2),
        "deleted": table.delete("id = 1").rows,
        "merged": table.merge(pa.table({"id": [2], "v": ["merged"]}), keys=["id"]).rows,
        "rows": sorted((row.id, row.v) for row in table.read().collect()),
        "position": table.snapshot().position("a"),
    }
    provider.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
