"""Arrow commits from several processes beside Spark's appends, DELETE and OPTIMIZE on one table.

Every process appends rows with its own position and notes which commits were acknowledged. At the end the table must
hold exactly the acknowledged rows, read by both engines. Without the lock (`--no-lock`) the same load shows what
the lock is for; a run that loses nothing then proves nothing, because losses are rare.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dw_platform.lake.lock import TableLock
    from dw_platform.lake.session import SparkProvider
    from dw_platform.lake.table import LakeTable

NAME = "lake_stress"
DESCRIPTION = "commits from several processes beside Spark: acknowledged against found rows, latency of a commit"

_COMMITS, _QUICK_COMMITS, _PROCESSES, _ROWS = 2_000, 40, 4, 10
_ARROW_COMMITS_A_ROUND = 20
_SCHEMA = pa.schema([("writer", pa.string()), ("number", pa.int64())])


class NoLock:
    """What the stress holds when it shows what happens without the platform's lock."""

    def shared(self, timeout_s: float = 0) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        return contextlib.nullcontext()

    def exclusive(self, timeout_s: float = 0) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        return contextlib.nullcontext()


def open_table(root: str, *, lock: bool) -> "tuple[LakeTable, TableLock, SparkProvider]":
    """Return the table, the lock that everybody takes, or takes not, and Spark."""
    from dw_platform.lake.lake import Lake
    from dw_platform.lake.lock import table_lock
    from dw_platform.lake.session import SparkProvider
    from dw_platform.lake.settings import LakeSettings, SparkSettings
    from dw_platform.lake.table import LakeTable
    from dw_platform.store import MemoryStore

    settings, store = LakeSettings(root=root), MemoryStore()
    provider = SparkProvider(SparkSettings(app_name="bench", scratch=Path(root) / "spark"), settings)
    location = Lake(settings, store=store, spark=provider).location("stress")
    guard: TableLock = table_lock(location, store, owner="bench") if lock else NoLock()
    return LakeTable("stress", location, lock=guard, spark=provider), guard, provider


def run(options: Options) -> dict[str, Any]:
    """Measure; raises if an acknowledged row is missing or there twice, unless the lock was left out."""
    assert options.directory is not None
    processes = options.processes or _PROCESSES
    commits = -(-(options.commits or (_QUICK_COMMITS if options.quick else _COMMITS)) // processes)
    root = str(options.directory / "lake")
    table, guard, provider = open_table(root, lock=options.lock)
    table.create(_SCHEMA)
    side = SparkSide(provider.get(), table, guard)
    side.round()  # Spark's first statements take many seconds; they are not what is measured
    started = time.perf_counter()
    with _writers(root, processes, commits, lock=options.lock) as writers:
        while any(writer.poll() is None for writer in writers):
            if side.is_due():
                side.round()
            time.sleep(0.05)
    seconds = time.perf_counter() - started
    answers = [json.loads(Path(root, f"w{number}.json").read_text()) for number in range(processes)]
    checks = _compare(table, answers, side)
    provider.stop()
    if options.lock and checks["lost"] + checks["doubled"] + checks["unexpected"]:
        raise AssertionError(f"acknowledged and found rows differ: {checks}")
    return {"measures": _figures(answers, seconds), "checks": checks, "durability": {"arrow commits": "files fsynced"}}


class SparkSide:
    """Spark's part of the load; remembers which of its rows must be there."""

    def __init__(self, spark: "SparkSession", table: "LakeTable", lock: "TableLock") -> None:
        self._spark, self._table, self._lock = spark, table, lock
        self._name = f"delta.`{table.location.spark_uri}`"
        self._next = self._seen = 0
        self.present: set[int] = set()
        self.commits = self.conflicts = 0

    def is_due(self) -> bool:
        """Whether enough Arrow commits came since the last round; else Spark alone would fill the time."""
        return self._table.snapshot().version >= self._seen + _ARROW_COMMITS_A_ROUND

    def round(self) -> None:
        """Append with Spark's own writer, delete one of those rows, and now and then join files."""
        first, self._next = self._next, self._next + 10
        if self._run(f"INSERT INTO {self._name} SELECT 'spark', id + {first} FROM range(10)"):
            self.present.update(range(first, first + 10))
        if self._run(f"DELETE FROM {self._name} WHERE writer = 'spark' AND number = {first}"):
            self.present.discard(first)
        if self._next % 50 == 0:
            self._run(f"OPTIMIZE {self._name}")
        self._seen = self._table.snapshot().version

    def _run(self, statement: str) -> bool:
        from dw_platform.lake.commit import CommitConflictError, CommitNote
        from dw_platform.lake.features import Engine
        from dw_platform.lake.spark_writer import run_with_note, translated

        note = CommitNote(engine=Engine.SPARK, reason="stress")
        try:
            with translated(self._table.name), self._lock.exclusive():
                run_with_note(self._spark, note, lambda: self._spark.sql(statement).collect())
        except CommitConflictError:
            self.conflicts += 1
            return False
        self.commits += 1
        return True


@contextlib.contextmanager
def _writers(root: str, processes: int, commits: int, *, lock: bool) -> "Iterator[list[subprocess.Popen[bytes]]]":
    command = [sys.executable, "-m", "benchmarks.lake_stress", root, str(commits), str(int(lock))]
    running = [subprocess.Popen([*command, f"w{number}"]) for number in range(processes)]
    try:
        yield running
        if any(writer.wait() for writer in running):
            raise AssertionError("a writer process failed; its own message is above")
    finally:
        for writer in running:
            writer.kill()
            writer.wait()


def write(root: str, commits: int, writer: str, *, lock: bool) -> None:
    """Be one of the writer processes: append, and note every acknowledged commit with its latency."""
    from dw_platform.foundation import TransientError

    table, _, _ = open_table(root, lock=lock)
    acknowledged, latencies, conflicts = 0, [], Counter[str]()
    parent = os.getppid()
    while acknowledged < commits and os.getppid() == parent:  # a parent that was killed leaves nobody to answer
        first = acknowledged * _ROWS
        rows = pa.table({"writer": [writer] * _ROWS, "number": list(range(first, first + _ROWS))}, schema=_SCHEMA)
        started = time.perf_counter()
        try:
            table.append(rows, positions={writer: acknowledged + 1}, snapshot=table.snapshot())
        except TransientError as error:
            conflicts[type(error).__name__] += 1
            continue
        latencies.append(time.perf_counter() - started)
        acknowledged += 1
    answer = {"writer": writer, "acknowledged": acknowledged, "latencies": latencies, "conflicts": conflicts}
    Path(root, f"{writer}.json").write_text(json.dumps(answer))


def _compare(table: "LakeTable", answers: list[dict[str, Any]], side: SparkSide) -> dict[str, Any]:
    expected = {(answer["writer"], n) for answer in answers for n in range(answer["acknowledged"] * _ROWS)}
    expected |= {("spark", number) for number in side.present}
    by_spark = [(row.writer, row.number) for row in table.read().collect()]
    rows = table.snapshot().read_arrow()
    by_deltalake = list(zip(rows["writer"].to_pylist(), rows["number"].to_pylist(), strict=True))
    return {
        "acknowledged rows": len(expected),
        "found rows by Spark": len(by_spark),
        "found rows by deltalake": len(by_deltalake),
        "lost": len(expected - set(by_spark)),
        "doubled": len(by_spark) - len(set(by_spark)),
        "unexpected": len(set(by_spark) - expected),
        "engines agree": sorted(by_spark) == sorted(by_deltalake),
        "arrow commits": sum(answer["acknowledged"] for answer in answers),
        "arrow conflicts, planned again": dict(sum((Counter(answer["conflicts"]) for answer in answers), Counter())),
        "spark commits": side.commits,
        "spark conflicts": side.conflicts,
        "writer processes": len(answers),
    }


def _figures(answers: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    latencies = np.array([latency for answer in answers for latency in answer["latencies"]]) * 1000
    figures = [
        {"name": f"commit latency, {label}", "unit": "ms", "median": round(float(value), 1)}
        for label, value in (
            ("median", np.percentile(latencies, 50)),
            ("95 %", np.percentile(latencies, 95)),
            ("99 %", np.percentile(latencies, 99)),
            ("longest", latencies.max()),
        )
    ]
    return [{"name": "arrow commits", "unit": "commits/s", "median": round(len(latencies) / seconds, 1)}, *figures]


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), sys.argv[4], lock=sys.argv[3] == "1")
