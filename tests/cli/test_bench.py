"""`dw bench` runs whatever the package `benchmarks` offers."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.harness import Options
from tests.cli.conftest import Dw

ROOT = Path(__file__).parents[2]

PACKAGE = """
def available():
    return {"nothing": "how fast nothing is done"}
def run(name, **options):
    return {"name": name, "ratio": 1.5, **{key: str(value) for key, value in options.items() if value is not None}}
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
    assert json.loads(dw("bench", "nothing", "--quick", "--json").out)["quick"] == "True"


@pytest.mark.usefixtures("benchmarks")
def test_every_size_can_be_chosen(dw: Dw, tmp_path: Path) -> None:
    sizes = ["--rows", "5", "--repeats", "2", "--commits", "3", "--processes", "4"]
    chosen = json.loads(dw("bench", "nothing", *sizes, "--no-lock", "--directory", tmp_path, "--json").out)
    assert [chosen[key] for key in ("rows", "repeats", "commits", "processes", "lock")] == ["5", "2", "3", "4", "False"]
    assert chosen["directory"] == str(tmp_path)
    missing = dw("bench", "nothing", "--directory", tmp_path / "nowhere")
    assert (missing.code, missing.out) == (2, "")
    assert "Nothing was measured" in missing.err


def test_the_options_are_those_that_benchmarks_know(dw: Dw) -> None:
    offered = dw("bench", "--help").out
    assert [field.name for field in fields(Options) if f"--{field.name}" not in offered] == []


def test_the_package_itself_runs_the_same_command() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(json.loads(listed.stdout)) >= {"lake", "log", "bus"}


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
