"""Section `quality`: what should be true of tables."""

from typing import Any, Literal

from pydantic import ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from dw_platform.config.environment import FromEnvironment
from dw_platform.config.section import Section
from dw_platform.config.values import Column, Switch, TableName, Text
from dw_platform.quality import CATALOGUE, Expectation, Kind, ParameterType, Severity

CHECK_KEYS = ("expect", "column", "columns", "severity", "name")
_NUMERIC = {ParameterType.COUNT, ParameterType.NUMBER, ParameterType.BOUND, ParameterType.FRACTION}
_SCALAR: dict[str, Any] = {"type": ["string", "number"]}
_SCHEMAS: dict[ParameterType, dict[str, Any]] = {
    ParameterType.COUNT: {"type": "integer", "minimum": 0},
    ParameterType.NUMBER: {"type": "number"},
    ParameterType.BOUND: _SCALAR,
    ParameterType.FRACTION: {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    ParameterType.FLAG: {"type": "boolean"},
    ParameterType.TEXT: {"type": "string", "minLength": 1},
    ParameterType.TEXTS: {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ParameterType.VALUES: {"type": "array", "items": _SCALAR, "minItems": 1},
    ParameterType.PAIRS: {
        "type": "array",
        "items": {"type": "array", "items": _SCALAR, "minItems": 2, "maxItems": 2},
        "minItems": 1,
    },
}


class CheckSection(Section):
    """One check; besides these keys it takes the parameters of its kind, see docs/quality.md."""

    model_config = ConfigDict(extra="allow")

    expect: Text
    """What should be true: a name of the catalogue, such as column_values_to_not_be_null."""

    column: Column | None = None
    """The column to judge, for kinds that judge one."""

    columns: tuple[Column, ...] | None = None
    """The columns to judge, for kinds that judge several."""

    severity: Literal["critical", "warning", "info"] = "critical"
    """`critical` stops what comes after, `warning` asks somebody to look, `info` only records."""

    name: Text | None = None
    """Name of the check; made from kind and columns when not set."""

    @property
    def judged_columns(self) -> tuple[str, ...]:
        """The columns, whichever way they were written."""
        return (self.column,) if self.column else self.columns or ()

    def expectation(self) -> Expectation:
        """Return the check as the quality package knows it."""
        return Expectation(
            kind=self.expect,
            columns=self.judged_columns,
            parameters=check_parameters(self.expect, self.model_extra or {}),
            severity=Severity(self.severity),
            name=self.name or "",
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        described = handler.resolve_ref_schema(handler(schema))
        described["properties"]["expect"]["enum"] = list(CATALOGUE)
        described.pop("additionalProperties", None)
        described["allOf"] = [_kind_schema(kind) for kind in CATALOGUE.values()]
        described["unevaluatedProperties"] = False
        return described


class QualitySection(Section):
    """The checks of one table."""

    table: TableName
    """The table to check; something here must produce it."""

    allow_empty: Switch = False
    """Whether a table without rows is fine; otherwise it fails, because checks of values hold on no rows."""

    checks: tuple[CheckSection, ...] = ()
    """What should be true, besides having rows."""

    def expectations(self) -> tuple[Expectation, ...]:
        """Return the checks as the quality package knows them."""
        return tuple(check.expectation() for check in self.checks)


def check_parameters(kind: str, written: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a check, with numbers and switches out of environment variables as such."""
    entry = CATALOGUE.get(kind)
    return {name: _typed(entry, name, value) for name, value in written.items()}


def _typed(kind: Kind | None, name: str, value: Any) -> Any:
    parameter = kind.parameter(name) if kind else None
    if not isinstance(value, FromEnvironment) or parameter is None:
        return value
    if parameter.type is ParameterType.FLAG:
        return {"true": True, "false": False}.get(value.lower(), value)
    if parameter.type not in _NUMERIC:
        return str(value)
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return str(value)


def _kind_schema(kind: Kind) -> dict[str, Any]:
    """Return the rule for one kind: when `expect` names it, these keys are known and these are needed."""
    properties: dict[str, Any] = {}
    for parameter in kind.parameters:
        schema = dict(_SCHEMAS.get(parameter.type, {}))
        if parameter.type is ParameterType.CHOICE:
            schema = {"enum": list(parameter.choices)}
        if parameter.type is ParameterType.CHOICES:
            schema = {"type": "array", "items": {"enum": list(parameter.choices)}, "minItems": 1}
        properties[parameter.name] = {**schema, "description": parameter.summary}
    needed = [parameter.name for parameter in kind.parameters if parameter.required]
    rule: dict[str, Any] = {"description": kind.summary, "properties": properties}
    if kind.columns.key:
        needed.append(kind.columns.key)
    if needed:
        rule["required"] = needed
    if kind.needs_one_of:
        rule["anyOf"] = [{"required": [name]} for name in kind.needs_one_of]
    return {"if": {"properties": {"expect": {"const": kind.name}}, "required": ["expect"]}, "then": rule}
