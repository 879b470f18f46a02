"""Names that are used once and names that lead somewhere: who produces a table, who reads, backs up or checks it."""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from typing import Any

from dw_platform.config.environment import FromEnvironment, Unset
from dw_platform.config.problems import Place, Problem, path_text
from dw_platform.config.walk import entries, shown, text_at
from dw_platform.lake.references import table_references
from dw_platform.quality import did_you_mean


def producers(values: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    """Yield every table that something fills, and where the file says so."""
    for keys, name in (
        (("lake", "tables", "*"), "name"),
        (("streams", "*"), "table"),
        (("databases", "*", "tables", "*"), "table"),
    ):
        yield from (((*place, name), entry[name]) for place, entry in entries(values, *keys) if name in entry)


def _produced(values: Mapping[str, Any]) -> set[str] | None:
    """Return the tables something produces; None when a name is not known, so nothing can be called missing."""
    names = [table for _, table in producers(values)]
    return None if any(isinstance(name, Unset) for name in names) else {name for name in names if text_at(name)}


def _repeated_names(values: Mapping[str, Any]) -> Iterator[Problem]:
    for keys, key in (
        (("streams", "*"), "name"),
        (("databases", "*"), "name"),
        (("bus", "topics", "*"), "name"),
        (("backups", "policies", "*"), "name"),
        (("quality", "*"), "table"),
    ):
        yield from _repeated(((*place, key), entry[key]) for place, entry in entries(values, *keys) if key in entry)


def _repeated_producers(values: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _repeated(producers(values), "is already produced by")
    for place, table in producers(values):
        if (text_at(table) or "").startswith("ops."):
            yield Problem(place=place, message="belongs to the platform's own schema ops", allowed="any other schema")


def _repeated(named: Iterator[tuple[Place, Any]], words: str = "is already the name of") -> Iterator[Problem]:
    first: dict[str, Place] = {}
    for place, value in named:
        name = text_at(value)
        if name is not None and name in first:
            other = path_text(first[name][:-1])
            yield Problem(place=place, message=f"{shown(value)} {words} {other}", allowed="a name used once")
        elif name is not None:
            first[name] = place


def _unknown_inputs(values: Mapping[str, Any]) -> Iterator[Problem]:
    produced = _produced(values)
    for place, table in entries(values, "lake", "tables", "*"):
        sql = text_at(table.get("sql")) or ""
        for name in table_references(sql):
            if produced is not None and name not in produced:
                written = f"{{{name}}}" if f"{{{name}}}" in shown(table["sql"]) else "a table"
                yield _dangling((*place, "sql"), f"reads {written}, which nothing produces", name, produced)


def _dangling(place: Place, message: str, name: str, produced: set[str]) -> Problem:
    known = sorted(table for table in produced if not isinstance(table, FromEnvironment))
    allowed = ", ".join(known[:20]) or "none yet; lake.tables, streams and databases produce tables"
    return Problem(place=place, message=f"{message}{did_you_mean(name, known)}", allowed=allowed)


def _cycles(values: Mapping[str, Any]) -> Iterator[Problem]:
    tables = {
        name: (place, table)
        for place, table in entries(values, "lake", "tables", "*")
        if (name := text_at(table.get("name")))
    }
    graph = {
        name: {entry for entry in table_references(text_at(table.get("sql")) or "") if entry in tables}
        for name, (_, table) in tables.items()
    }
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycle = _from_first(error.args[1][:0:-1], list(tables))
            place, _ = tables[cycle[0]]
            message = "needs itself: " + " needs ".join(shown(tables[name][1]["name"]) for name in [*cycle, cycle[0]])
            yield Problem(place=(*place, "sql"), message=message, allowed="inputs that do not lead back")
            for name in cycle:
                graph[name] = set()
        else:
            return


def _from_first(cycle: list[str], order: list[str]) -> list[str]:
    """Return the cycle starting at the table that comes first in the file."""
    start = cycle.index(min(cycle, key=order.index))
    return cycle[start:] + cycle[:start]


def _backups(values: Mapping[str, Any]) -> Iterator[Problem]:
    produced = _produced(values)
    for place, policy in entries(values, "backups", "policies", "*"):
        tables = policy.get("tables")
        for index, written in enumerate(tables if isinstance(tables, list) else []):
            pattern = text_at(written)
            if pattern is None or produced is None or any(fnmatchcase(table, pattern) for table in produced):
                continue
            message = "matches no table" if "*" in pattern else "is not produced by anything"
            here = (*place, "tables", index)
            yield _dangling(here, f"{shown(written)} {message}", pattern, produced)


def _checked_tables(values: Mapping[str, Any]) -> Iterator[Problem]:
    produced = _produced(values)
    for place, entry in entries(values, "quality", "*"):
        table = text_at(entry.get("table"))
        if table is not None and produced is not None and table not in produced:
            message = f"{shown(entry['table'])} is not produced by anything"
            yield _dangling((*place, "table"), message, table, produced)


REFERENCES: tuple[Callable[[Mapping[str, Any]], Iterator[Problem]], ...] = (
    _repeated_names,
    _repeated_producers,
    _unknown_inputs,
    _cycles,
    _backups,
    _checked_tables,
)
"""Each takes the document's values and yields what is wrong."""
