"""How commands speak: results on stdout as tables or as one JSON document, progress and complaints on stderr."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dw_platform.cli.secrecy import masked

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="The platform's file; $DW_CONFIG or platform.yaml by default.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

# Pipes and files have no width: cells are never folded there, so that grep and cut see whole rows.
_UNBOUNDED = 100_000


def complain(text: str) -> None:
    """Say on stderr what went wrong."""
    _print_error(Text.assemble(("error:", "bold red"), " ", masked(text)))


def progress(text: str) -> None:
    """Say on stderr what is being done."""
    _print_error(Text(f"· {masked(text)}", "dim"))


def end_with(problems: Sequence[str]) -> None:
    """Say every problem below the result and end with code 1; without any, go on."""
    if problems:
        sys.stdout.flush()
        for problem in problems:
            complain(problem)
        raise typer.Exit(1)


def many(count: int, what: str) -> str:
    """Return `1 topic` or `2 topics`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _print_error(text: Text) -> None:
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def emit_json(value: Any) -> None:
    """Print a result for programs; dates and paths become text, and numbers that JSON lacks become null."""
    sys.stdout.write(json.dumps(_strict(value), indent=2, default=str, allow_nan=False) + "\n")


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a result for people: numbers to the right, and what is not known as a dash."""
    listed = [tuple(row) for row in rows]
    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False
    )
    for number, name in enumerate(columns):
        numeric = any(_is_number(row[number]) for row in listed)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=number == 0)
    for row in listed:
        table.add_row(*(_cell(cell) for cell in row))
    console = _results()
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def say(text: str | Text = "") -> None:
    """Print a line for people on stdout, exactly as it is."""
    _results().print(text, soft_wrap=True, markup=False)


def _results() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else _UNBOUNDED)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> Text:
    if value is None:
        return Text("-", "dim")
    if isinstance(value, Text):
        return value
    if isinstance(value, bool):
        return Text("yes", "green") if value else Text("no", "red")
    return Text(f"{value:,}" if isinstance(value, int) else str(value))


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
