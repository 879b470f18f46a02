"""What has to fit together across the file: names, references, and keys that need or exclude each other.

The rules look at the document itself, not at the typed models, so that they are checked even where some other
value is wrong, and all problems are reported at once. A value of the wrong type is left to the models.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import ValidationError

from dw_platform.config.checks import CHECK_KEYS, check_parameters
from dw_platform.config.environment import FromEnvironment, Unset
from dw_platform.config.operations import FabricLimitsSection, ThresholdsSection
from dw_platform.config.problems import Place, Problem, path_text
from dw_platform.config.storage import sql_inputs
from dw_platform.foundation import InvalidValueError
from dw_platform.quality import ROW_COUNT, complaints_about, default_name, did_you_mean
from dw_platform.scaling import PressureThresholds

Entry = tuple[Place, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Producer:
    table: str
    place: Place


def broken_rules(values: Mapping[str, Any]) -> list[Problem]:
    """Return every rule that the document breaks."""
    rules: tuple[Callable[[Mapping[str, Any]], Iterator[Problem]], ...] = (
        _repeated_names,
        _repeated_producers,
        _ways_to_make_a_table,
        _unknown_inputs,
        _cycles,
        _brokers,
        _streams,
        _extracts,
        _backups,
        _checked_tables,
        _checks,
        _thresholds,
        _fabric,
    )
    return [problem for rule in rules for problem in rule(values)]


def entries(values: Mapping[str, Any], *keys: str) -> Iterator[Entry]:
    """Yield the mappings in the list at `keys`; at a `*` every list on the way is entered."""
    found: list[tuple[Place, Any]] = [((), values)]
    for key in keys:
        found = [step for place, value in found for step in _steps(place, value, key)]
    yield from ((place, value) for place, value in found if isinstance(value, Mapping))


def _steps(place: Place, value: Any, key: str) -> Iterator[tuple[Place, Any]]:
    if key == "*" and isinstance(value, list):
        yield from (((*place, index), item) for index, item in enumerate(value))
    elif isinstance(value, Mapping) and key in value:
        yield (*place, key), value[key]


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str) and not isinstance(value, Unset) else None


def _shown(value: str, original: Any) -> str:
    return original.written if isinstance(original, FromEnvironment) else value


def _producers(values: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    for keys, name in (
        (("lake", "tables", "*"), "name"),
        (("streams", "*"), "table"),
        (("databases", "*", "tables", "*"), "table"),
    ):
        yield from (((*place, name), entry[name]) for place, entry in entries(values, *keys) if name in entry)


def _produced(values: Mapping[str, Any]) -> set[str] | None:
    """Return the tables something produces; None when a name is not known, so nothing can be called missing."""
    names = [table for _, table in _producers(values)]
    return None if any(isinstance(name, Unset) for name in names) else {name for name in names if _text(name)}


def _repeated_names(values: Mapping[str, Any]) -> Iterator[Problem]:
    for keys, key in (
        (("streams", "*"), "name"),
        (("databases", "*"), "name"),
        (("backups", "policies", "*"), "name"),
        (("quality", "*"), "table"),
    ):
        yield from _repeated(((*place, key), entry[key]) for place, entry in entries(values, *keys) if key in entry)


def _repeated_producers(values: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _repeated(_producers(values), "is already produced by")
    for place, table in _producers(values):
        if (_text(table) or "").startswith("ops."):
            yield Problem(place=place, message="belongs to the platform's own schema ops", allowed="any other schema")


def _repeated(named: Iterator[tuple[Place, Any]], words: str = "is already the name of") -> Iterator[Problem]:
    first: dict[str, Place] = {}
    for place, value in named:
        name = _text(value)
        if name is not None and name in first:
            other = path_text(first[name][:-1])
            yield Problem(place=place, message=f"{_shown(name, value)} {words} {other}", allowed="a name used once")
        elif name is not None:
            first[name] = place


def _ways_to_make_a_table(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, table in entries(values, "lake", "tables", "*"):
        if "generate" in table and "sql" in table:
            yield Problem(place=place, message="has both generate and sql", allowed="exactly one of generate and sql")
        elif "generate" not in table and "sql" not in table:
            yield Problem(place=place, message="does not say where its rows come from", allowed="generate or sql")
        if _text(table.get("sql")) == "":
            yield Problem(place=(*place, "sql"), message="is empty", allowed="a SELECT statement")


def _unknown_inputs(values: Mapping[str, Any]) -> Iterator[Problem]:
    produced = _produced(values)
    for place, table in entries(values, "lake", "tables", "*"):
        for name in sql_inputs(_text(table.get("sql")) or ""):
            if produced is not None and name not in produced:
                yield _dangling((*place, "sql"), f"reads {{{name}}}, which nothing produces", name, produced)


def _dangling(place: Place, message: str, name: str, produced: set[str]) -> Problem:
    known = ", ".join(sorted(produced)[:20]) or "none yet; lake.tables, streams and databases produce tables"
    return Problem(place=place, message=f"{message}{did_you_mean(name, sorted(produced))}", allowed=known)


def _cycles(values: Mapping[str, Any]) -> Iterator[Problem]:
    tables = {name: (place, table) for place, table in entries(values, "lake", "tables", "*") if (name := _name(table))}
    graph = {
        name: {entry for entry in sql_inputs(_text(table.get("sql")) or "") if entry in tables}
        for name, (_, table) in tables.items()
    }
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycle = _from_first(error.args[1][:0:-1], list(tables))
            place, _ = tables[cycle[0]]
            message = f"needs itself: {' needs '.join([*cycle, cycle[0]])}"
            yield Problem(place=(*place, "sql"), message=message, allowed="inputs that do not lead back")
            for name in cycle:
                graph[name] = set()
        else:
            return


def _from_first(cycle: list[str], order: list[str]) -> list[str]:
    """Return the cycle starting at the table that comes first in the file."""
    start = cycle.index(min(cycle, key=order.index))
    return cycle[start:] + cycle[:start]


def _name(table: Mapping[str, Any]) -> str | None:
    return _text(table.get("name"))


def _brokers(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, broker in [*entries(values, "broker"), *entries(values, "streams", "*", "broker")]:
        kind = _text(broker.get("kind", "embedded"))
        if kind in {"kafka", "pulsar", "nats", "rabbitmq"} and "address" not in broker:
            yield Problem(place=(*place, "address"), message=f"is needed for {kind}", allowed="HOST:PORT or a URL")
        if kind == "embedded" and "address" in broker:
            message = "does not belong to the embedded broker, which runs in this process"
            yield Problem(place=(*place, "address"), message=message, allowed="another kind, or no address")


def _streams(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, stream in entries(values, "streams", "*"):
        form = stream.get("format", "raw")
        if form == "json" and not stream.get("columns"):
            yield Problem(place=(*place, "columns"), message="is needed for json", allowed="fields and their types")
        if form == "raw" and stream.get("columns"):
            yield Problem(place=(*place, "columns"), message="does not belong to raw", allowed="format: json")
        if stream.get("backpressure") == "drop_oldest" and str(stream.get("durable", True)).lower() == "true":
            message = "cannot be drop_oldest on a durable stream, whose acknowledged messages are never dropped"
            allowed = "block, shed_load, degrade or adaptive; or durable: false"
            yield Problem(place=(*place, "backpressure"), message=message, allowed=allowed)


def _extracts(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, table in entries(values, "databases", "*", "tables", "*"):
        mode = table.get("mode", "full")
        if mode == "incremental" and "cursor" not in table:
            allowed = "a column that grows with every change, such as updated_at"
            yield Problem(place=(*place, "cursor"), message="is needed for incremental", allowed=allowed)
        if mode == "full" and "cursor" in table:
            yield Problem(place=(*place, "cursor"), message="does not belong to full", allowed="mode: incremental")


def _backups(values: Mapping[str, Any]) -> Iterator[Problem]:
    produced = _produced(values)
    for place, policy in entries(values, "backups", "policies", "*"):
        tables = policy.get("tables")
        for index, written in enumerate(tables if isinstance(tables, list) else []):
            pattern = _text(written)
            if pattern is None or produced is None or any(fnmatchcase(table, pattern) for table in produced):
                continue
            message = "matches no table" if "*" in pattern else "is not produced by anything"
            here = (*place, "tables", index)
            yield _dangling(here, f"{_shown(pattern, written)} {message}", pattern, produced)


def _checked_tables(values: Mapping[str, Any]) -> Iterator[Problem]:
    produced = _produced(values)
    for place, entry in entries(values, "quality", "*"):
        table = _text(entry.get("table"))
        if table is not None and produced is not None and table not in produced:
            message = f"{_shown(table, entry['table'])} is not produced by anything"
            yield _dangling((*place, "table"), message, table, produced)


def _checks(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, entry in entries(values, "quality", "*"):
        names: dict[str, Place] = {ROW_COUNT: ()}
        for here, check in entries(entry, "checks", "*"):
            yield from _check((*place, *here), check, names)


def _check(place: Place, check: Mapping[str, Any], names: dict[str, Place]) -> Iterator[Problem]:
    kind = _text(check.get("expect"))
    if kind is None:
        return
    columns = _columns(check)
    parameters = {key: value for key, value in check.items() if key not in CHECK_KEYS}
    unknown = {key for key, value in parameters.items() if isinstance(value, Unset)}
    name = _text(check.get("name")) or ""
    if "column" in check and "columns" in check:
        yield Problem(place=(*place, "columns"), message="is written besides column", allowed="one of the two")
    complaints = complaints_about(kind, columns or (), check_parameters(kind, parameters), name)
    for key, message, allowed in complaints:
        if key not in unknown and (columns is not None or key not in {"column", "columns"}):
            yield Problem(place=(*place, key), message=message, allowed=allowed)
    name = name or default_name(kind, columns or ())
    if name in names and not complaints:
        other = path_text(names[name]) or "the check for rows that every table gets"
        advice = "give one of them a name of its own"
        yield Problem(place=(*place, "name"), message=f"{name} is already the name of {other}; {advice}")
    names.setdefault(name, place)


def _columns(check: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the columns as written, or None when they are of the wrong type, which the models report."""
    written = [check["column"]] if "column" in check else check.get("columns", [])
    if not isinstance(written, list) or not all(isinstance(column, str) for column in written):
        return None
    return tuple(written)


def _thresholds(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, written in entries(values, "scaling", "thresholds"):
        try:
            PressureThresholds(**ThresholdsSection.model_validate(written).model_dump())
        except ValidationError:
            continue
        except InvalidValueError as error:
            yield Problem(place=(*place, error.field), message="does not fit the others", allowed=error.allowed)


def _fabric(values: Mapping[str, Any]) -> Iterator[Problem]:
    defaults = FabricLimitsSection().model_dump()
    for place, written in entries(values, "fabric", "limits"):
        limits = defaults | {key: value for key, value in written.items() if type(value) is int}
        for kind in ("star", "mesh"):
            if limits[f"{kind}_switch"] > limits[kind]:
                key = f"{kind}_switch" if f"{kind}_switch" in written else kind
                allowed = f"{kind}_switch of at most {kind}"
                yield Problem(place=(*place, key), message=f"lets a {kind} outgrow its limit", allowed=allowed)
