import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.extract_memory import peak_mb
from tests.lake.workers import REPOSITORY


def test_memory_is_that_of_all_python_processes_together() -> None:
    hold = "import time; held = b'x' * 50_000_000; time.sleep(1)"
    alone = peak_mb([sys.executable, "-c", hold])
    also = f"import subprocess, sys; held = b'x' * 50_000_000; subprocess.run([sys.executable, '-c', {hold!r}])"
    assert alone > 50
    assert peak_mb([sys.executable, "-c", also]) > alone + 45


# In a process of its own, because a benchmark stops the JVM that it started, and the tests share one.
@pytest.mark.spark
@pytest.mark.server
@pytest.mark.timeout(600)
def test_a_quick_run_compares_equal_tables_with_all_peers(tmp_path: Path) -> None:
    pytest.importorskip("dlt", reason="the peers of the extraction come with the extra `bench`")
    output = tmp_path / "result.json"
    sizes = ["--quick", "--rows", "20000", "--directory", tmp_path, "--output", output]
    arguments = [sys.executable, "-m", "benchmarks", "extract", *map(str, sizes)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(output.read_text())
    assert result["checks"]["equal rows in all copies"] is True
    assert result["checks"]["equal rows after all merges"] is True
    assert all(row["median"] > 0 and row["unit"] for row in result["measures"])
    assert {"postgresql", "postgresql-jdbc", "adbc-driver-postgresql", "connectorx", "dlt"} == set(result["versions"])
