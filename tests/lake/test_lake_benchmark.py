import json
from pathlib import Path

import pytest

import benchmarks
from benchmarks.harness import Measure, Options, command, measure
from benchmarks.lake import read_source, write_sources


def test_benchmarks_are_found_by_name_with_what_they_measure() -> None:
    assert {"lake", "lake_stress"} <= set(benchmarks.available())
    assert all(description for description in benchmarks.available().values())


def test_measures_take_turns_and_the_first_round_does_not_count() -> None:
    turns: list[str] = []
    pair = [
        Measure(name="a", run=lambda: turns.append("a"), peer="b"),
        Measure(name="b", run=lambda: turns.append("b")),
    ]
    first, second = measure(pair, repeats=2, units=10, unit="rows/s")
    assert turns == ["a", "b"] * 3
    assert (len(first["runs"]), len(first["ratios"]), first["peer"]) == (2, 2, "b")
    assert "ratio" not in second


def test_a_result_says_how_to_measure_it_again() -> None:
    assert command("lake", Options(rows=5, quick=True)) == "dw bench lake --rows 5 --quick"
    assert command("lake_stress", Options(lock=False)) == "dw bench lake_stress --no-lock"


def test_the_source_has_all_rows_of_about_a_hundred_bytes(tmp_path: Path) -> None:
    batches = [batch for path in write_sources(tmp_path / "s", 10_000) for batch in read_source(str(path))]
    assert sum(map(len, batches)) == 10_000
    assert len({batch.schema for batch in batches}) == 1
    assert 80 < sum(batch.nbytes for batch in batches) / 10_000 < 130


# In a process of its own, because a benchmark stops the JVM that it started, and the tests share one. The stress has
# its short form among the crash tests.
@pytest.mark.spark
def test_a_quick_run_gives_a_complete_result(tmp_path: Path) -> None:
    import subprocess
    import sys

    from tests.lake.workers import REPOSITORY

    output = tmp_path / "result.json"
    arguments = [sys.executable, "-m", "benchmarks", "lake", "--quick", "--directory", tmp_path, "--output", output]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(output.read_text())
    assert {"benchmark", "command", "machine", "durability", "measures", "checks", "at"} <= set(result)
    assert {"cores", "memory_gib", "python", "pyspark", "deltalake", "load_before"} <= set(result["machine"])
    assert all(row["median"] > 0 and row["unit"] for row in result["measures"])
    assert "lake" in done.stdout
    assert all(value is True for value in result["checks"].values())
    assert [row["peer"] for row in result["measures"] if "peer" in row] == [
        "rows that tasks read: Spark's Delta writer",
        "rows that the JVM computes: Spark's Delta writer",
    ]
