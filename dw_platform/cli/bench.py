"""`dw bench`: the benchmarks under benchmarks/, each with its peers in the same run."""

import importlib
import importlib.util
import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from dw_platform.cli.output import JsonOption, emit_json, emit_table, say
from dw_platform.foundation import UserError


class UnknownBenchmarkError(UserError):
    """There is no benchmark of that name."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"There is no benchmark {name}. Known: {', '.join(known)}.")


class NoBenchmarksError(UserError):
    """The benchmarks are not part of this installation."""

    def __init__(self) -> None:
        super().__init__("The benchmarks are not installed here; run this in a clone of the project.")


class OutputNotWritableError(UserError):
    """The file for the result cannot be made; said before the measuring, which takes long."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(f"{path} cannot be written: {cause}. Nothing was measured; choose another --output.")


class DirectoryMissingError(UserError):
    """The folder whose disk should be measured is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is not a folder. Nothing was measured; make it, or choose another --directory.")


def bench(
    name: Annotated[str | None, typer.Argument(help="The benchmark; without it, they are listed.")] = None,
    *,
    rows: Annotated[int | None, typer.Option(min=1, help="How many rows or records, where that can be chosen.")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="How often each is measured.")] = None,
    commits: Annotated[int | None, typer.Option(min=1, help="How many commits each writer makes.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="How many processes write at once.")] = None,
    directory: Annotated[Path | None, typer.Option(help="Where files are made: on the disk to measure.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the result to this file as JSON, too.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it runs, not how fast.")] = False,
    lock: Annotated[bool, typer.Option("--lock/--no-lock", help="Whether a stress takes the commit lock.")] = True,
    json: JsonOption = False,
) -> None:
    """Run a benchmark and print its figures as ratios to its peers.

    What is not given is what the benchmark thinks right; an option that it does not know has no effect.
    """
    if importlib.util.find_spec("benchmarks") is None:
        raise NoBenchmarksError
    benchmarks = importlib.import_module("benchmarks")
    available = benchmarks.available()
    if name is None:
        emit_json(available) if json else emit_table("", ["benchmark", "what it measures"], sorted(available.items()))
        return
    if name not in available:
        raise UnknownBenchmarkError(name, sorted(available))
    if directory is not None and not directory.is_dir():
        raise DirectoryMissingError(directory)
    if output:
        _require_writable(output)
    sizes = {"rows": rows, "repeats": repeats, "commits": commits, "processes": processes, "directory": directory}
    result = benchmarks.run(name, **sizes, quick=quick, lock=lock)
    if output:
        output.write_text(json_format.dumps(result, indent=2) + "\n")
    if json:
        emit_json(result)
    else:
        say(benchmarks.render(result))


def _require_writable(path: Path) -> None:
    try:
        path.open("a").close()
    except OSError as error:
        raise OutputNotWritableError(path, error.strerror or str(error)) from error
