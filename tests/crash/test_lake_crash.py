"""Writers that die, and writers that stand beside Spark: an acknowledged row is there exactly once, always."""

import contextlib
import random
import subprocess
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dw_platform.lake.commit import CommitConflictError
from dw_platform.lake.lake import Lake
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings
from dw_platform.lake.table import LakeTable
from dw_platform.store import MemoryStore
from tests.lake.workers import answer, started, tell

pytestmark = pytest.mark.crash

SCHEMA = pa.schema([("writer", pa.string()), ("number", pa.int64())])
ROWS_A_COMMIT = 20


@pytest.fixture
def lake(tmp_path: Path, spark_provider: SparkProvider) -> Lake:
    return Lake(LakeSettings(root=str(tmp_path / "lake")), store=MemoryStore(), spark=spark_provider)


def numbers_of(table: LakeTable, writer: str) -> list[int]:
    rows = table.snapshot().read_arrow().to_pylist()
    return sorted(row["number"] for row in rows if row["writer"] == writer)


def acknowledged(process: "subprocess.Popen[str]") -> int:
    """Read what the writer says until it ends; the last whole line counts."""
    last = 0
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("acknowledged") and line.endswith("\n"):
            last = int(line.split()[1])
    return last


def test_a_writer_killed_at_any_moment_leaves_every_acknowledged_row_exactly_once(lake: Lake) -> None:
    table = lake.table("t")
    table.create(SCHEMA)
    rounds, promised = 5, 0
    chance = random.Random(7)
    for _ in range(rounds):
        with started("append", lake.settings.root, "t", "w", 100_000, ROWS_A_COMMIT) as writer:
            tell(writer)
            promised = int(answer(writer).split()[1])
            killer = threading.Timer(chance.uniform(0.0, 0.15), writer.kill)
            killer.start()
            promised = max(promised, acknowledged(writer))
            killer.join()
        done = table.snapshot().position("w") or 0
        # The commit under way when it died may stand although nobody heard of it; one more at most.
        assert promised <= done <= promised + 1
        assert numbers_of(table, "w") == list(range(done * ROWS_A_COMMIT))
        assert table.snapshot().row_count == done * ROWS_A_COMMIT
        promised = done
    assert promised > rounds
    referenced = {Path(uri).name for uri in table.snapshot().delta.file_uris()}
    assert referenced <= {path.name for path in table.location.local.glob("*.parquet")}


class SparkSide:
    """Spark's part of the stress; remembers which of its rows must be there."""

    def __init__(self, spark: SparkSession, table: LakeTable) -> None:
        self._spark, self._table = spark, table
        self._name = f"delta.`{table.location.uri}`"
        self._next = self._seen = 0
        self.present: set[int] = set()
        self.statements = 0

    def is_due(self) -> bool:
        """Whether some Arrow commits came since the last round; else Spark alone would fill the time."""
        return self._table.snapshot().version >= self._seen + 8

    def round(self) -> None:
        """Append with Spark's own writer, delete one of those rows, join files with Spark."""
        first, self._next = self._next, self._next + 10
        if self._run(f"INSERT INTO {self._name} SELECT 'spark', id + {first} FROM range(10)"):
            self.present.update(range(first, first + 10))
        if self._run(f"DELETE FROM {self._name} WHERE writer = 'spark' AND number = {first}"):
            self.present.discard(first)
        self._run(f"OPTIMIZE {self._name}")
        self._seen = self._table.snapshot().version

    def _run(self, statement: str) -> bool:
        try:
            self._table._spark_statement(self._spark, self._table.snapshot(), statement, "stress", 0)
        except CommitConflictError:
            return False
        self.statements += 1
        return True


@pytest.mark.spark
def test_arrow_commits_of_three_processes_beside_spark_lose_and_double_nothing(spark: SparkSession, lake: Lake) -> None:
    table = lake.table("t")
    table.create(SCHEMA)
    commits, writers = 25, ["a", "b", "c"]
    side = SparkSide(spark, table)
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(started("append", lake.settings.root, "t", writer, commits, ROWS_A_COMMIT))
            for writer in writers
        ]
        for process in processes:
            tell(process)
        readers = [threading.Thread(target=acknowledged, args=[process]) for process in processes]
        for reader in readers:
            reader.start()
        while any(reader.is_alive() for reader in readers):
            if side.is_due():
                side.round()
            time.sleep(0.05)
        for reader in readers:
            reader.join()
    expected = [(writer, number) for writer in writers for number in range(commits * ROWS_A_COMMIT)]
    expected += [("spark", number) for number in sorted(side.present)]
    assert side.statements > 3
    assert [table.snapshot().position(writer) for writer in writers] == [commits] * len(writers)
    assert sorted((row.writer, row.number) for row in table.read().collect()) == expected
    rows = table.snapshot().read_arrow()
    assert sorted(zip(rows["writer"].to_pylist(), rows["number"].to_pylist(), strict=True)) == expected
