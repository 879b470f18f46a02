"""`dw demo` as a person runs it: real Dagster, real Spark, in a folder that is not the repository."""

import json
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Dw
from tests.cli.processes import DW, started, survivors

pytestmark = [pytest.mark.spark, pytest.mark.crash]

PLATFORM = """
name: small
home: .dw
spark: {{master: "local[2]"}}
lake:
  tables:
    - name: shop.orders
      generate: {{kind: orders, rows: 300, days: 3}}
    - name: shop.revenue
      sql: SELECT country, SUM(amount) AS revenue FROM {{shop.orders}} GROUP BY 1
quality:
  - table: shop.orders
    checks:
      - {{expect: column_values_to_be_between, column: quantity, min_value: 1, max_value: {most}}}
"""


def _platform(folder: Path, *, most: int = 5) -> Path:
    file = folder / "platform.yaml"
    file.write_text(PLATFORM.format(most=most))
    return file


def _runs(folder: Path) -> list[str]:
    with sqlite3.connect(folder / ".dw" / "dagster" / "history" / "runs.db") as runs:
        return [status for (status,) in runs.execute("SELECT status FROM runs ORDER BY id")]


def test_a_new_platform_runs_and_then_a_critical_check_stops_it(dw: Dw, tmp_path: Path) -> None:
    assert dw("init").code == 0
    file = _platform(tmp_path)
    done = subprocess.run(
        [DW, "demo", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {entry["name"]: entry["rows"] for entry in told["tables"]} == {
        "ops.quality_results": 2,
        "shop.orders": 300,
        "shop.revenue": 10,
    }
    assert told["checks"][0]["passed"] == 2
    for line in ("build shop.orders: done", "check shop.orders: done", "build shop.revenue: done"):
        assert f"· {line}\n" in done.stderr

    _platform(tmp_path, most=2)
    failed = subprocess.run([DW, "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "Critical checks that failed: shop.orders: quantity_values_to_be_between." in failed.stderr
    assert f"Its log is {tmp_path / '.dw' / 'logs' / 'demo.log'}" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert _runs(tmp_path) == ["SUCCESS", "FAILURE"]
    out = dw("status", "-c", file).out
    assert "1 passed, failed: quantity_values_to_be_between" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path, number: signal.Signals) -> None:
    _platform(tmp_path)
    with started("demo", folder=tmp_path) as running:
        running.wait_for(lambda: "build shop.orders: running" in running.said)
        running.wait_for(lambda: any(member.name() == "java" for member in running.family()))
        family = running.family()
        running.process.send_signal(number)
        assert running.end() == 130
    assert survivors(family) == []
    assert running.lines[-1] == "error: interrupted\n"


def test_definitions_that_do_not_load_are_explained(dw: Dw, tmp_path: Path) -> None:
    _platform(tmp_path)
    (tmp_path / "definitions.py").write_text("raise RuntimeError('these definitions are mine')\n")
    code, out, err = dw("demo")
    assert (code, out) == (1, "")
    assert "did not start. these definitions are mine. Its log is" in err
