"""Your own load against the rules: `python -m benchmarks.control_replay FILE`.

FILE is CSV, JSON (a list, or an object a line), or the folder of a Delta table. A column has times, another how many
records a second came in since the row before; of several rows of one time, one a partition, the rates add up.
"""

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.control import DRAWN, RULES
from benchmarks.control_plot import draw
from dw_platform.foundation import UserError
from dw_platform.scaling.recorded_trace import recorded
from dw_platform.scaling.simulated_stream import StreamSetup
from dw_platform.scaling.simulator import simulate


class UnreadableRecordingError(UserError):
    """The file with the load cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path} holds no load: {reason}. Give CSV, JSON, or the folder of a Delta table.")


def read_rows(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a recording."""
    if (path / "_delta_log").is_dir():
        from deltalake import DeltaTable

        return list(DeltaTable(path).to_pyarrow_table().to_pylist())
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableRecordingError(path, str(error)) from error
    if path.suffix == ".csv":
        return list(csv.DictReader(text.splitlines()))
    try:
        rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    except ValueError as error:
        raise UnreadableRecordingError(path, str(error)) from error
    if not all(isinstance(row, dict) for row in rows):
        raise UnreadableRecordingError(path, "not every row is an object")
    return list(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what each rule makes of the load; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_replay", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--at", default="at", help="column with the times (ISO, or seconds)")
    parser.add_argument("--rate", default="records_per_s", help="column with the records a second")
    parser.add_argument("--partitions", type=int, default=16, help="of the topic")
    parser.add_argument("--capacity", type=float, default=1_000.0, help="records a second that one consumer reads")
    parser.add_argument("--max-consumers", type=int, default=16)
    parser.add_argument("--max-age", type=int, default=30, help="seconds after which a record is late")
    parser.add_argument("--picture", type=Path, help="draw the load into this SVG file")
    chosen = parser.parse_args(arguments)
    try:
        trace = recorded(
            chosen.file.stem,
            read_rows(chosen.file),
            partitions=chosen.partitions,
            at=chosen.at,
            records_per_s=chosen.rate,
        )
        setup = StreamSetup(
            capacity=chosen.capacity,
            max_consumers=chosen.max_consumers,
            first_consumers=1,
            max_age_s=chosen.max_age,
        )
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    every_s = max(1, trace.seconds // 720) if chosen.picture else 0
    outcomes = simulate(trace, RULES, setup, plot_every_s=every_s)
    table = Table("rule", "late, s", "changes", "consumer-seconds", title=f"{trace.name}: {trace.seconds:,} s")
    for outcome in outcomes:
        table.add_row(outcome.rule, *(f"{measure:,}" for measure in outcome.measures))
    Console().print(table)
    if chosen.picture:
        drawn = [outcome for outcome in outcomes if outcome.rule in DRAWN]
        chosen.picture.write_text(draw(trace.name, drawn, capacity=setup.capacity, limit_s=setup.max_age_s))
    return 0


if __name__ == "__main__":
    sys.exit(main())
