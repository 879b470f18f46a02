"""What should be true of a table, as values: named, validated, and independent of what evaluates them.

An `Expectation` that exists is one that Great Expectations accepts: kind, columns and parameters were checked
against the catalogue when it was built.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from dw_platform.foundation import UserError
from dw_platform.quality.catalogue import CATALOGUE, Kind
from dw_platform.quality.parameters import as_moment
from dw_platform.quality.suggestions import did_you_mean

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}", re.ASCII)
_NAME_ALLOWED = "lower-case letters, digits and _, starting with a letter, at most 100 of them"


class Severity(StrEnum):
    """What a failed check means for whatever comes after it."""

    CRITICAL = "critical"
    """The data must not be used; downstream work stops."""

    WARNING = "warning"
    """Somebody should look; work goes on."""

    INFO = "info"
    """Worth recording."""


class Complaint(NamedTuple):
    """One thing wrong with a check, under the key where a user wrote it."""

    key: str
    message: str
    allowed: str


class InvalidExpectationError(UserError):
    """A check that cannot be evaluated as it is written."""

    def __init__(self, kind: str, complaints: Sequence[Complaint]) -> None:
        self.kind, self.complaints = kind, tuple(complaints)
        reasons = "; ".join(f"{entry.key} {entry.message} (allowed: {entry.allowed})" for entry in complaints)
        super().__init__(f"The check {kind} is wrong: {reasons}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One check of one table; `kind` is a name of the catalogue, `name` is the check's own within its table."""

    kind: str
    columns: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = Severity.CRITICAL
    name: str = ""
    """Names the check in reports and in Dagster; made from kind and columns when left empty."""

    def __post_init__(self) -> None:
        complaints = complaints_about(self.kind, self.columns, self.parameters, self.name)
        if complaints:
            raise InvalidExpectationError(self.kind, complaints)
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        object.__setattr__(self, "name", self.name or default_name(self.kind, self.columns))

    @classmethod
    def of(
        cls, kind: str, *columns: str, severity: Severity = Severity.CRITICAL, name: str = "", **parameters: Any
    ) -> Self:
        """Return the check the way one says it: kind, columns, parameters."""
        return cls(kind=kind, columns=columns, parameters=parameters, severity=severity, name=name)

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and checks travel to orchestrator steps.
        values = (self.kind, self.columns, dict(self.parameters), self.severity, self.name)
        return _rebuild, values


def _rebuild(
    kind: str, columns: tuple[str, ...], parameters: dict[str, Any], severity: Severity, name: str
) -> Expectation:
    return Expectation(kind=kind, columns=columns, parameters=parameters, severity=severity, name=name)


def default_name(kind: str, columns: Sequence[str]) -> str:
    """Return `amount_values_to_be_between` for `column_values_to_be_between` on `amount`."""
    subject = re.sub(r"[^a-z0-9]+", "_", "_".join(columns).lower()).strip("_")
    if not subject or kind.startswith("table_"):
        return kind
    name = f"{subject}_{kind.removeprefix('column_')}"
    return (name if _NAME.match(name) else f"column_{name}")[:100]


def row_count_check(*, allow_empty: bool) -> Expectation:
    """Return the check that every table gets: column checks alone hold on a table without a single row."""
    return Expectation.of("table_row_count_to_be_between", name=ROW_COUNT, min_value=0 if allow_empty else 1)


ROW_COUNT = "row_count"
"""Name of the check that every table gets; no other check may have it."""


def complaints_about(
    kind: str, columns: Sequence[str], parameters: Mapping[str, Any], name: str = ""
) -> list[Complaint]:
    """Return everything wrong with a check, each under the key that a user would change."""
    entry = CATALOGUE.get(kind)
    if entry is None:
        hint = did_you_mean(kind.removeprefix("expect_"), CATALOGUE)
        return [Complaint("expect", f"is not a known check{hint}", "a name of the catalogue in docs/quality.md")]
    found = [Complaint("name", "is not a usable name", _NAME_ALLOWED)] if name and not _NAME.fullmatch(name) else []
    return found + _about_columns(entry, columns) + _about_parameters(entry, parameters)


def _about_columns(kind: Kind, columns: Sequence[str]) -> list[Complaint]:
    rule = kind.columns
    if not rule.key:
        return [Complaint("column", "does not belong to a check of the whole table", "no column")] if columns else []
    fits = rule.least <= len(columns) and (rule.most is None or len(columns) <= rule.most)
    if not fits or not all(isinstance(column, str) and column for column in columns):
        return [Complaint(rule.key, "is missing" if not columns else "does not fit this check", rule.allowed)]
    repeated = len(set(columns)) < len(columns)
    return [Complaint(rule.key, "names a column twice", "different columns")] if repeated else []


def _about_parameters(kind: Kind, parameters: Mapping[str, Any]) -> list[Complaint]:
    names = [entry.name for entry in kind.parameters]
    found = []
    for name, value in parameters.items():
        parameter = kind.parameter(name)
        if parameter is None:
            allowed = f"one of {', '.join(names)}" if names else "none; this check takes no parameter"
            found.append(Complaint(name, f"is not a parameter of {kind.name}{did_you_mean(name, names)}", allowed))
        elif not parameter.accepts(value):
            found.append(Complaint(name, "has a value of the wrong kind", parameter.allowed))
    found += [
        Complaint(entry.name, "is missing", entry.allowed)
        for entry in kind.parameters
        if entry.required and entry.name not in parameters
    ]
    if kind.needs_one_of and not set(kind.needs_one_of) & set(parameters):
        found.append(Complaint(kind.needs_one_of[0], "is missing", f"at least one of {', '.join(kind.needs_one_of)}"))
    return found or _about_range(parameters)


def _about_range(parameters: Mapping[str, Any]) -> list[Complaint]:
    low, high = (_comparable(parameters.get(key)) for key in ("min_value", "max_value"))
    if low is None or high is None:
        return []
    if isinstance(low, float) != isinstance(high, float):
        return [Complaint("max_value", "cannot be compared with min_value", "two numbers, or two dates")]
    return [Complaint("max_value", "is below min_value", "at least min_value")] if high < low else []


def _comparable(value: Any) -> Any:
    moment = as_moment(value)
    return moment if moment is not None else (None if value is None else float(value))
