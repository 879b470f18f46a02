"""How commands speak: results on stdout as a table or as JSON, progress and complaints on stderr."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="The platform's file; $DW_CONFIG or platform.yaml by default.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

_errors = Console(stderr=True, highlight=False)


def complain(text: str) -> None:
    """Say on stderr what went wrong."""
    _errors.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def progress(text: str) -> None:
    """Say on stderr what is being done."""
    _errors.print(f"[dim]· {escape(text)}[/]", soft_wrap=True)


def emit_json(value: Any) -> None:
    """Print a result for programs; dates and paths become text."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a result for people."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False
    )
    for number, name in enumerate(columns):
        table.add_column(name, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text() if cell is None else _cell(cell) for cell in row))
    Console(highlight=False).print(table)


def say(text: str = "") -> None:
    """Print a line for people on stdout."""
    Console(highlight=False).print(text, soft_wrap=True)


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    if isinstance(value, bool):
        return Text("yes", "green") if value else Text("no", "red")
    return Text(f"{value:,}" if isinstance(value, int) else str(value))
