"""`dw bench` runs whatever the package `benchmarks` offers."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Dw

PACKAGE = """
def available():
    return {"nothing": "how fast nothing is done"}
def run(name, *, quick):
    return {"name": name, "quick": quick, "ratio": 1.5}
def render(result):
    return f"{result['name']}: {result['ratio']} x"
"""


@pytest.fixture
def benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "benchmarks.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "benchmarks", None)  # so that what the test imports goes afterwards
    monkeypatch.delitem(sys.modules, "benchmarks")


@pytest.mark.usefixtures("benchmarks")
def test_benchmarks_are_listed_and_run(dw: Dw, tmp_path: Path) -> None:
    assert "nothing    how fast nothing is done" in dw("bench").out
    assert json.loads(dw("bench", "--json").out) == {"nothing": "how fast nothing is done"}
    assert dw("bench", "nothing", "--output", tmp_path / "r.json").out == "nothing: 1.5 x\n"
    assert json.loads((tmp_path / "r.json").read_text())["ratio"] == 1.5
    assert json.loads(dw("bench", "nothing", "--quick", "--json").out)["quick"] is True


@pytest.mark.usefixtures("benchmarks")
def test_an_unknown_benchmark_names_the_known_ones(dw: Dw) -> None:
    code, _, err = dw("bench", "everything")
    assert code == 2
    assert "Known: nothing." in err


@pytest.mark.usefixtures("benchmarks")
def test_an_output_that_cannot_be_written_is_said_before_measuring(dw: Dw) -> None:
    code, out, err = dw("bench", "nothing", "--output", "/proc/nope/r.json")
    assert (code, out) == (2, "")
    assert "Nothing was measured" in err


def test_an_installation_without_benchmarks_says_so(dw: Dw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    code, _, err = dw("bench")
    assert code == 2
    assert "run this in a clone of the project" in err
