"""What every benchmark shares: interleaved repeats, medians, ratios to peers, and where and how it was measured.

Peers run in turn (A, B, A, B, ...), so that a machine that gets slower or faster while it is measured treats all
alike; the first round warms up and does not count. A ratio is the median of the ratios within each round.
"""

import importlib
import io
import os
import pkgutil
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

_VERSIONS = ("pyspark", "delta-spark", "deltalake", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How much to measure; None stands for what the benchmark thinks right."""

    rows: int | None = None
    repeats: int | None = None
    commits: int | None = None
    processes: int | None = None
    directory: Path | None = None
    """Folder for the tables; a temporary one by default. It decides which disk is measured."""

    quick: bool = False
    """Small sizes, for a check that the benchmark runs."""

    lock: bool = True
    """Whether the stress takes the platform's commit lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One thing that is timed; `peer` names the measure that it is compared with."""

    name: str
    run: Callable[[], Any]
    peer: str | None = None
    before: Callable[[], Any] = lambda: None
    """What every run needs first, such as an empty place; not timed."""


def available() -> dict[str, str]:
    """Return the benchmarks by name, each with one sentence on what it measures."""
    return {name: str(module.DESCRIPTION) for name, module in _modules().items()}


def run(name: str, **options: Any) -> dict[str, Any]:
    """Run a benchmark in a folder of its own and return its result, with where and how it was measured."""
    module = _modules()[name]
    chosen = Options(**options)
    with tempfile.TemporaryDirectory(prefix=f"dw-bench-{name}-", dir=chosen.directory) as folder:
        started = datetime.now(UTC)
        load = os.getloadavg()
        result = module.run(replace(chosen, directory=Path(folder)))
    return {
        "benchmark": name,
        "description": module.DESCRIPTION,
        "command": command(name, chosen),
        "quick": chosen.quick,
        "at": started.isoformat(timespec="seconds"),
        "machine": machine() | {"load_before": [round(value, 2) for value in load]},
        **result,
    }


def command(name: str, options: Options) -> str:
    """Return what to type to measure the same again."""
    given = [
        f"--{key} {value}" for key in ("rows", "repeats", "commits", "processes") if (value := getattr(options, key))
    ]
    switches = ["--quick"] * options.quick + ["--no-lock"] * (not options.lock)
    return " ".join(["dw bench", name, *given, *switches])


def measure(measures: Sequence[Measure], *, repeats: int, units: float, unit: str) -> list[dict[str, Any]]:
    """Time every measure `repeats` times in turn, after one round to warm up; `units` is the work of one run."""
    rates: dict[str, list[float]] = {each.name: [] for each in measures}
    for turn in range(repeats + 1):
        for each in measures:
            each.before()
            started = time.perf_counter()
            each.run()
            if turn:
                rates[each.name].append(units / (time.perf_counter() - started))
    return [_summary(each, rates, unit) for each in measures]


def _summary(each: Measure, rates: Mapping[str, list[float]], unit: str) -> dict[str, Any]:
    own = rates[each.name]
    summary: dict[str, Any] = {
        "name": each.name,
        "unit": unit,
        "runs": [round(rate, 1) for rate in own],
        "median": round(statistics.median(own), 1),
    }
    if each.peer:
        ratios = [rate / other for rate, other in zip(own, rates[each.peer], strict=True)]
        summary |= {"peer": each.peer, "ratio": round(statistics.median(ratios), 2)}
        summary["ratios"] = [round(ratio, 2) for ratio in ratios]
    return summary


def machine() -> dict[str, Any]:
    """Return what a reader needs to compare these figures with others."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": sys.version.split()[0],
        **{name: metadata.version(name) for name in _VERSIONS},
    }


def render(result: Mapping[str, Any]) -> str:
    """Return a result as text for a terminal."""
    table = Table(title=f"{result['benchmark']}: {result['description']}")
    for heading in ("measure", "median", "unit", "runs", "ratio to", "ratio"):
        table.add_column(heading)
    for row in result["measures"]:
        runs = f"{min(row['runs']):,.0f} to {max(row['runs']):,.0f}" if row.get("runs") else ""
        table.add_row(
            row["name"], f"{row['median']:,.1f}", row["unit"], runs, row.get("peer", ""), str(row.get("ratio", ""))
        )
    text = io.StringIO()
    console = Console(file=text, width=120)
    console.print(table)
    for key, value in {**result.get("checks", {}), "command": result["command"]}.items():
        console.print(f"{key}: {value}", highlight=False, markup=False)
    return text.getvalue().rstrip()


def _modules() -> dict[str, Any]:
    package = importlib.import_module("benchmarks")
    found = [
        importlib.import_module(f"benchmarks.{entry.name}")
        for entry in pkgutil.iter_modules(package.__path__)
        if entry.name != "__main__"
    ]  # fmt: skip  that one runs instead of offering something
    return {module.NAME: module for module in found if hasattr(module, "NAME")}
