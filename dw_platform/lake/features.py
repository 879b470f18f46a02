"""Which engine may write a table: a pure decision over the table's protocol, properties and columns.

The Arrow writer commits files that it wrote itself, and nobody checks them afterwards. So it is chosen only for
tables whose every demand it meets; one unknown writer feature is enough to hand the table to Spark's own writer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Engine(StrEnum):
    """Who writes the files and makes the commit."""

    ARROW = "arrow"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class WriterChoice:
    """The engine for a table and why; both go into the commit and into Dagster's metadata."""

    engine: Engine
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What the log says about a table, as plain values."""

    writer_version: int = 2
    writer_features: frozenset[str] = frozenset()
    configuration: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[Mapping[str, Any]] = ()
    """The fields of the schema document, each with `name`, `type`, `nullable`, `metadata`."""


# Features that change nothing for an append of plain files, tried with reads, OPTIMIZE, MERGE, DELETE and VACUUM
# by both engines afterwards. `invariants`, `checkConstraints` and `generatedColumns` are here because listing
# the feature demands nothing by itself; the columns and properties that use it are looked at below.
_HARMLESS = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
    }
)

_DEMANDING_COLUMNS = {
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    "delta.invariants": "has an invariant",
    "CURRENT_DEFAULT": "has a default",
    "__CHAR_VARCHAR_TYPE_STRING": "has a declared length",
}

_FILLED = frozenset({"delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT"})

_DEMANDING_PROPERTIES = {
    "delta.enableRowTracking": "row tracking is on",
    "delta.enableInCommitTimestamps": "in-commit timestamps are on",
    "delta.enableIcebergCompatV1": "Iceberg compatibility is on",
    "delta.enableIcebergCompatV2": "Iceberg compatibility is on",
    "delta.enableTypeWidening": "type widening is on",
}


def choose_writer(facts: TableFacts) -> WriterChoice:
    """Return Spark with the first demand that the Arrow writer cannot honour, else Arrow."""
    for reason in _demands(facts):
        return WriterChoice(Engine.SPARK, reason)
    return WriterChoice(Engine.ARROW, "no feature or constraint of the table needs Spark's writer")


def filled_columns(facts: TableFacts) -> frozenset[str]:
    """Return the columns that Spark's writer computes when the rows do not have them."""
    return frozenset(str(column["name"]) for column in facts.columns if _FILLED.intersection(_metadata(column)))


def reserved_columns(facts: TableFacts) -> frozenset[str]:
    """Return the columns that rows must not have, because only Spark's writer may number them."""
    return frozenset(
        str(column["name"])
        for column in facts.columns
        if _metadata(column).get("delta.identity.allowExplicitInsert") is False
    )


def opaque_columns(facts: TableFacts) -> frozenset[str]:
    """Return the columns that hold a variant somewhere; Arrow sees it as a struct, Delta's statistics do not."""
    return frozenset(str(column["name"]) for column in facts.columns if '"variant"' in json.dumps(column.get("type")))


def _metadata(column: Mapping[str, Any]) -> Mapping[str, Any]:
    return column.get("metadata") or {}


def _demands(facts: TableFacts) -> list[str]:
    configuration = facts.configuration
    demands = [f"table feature {name}" for name in sorted(facts.writer_features - _HARMLESS)]
    if facts.writer_version > 7:
        demands.append(f"writer version {facts.writer_version}")
    demands += [
        f"CHECK constraint {key.split('.', 2)[2]}" for key in configuration if key.startswith("delta.constraints.")
    ]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        demands.append("column mapping is on")
    demands += [why for key, why in _DEMANDING_PROPERTIES.items() if configuration.get(key, "").lower() == "true"]
    for column in facts.columns:
        demands += _column_demands(column, str(column.get("name", "")))
    return demands


def _column_demands(column: Mapping[str, Any], path: str) -> list[str]:
    demands = [f"column {path} {why}" for key, why in _DEMANDING_COLUMNS.items() if key in _metadata(column)]
    return demands + _type_demands(column.get("type"), path)


def _type_demands(kind: Any, path: str) -> list[str]:
    if not isinstance(kind, Mapping):
        return []
    demands = []
    for child in kind.get("fields", ()):
        child_path = f"{path}.{child.get('name')}"
        if not child.get("nullable", True):
            demands.append(f"field {child_path} inside a struct is NOT NULL")
        demands += _column_demands(child, child_path)
    if not (kind.get("containsNull", True) and kind.get("valueContainsNull", True)):
        demands.append(f"the elements of column {path} are NOT NULL")
    for part in ("elementType", "keyType", "valueType"):
        demands += _type_demands(kind.get(part), path)
    return demands
