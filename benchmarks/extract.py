"""A table of PostgreSQL into Delta: the platform's extraction beside Spark's JDBC source, ADBC with deltalake, and dlt.

All read the same table of a server that this starts, over the loopback address, into a new table each time; server,
readers and writers share the machine. Spark is warm: opening it is not measured. At the end all copies must hold the
same rows. Then what follows a copy: changes by key against Spark's MERGE, and a comparison with the unchanged source
against reading it again.

Memory is that of all Python processes of `dw extract` together, in a process of its own; the JVM is not among them.
"""

import contextlib
import shutil
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.extract_changes import MERGE, OURS, TABLES, VECTORS, Changing
from benchmarks.extract_memory import peak_mb
from benchmarks.extract_peers import JDBC_JARS, JDBC_VERSION, copy_by_adbc, copy_by_dlt, copy_by_jdbc
from benchmarks.extract_postgres import Database, running_database
from benchmarks.harness import Measure, Options, measure
from dw_platform.config import parse_config
from dw_platform.lake.jars import DELTA_JARS, resolve_jars
from dw_platform.lake.java import find_java
from dw_platform.lake.session import SparkProvider
from dw_platform.pipelines import Platform
from dw_platform.pipelines.extract import extract_table, reconcile_table

NAME = "extract"
DESCRIPTION = "2 M rows of PostgreSQL into Delta against Spark JDBC, ADBC and dlt; changes against MERGE; memory"

ROWS, QUICK_ROWS = 2_000_000, 250_000
ROUNDS, QUICK_ROUNDS = 3, 1
MOST_MB = 600

EVERY, ONCE = "extract, committing every 400,000 rows", "extract, one commit at the end"
JDBC, ADBC, DLT = "Spark JDBC, 2 partitions", "ADBC and write_deltalake, one process", "dlt with connectorx"
AGAIN, RECONCILE = "reading it again", "reconcile, nothing changed"
DURABILITY = (
    "the extraction and its upsert fsync every file and folder before the commit that needs it, and positions with it; "
    "Spark's local writer, write_deltalake and dlt fsync nothing. PostgreSQL runs as it comes"
)
# One entry a wish: a table is read only once by each database that the file names.
PLATFORM = """
name: bench
home: home
databases:
  - {{name: every, url: "{url}", tables: [{{source: orders, table: bench.every}}]}}
  - {{name: once, url: "{url}", tables: [{{source: orders, table: bench.once, commit_rows: 1000000000}}]}}
  - {{name: few, url: "{url}", tables: [{{source: few, table: bench.few}}]}}
  - name: live
    url: "{url}"
    tables: [{{source: orders, table: bench.live, mode: incremental, cursor: updated_at}}]
"""
# Types differ: others keep numeric, json and timestamps in their own ways. What they mean has to be the same.
COMPARED = """
    SELECT count(*), sum(id), sum(CAST(amount AS DECIMAL(12,2))), bit_xor(xxhash64(
        CAST(id AS BIGINT), CAST(customer AS INT), placed_at, shipped_on, CAST(amount AS DECIMAL(12,2)), discount, paid,
        CAST(reference AS STRING), get_json_object(details, '$.code'), get_json_object(details, '$.items'), note,
        CAST(updated_at AS TIMESTAMP))) FROM {rows}
"""


def run(options: Options) -> dict[str, Any]:
    """Measure copies, compare them, then measure what follows a copy, and memory."""
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    repeats = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    assert options.directory is not None
    with contextlib.ExitStack() as opened:
        database = opened.enter_context(running_database())
        database.fill("orders", rows)
        platform = opened.enter_context(_BenchPlatform.at(options.directory, database))
        platform.spark.warm()
        copies = measure(_copies(platform, database, rows), repeats=repeats, units=rows, unit="rows/s")
        # Spark refuses dlt's table: its protocol lacks what NOT NULL columns need. Its files are all there is of it.
        copied = [f"delta.`{_place(platform, name)}`" for name in ("every", "once", "jdbc", "adbc")]
        equal = _equal(platform, [*copied, f"parquet.`{_dlt_folder(platform)}/lake/bench/orders`"])
        changing = Changing(platform.lake, "bench.every", options.directory / "changes.parquet")
        changing.make_changes()
        changes = measure(changing.measures(), repeats=repeats, units=changing.rows, unit="changed rows/s")
        merged = _equal(platform, [f"delta.`{platform.lake.location(name).uri}`" for name in TABLES.values()])
        reconciled = measure(_reconciling(platform, rows), repeats=repeats, units=rows, unit="rows/s")
        platform.spark.stop()
        sizes = [QUICK_ROWS, rows] if rows > QUICK_ROWS else [rows]
        memory = [_memory(platform, database, size, table) for size, table in zip(sizes, _sources(sizes), strict=True)]
    measures = [*copies, *changes, *reconciled, *memory]
    return {
        "rows": rows,
        "columns": 11,
        "changed_rows": changing.rows,
        "versions": _versions(database),
        "durability": DURABILITY,
        "measures": measures,
        "checks": {
            "equal rows in all copies": equal,
            "equal rows after all merges": merged,
            **_checks({each["name"]: each for each in measures}),
        },
    }


class _BenchPlatform(Platform):
    """A platform whose Spark also has the driver of PostgreSQL, for the peer."""

    @classmethod
    def at(cls, folder: Path, database: Database) -> "_BenchPlatform":
        text = PLATFORM.format(url=database.url)
        (folder / "platform.yaml").write_text(text)
        platform = cls(parse_config(text, source=folder / "platform.yaml", environ={}))
        java = find_java()
        jars = [*resolve_jars(DELTA_JARS, java), *resolve_jars(JDBC_JARS, java)]
        settings = replace(platform.config.spark_settings, conf={"spark.jars": ",".join(map(str, jars))})
        platform._spark = SparkProvider(settings, platform.config.lake_settings)
        return platform


def _place(platform: Platform, name: str) -> str:
    return str(platform.lake.location(f"bench.{name}").uri)


def _dlt_folder(platform: Platform) -> Path:
    return platform.home / "dlt"


def _copies(platform: Platform, database: Database, rows: int) -> list[Measure]:
    def emptied(name: str) -> None:
        shutil.rmtree(_place(platform, name), ignore_errors=True)

    def ours(name: str) -> None:
        assert extract_table(platform, f"{name}.orders").rows == rows

    def by_jdbc() -> None:
        copy_by_jdbc(platform.spark.get(), database, rows, _place(platform, "jdbc"))

    return [
        Measure(name=JDBC, run=by_jdbc, before=lambda: emptied("jdbc")),
        Measure(name=EVERY, run=lambda: ours("every"), before=lambda: emptied("every"), peer=JDBC),
        Measure(
            name=ADBC, run=lambda: copy_by_adbc(database, _place(platform, "adbc")), before=lambda: emptied("adbc")
        ),
        Measure(name=ONCE, run=lambda: ours("once"), before=lambda: emptied("once")),
        Measure(
            name=DLT,
            run=lambda: copy_by_dlt(database, _dlt_folder(platform)),
            before=lambda: shutil.rmtree(_dlt_folder(platform), ignore_errors=True),
        ),
    ]


def _reconciling(platform: Platform, rows: int) -> list[Measure]:
    extract_table(platform, "live.orders")

    def again() -> None:
        assert extract_table(platform, "live.orders", full=True).rows == rows

    def reconcile() -> None:
        report = reconcile_table(platform, "live.orders")
        assert (report.written, report.deleted) == (0, 0)

    return [Measure(name=AGAIN, run=again), Measure(name=RECONCILE, run=reconcile, peer=AGAIN)]


def _sources(sizes: list[int]) -> list[str]:
    return ["few", "every"][-len(sizes) :]


def _memory(platform: Platform, database: Database, rows: int, name: str) -> dict[str, Any]:
    if name == "few":
        database.fill("few", rows)
    shutil.rmtree(_place(platform, name), ignore_errors=True)
    command = [str(Path(sys.executable).with_name("dw")), "extract", f"{name}.{'few' if name == 'few' else 'orders'}"]
    peak = peak_mb([*command, "--config", str(platform.config.source)])
    return {"name": f"memory of all Python processes, {rows:,} rows", "unit": "MB", "runs": [peak], "median": peak}


def _equal(platform: Platform, tables: list[str]) -> bool:
    spark = platform.spark.get()
    found = [tuple(spark.sql(COMPARED.format(rows=table)).collect()[0]) for table in tables]
    return all(each == found[0] for each in found)


def _checks(measures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    def ratio(one: str, other: str) -> float:
        runs = zip(measures[one]["runs"], measures[other]["runs"], strict=True)
        return float(round(statistics.median(mine / theirs for mine, theirs in runs), 2))

    targets = {
        "against Spark JDBC, at least 2": (ratio(EVERY, JDBC), 2.0),
        "against ADBC and write_deltalake, at least 0.9": (ratio(EVERY, ADBC), 0.9),
        "against dlt with connectorx, at least 2.5": (ratio(EVERY, DLT), 2.5),
        "committing every 400,000 rows against once, at least 0.85": (ratio(EVERY, ONCE), 0.85),
        "upsert against Spark's MERGE, at least 2": (ratio(OURS, MERGE), 2.0),
        "upsert against MERGE with deletion vectors": (ratio(OURS, VECTORS), 0.0),
        "reconcile against reading again, at least 5": (ratio(RECONCILE, AGAIN), 5.0),
    }
    checks: dict[str, Any] = {}
    for told, (found, wanted) in targets.items():
        checks[told] = f"{found} {'reached' if found >= wanted else 'MISSED'}" if wanted else found
    memory = [each["median"] for name, each in measures.items() if name.startswith("memory")]
    return checks | {f"memory at most {MOST_MB} MB": max(memory) <= MOST_MB}


def _versions(database: Database) -> dict[str, str]:
    packages = ("adbc-driver-postgresql", "connectorx", "dlt")
    return {"postgresql": database.version, "postgresql-jdbc": JDBC_VERSION} | {
        name: metadata.version(name) for name in packages
    }
