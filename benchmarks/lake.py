"""Arrow writer against Spark's Delta writer: the same rows, the same session, the same tasks, taking turns."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measure, Options, measure
from dw_platform.lake.lake import Lake
from dw_platform.lake.rows import ArrowTasks, Rows, as_dataframe
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings, SparkSettings
from dw_platform.store import MemoryStore

NAME = "lake"
DESCRIPTION = "writing 2 M rows into Delta: the Arrow writer against Spark's Delta writer"

ROWS, QUICK_ROWS = 2_000_000, 20_000
ROUNDS, QUICK_ROUNDS = 5, 1
TASKS = 4
BATCH_ROWS = 65_536

# About 100 bytes a row: three numbers, two times, two short words, one text of 48 characters.
_QUERY = """
    SELECT id, id * 7 % 100003 AS customer_id, CAST(id % 90 AS INT) AS quantity,
           id * 0.25D AS price, CAST(id % 100000 AS DECIMAL(12,2)) AS amount,
           TIMESTAMP_MICROS(1700000000000000 + id * 1000) AS ordered_at,
           element_at(array('DE','FR','US','GB'), CAST(id % 4 + 1 AS INT)) AS country,
           element_at(array('paid','sent','back'), CAST(id % 3 + 1 AS INT)) AS status,
           substr(sha2(CAST(id AS STRING), 256), 1, 48) AS note
"""


def run(options: Options) -> dict[str, Any]:
    """Measure both writers on rows that tasks read from Arrow files, and on rows that Spark computes."""
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    repeats = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    folder = options.directory or Path()
    settings = LakeSettings(root=str(folder / "lake"))
    provider = SparkProvider(SparkSettings(app_name="bench", scratch=folder / "spark"), settings)
    lake = Lake(settings, store=MemoryStore(), spark=provider)
    try:
        files = write_sources(folder / "sources", rows)
        tasks = ArrowTasks(pa.ipc.open_file(files[0]).schema, [str(path) for path in files], read_source)
        provider.get().range(0, rows, 1, TASKS).createOrReplaceTempView("numbers")
        computed = provider.get().sql(f"{_QUERY} FROM numbers")
        measures = [
            *measure(_writers(lake, "tasks", tasks, rows), repeats=repeats, units=rows, unit="rows/s"),
            *measure(_writers(lake, "computed", computed, rows), repeats=repeats, units=rows, unit="rows/s"),
        ]
        checks = {"equal rows, read by Spark": _equal_by_spark(lake), "equal rows, read by deltalake": _equal(lake)}
    finally:
        provider.stop()
    return {
        "rows": rows,
        "durability": "arrow writer: files and folders fsynced before the commit; Spark's local writer: not fsynced",
        "measures": measures,
        "checks": checks,
    }


def write_sources(folder: Path, rows: int) -> list[Path]:
    """Write the rows as Arrow files, one for each task."""
    folder.mkdir()
    paths = []
    for task in range(TASKS):
        first, last = rows * task // TASKS, rows * (task + 1) // TASKS
        paths.append(folder / f"{task}.arrow")
        with pa.OSFile(str(paths[-1]), "wb") as sink:
            batches = [_batch(start, min(start + BATCH_ROWS, last)) for start in range(first, last, BATCH_ROWS)]
            with pa.ipc.new_file(sink, batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
    return paths


def read_source(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one file; runs inside a Spark task."""
    with pa.memory_map(path) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _batch(first: int, last: int) -> pa.RecordBatch:
    ids = np.arange(first, last)
    random = np.random.default_rng(first)
    text = random.integers(97, 123, (last - first, 48), dtype=np.uint8).tobytes().decode()
    columns = {
        "id": pa.array(ids),
        "customer_id": pa.array(ids * 7 % 100_003),
        "quantity": pa.array((ids % 90).astype(np.int32)),
        "price": pa.array(ids * 0.25),
        "amount": pa.array(ids % 100_000).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
        "ordered_at": pa.array(1_700_000_000_000_000 + ids * 1_000).cast(pa.timestamp("us", "UTC")),
        "country": pa.array(np.array(["DE", "FR", "US", "GB"])[ids % 4], pa.string()),
        "status": pa.array(np.array(["paid", "sent", "back"])[ids % 3], pa.string()),
        "note": pa.array([text[start : start + 48] for start in range(0, len(text), 48)]),
    }
    return pa.RecordBatch.from_pydict(columns)


def _writers(lake: Lake, source: str, rows: Rows, count: int) -> list[Measure]:
    spark = lake.spark.get()

    def by_arrow() -> None:
        table = lake.table(f"{source}.arrow")
        shutil.rmtree(table.location.uri, ignore_errors=True)
        report = table.append(rows)
        assert (report.rows, report.engine) == (count, "arrow")

    def by_spark() -> None:
        place = lake.location(f"{source}.spark").uri
        shutil.rmtree(place, ignore_errors=True)
        as_dataframe(rows, spark).write.format("delta").save(place)

    told = {"tasks": "rows that tasks read", "computed": "rows that the JVM computes"}[source]
    peer = f"{told}: Spark's Delta writer"
    return [Measure(name=peer, run=by_spark), Measure(name=f"{told}: Arrow writer", run=by_arrow, peer=peer)]


def _equal_by_spark(lake: Lake) -> bool:
    answers: list[Any] = []
    for source in ("tasks", "computed"):
        for writer in ("arrow", "spark"):
            query = f"SELECT count(*) AS n, bit_xor(xxhash64(*)) AS x, sum(id) AS s FROM {{{source}.{writer}}}"
            answers.append(lake.query(query).collect())
    return bool(answers[0] == answers[1] and answers[2] == answers[3])


def _equal(lake: Lake) -> bool:
    def sorted_rows(name: str) -> pa.Table:
        return lake.table(name).snapshot().read_arrow().sort_by("id")

    return all(
        sorted_rows(f"{source}.arrow").equals(sorted_rows(f"{source}.spark")) for source in ("tasks", "computed")
    )
