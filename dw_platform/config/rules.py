"""What has to fit together across the file: names, references, and keys that need or exclude each other.

The rules look at the document itself, not at the typed models, so that they are checked even where some other
value is wrong, and all problems are reported at once. A value of the wrong type is left to the models.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from dw_platform.config.checks import CHECK_KEYS, check_parameters
from dw_platform.config.environment import FromEnvironment, Unset
from dw_platform.config.operations import FabricLimitsSection, ThresholdsSection
from dw_platform.config.problems import Place, Problem, path_text
from dw_platform.config.references import REFERENCES
from dw_platform.config.stream_rules import STREAM_RULES
from dw_platform.config.walk import entries, text_at
from dw_platform.foundation import InvalidValueError
from dw_platform.quality import ROW_COUNT, complaints_about, default_name
from dw_platform.scaling import PressureThresholds


def broken_rules(values: Mapping[str, Any]) -> list[Problem]:
    """Return every rule that the document breaks."""
    own = (_ways_to_make_a_table, _extracts, _encryption, _checks, _thresholds, _fabric)
    return [problem for rule in (*REFERENCES, *STREAM_RULES, *own) for problem in rule(values)]


def _ways_to_make_a_table(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, table in entries(values, "lake", "tables", "*"):
        if "generate" in table and "sql" in table:
            yield Problem(place=place, message="has both generate and sql", allowed="exactly one of generate and sql")
        elif "generate" not in table and "sql" not in table:
            yield Problem(place=place, message="does not say where its rows come from", allowed="generate or sql")
        if text_at(table.get("sql")) == "":
            yield Problem(place=(*place, "sql"), message="is empty", allowed="a SELECT statement")


def _extracts(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, database in entries(values, "databases", "*"):
        if "generate" in database and not (text_at(database.get("url")) or "sqlite:").startswith("sqlite"):
            allowed = "a url that begins with sqlite:///"
            yield Problem(place=(*place, "generate"), message="makes up rows in SQLite only", allowed=allowed)
    for place, table in entries(values, "databases", "*", "tables", "*"):
        mode = table.get("mode", "full")
        if mode == "incremental" and "cursor" not in table:
            allowed = "a column that grows with every change, such as updated_at"
            yield Problem(place=(*place, "cursor"), message="is needed for incremental", allowed=allowed)
        if mode == "full":
            for key in ("cursor", "overlap", "reconcile"):
                if key in table:
                    yield Problem(place=(*place, key), message="does not belong to full", allowed="mode: incremental")
        yield from _left_out(place, table)


def _encryption(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, encryption in entries(values, "backups", "encryption"):
        if ("key" in encryption) == ("key_file" in encryption):
            both = "key" in encryption
            message = "has both key and key_file" if both else "has no key"
            yield Problem(place=place, message=message, allowed="exactly one of key and key_file")


def _left_out(place: Place, table: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the columns that are left out although something needs them."""
    names = {key: _texts(table.get(key)) for key in ("key", "columns", "exclude", "types", "files")}
    cursor = text_at(table.get("cursor"))
    for key in ("columns", "key", "types", "files"):
        for name in sorted(names[key] & names["exclude"]):
            yield Problem(place=(*place, "exclude"), message=f"leaves out {name}, which {key} names", allowed="others")
    if cursor in names["exclude"]:
        yield Problem(place=(*place, "exclude"), message="leaves out the cursor", allowed="other columns")
    needed = names["key"] | ({cursor} if cursor else set())
    if missing := sorted(needed - names["columns"] if names["columns"] else ()):
        allowed = "with the key and the cursor"
        yield Problem(place=(*place, "columns"), message=f"leaves out {', '.join(missing)}", allowed=allowed)


def _texts(value: Any) -> set[str]:
    listed = value if isinstance(value, list | Mapping) else ()
    return {text for each in listed if (text := text_at(each))}


def _checks(values: Mapping[str, Any]) -> Iterator[Problem]:
    for place, entry in entries(values, "quality", "*"):
        names: dict[str, Place] = {ROW_COUNT: ()}
        for here, check in entries(entry, "checks", "*"):
            yield from _check((*place, *here), check, names)


def _check(place: Place, check: Mapping[str, Any], names: dict[str, Place]) -> Iterator[Problem]:
    kind = text_at(check.get("expect"))
    if kind is None:
        return
    columns = _columns(check)
    parameters = {key: value for key, value in check.items() if key not in CHECK_KEYS}
    unknown = {key for key, value in parameters.items() if isinstance(value, Unset)}
    name = text_at(check.get("name")) or ""
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
        known = not any(isinstance(value, FromEnvironment) for value in check.values())
        message = f"{name if known else 'this'} is already the name of {other}; {advice}"
        yield Problem(place=(*place, "name"), message=message)
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
