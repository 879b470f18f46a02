"""`dw page`: look at a table of a database, a page at a time."""

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, many, say
from dw_platform.extract.conditions import Condition
from dw_platform.extract.pages import PagedQueryResult
from dw_platform.foundation import UserError

_COMPARISON = re.compile(r"(?P<column>.+?)(?P<op><=|>=|!=|=|<|>)(?P<value>.*)", re.DOTALL)
_NULL = re.compile(r"(?P<column>.+?) +is +(?P<no>not +)?null", re.DOTALL | re.IGNORECASE)
# Longer text is for --json; a table with it would be none.
_LONGEST_CELL = 60


class NoConditionError(UserError):
    """What --where says is no comparison."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"--where {text!r} is no condition. Write COLUMN=VALUE, or with != < <= > >= in place of =, or 'COLUMN is "
            "null' or 'COLUMN is not null'."
        )


def page(
    table: Annotated[str, typer.Argument(help="DATABASE.TABLE or DATABASE.SCHEMA.TABLE.", metavar="DB.TABLE")],
    config: ConfigOption = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="Rows of the page.")] = 20,
    token: Annotated[
        str | None, typer.Option(help="Where to go on: what the page before says.", show_default=False)
    ] = None,
    order: Annotated[
        str,
        typer.Option(help="Columns to sort by, with commas, and with a minus for descending.", show_default=False),
    ] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=VALUE, or with != < <= > >=, or 'COLUMN is null'; may be repeated."),
    ] = None,
    count: Annotated[
        Literal["exact", "estimate"] | None, typer.Option(help="Say how many rows there are.", show_default=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a page of a table in a database, and how to get the next.

    Pages follow each other exactly: a row that is there from the first page to the last is shown once, whatever others
    write meanwhile, and rows beyond the end that the first page found are not. docs/pages.md has the details.
    """
    # Here, because it brings the clients of databases along, which other commands need not wait for.
    from dw_platform.pipelines.databases import open_databases, split_table

    wished = [column.strip() for column in order.split(",") if column.strip()]
    with open_platform(config) as platform:
        source, name = split_table(platform.config, table)
        with open_databases(platform) as databases:
            found = databases.execute_paginated_query(
                source.name,
                table=name,
                order=wished,
                where=[parse_condition(text) for text in where or ()],
                page_size=limit,
                token=token,
                count=count or "none",
            )
    if json:
        emit_json(as_json(found))
        return
    _show(found)
    if found.continuation_token is not None:
        again = _again(table, config, limit=limit, order=order, where=where or (), count=count)
        say(f"Next page: {again} --token {found.continuation_token}")


def parse_condition(text: str) -> Condition:
    """Return the condition that `COLUMN=VALUE` means."""
    if match := _NULL.fullmatch(text.strip()):
        return Condition(match["column"], "is_not_null" if match["no"] else "is_null")
    if match := _COMPARISON.fullmatch(text):
        return Condition(match["column"].strip(), match["op"], match["value"])
    raise NoConditionError(text)


def as_json(found: PagedQueryResult) -> dict[str, Any]:
    """Return the page as JSON can hold it: exact numbers and times as text, bytes in base64."""
    said = asdict(found)
    return {
        "items": [_plain(item) for item in said["items"]],
        **{name: said[name] for name in ("total_count", "total_is_estimate", "has_more", "continuation_token")},
        "method": found.method,
    }


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _show(found: PagedQueryResult) -> None:
    if found.items:
        columns = list(found.items[0])
        emit_table("", columns, [[_cell(item[column]) for column in columns] for item in found.items])
    told = many(len(found.items), "row") if found.items else "No rows"
    if found.total_count is not None:
        told += f" of {'about ' if found.total_is_estimate else ''}{found.total_count:,}"
    if found.method == "offset":
        told += "; paged by offset, because no key tells the rows apart, so rows may shift between pages"
    say(f"{told}.")


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return Text(str(value), justify="right")  # as it is: 1,234 would be no id
    text = f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


def _again(table: str, config: Path | None, *, limit: int, order: str, where: Sequence[str], count: str | None) -> str:
    words = ["dw", "page", table, *(["--config", str(config)] if config else []), "--limit", str(limit)]
    words += [f"--order={order}"] if order else []
    words += [word for text in where for word in ("--where", text)]
    words += ["--count", count] if count else []
    return shlex.join(words)
