"""What may be written into a table: normal types, added columns, safe widening, and nothing else.

`normal_schema` gives the types that Delta stores. `plan_schema` compares what arrives with what the table has:
new columns are taken in, values that fit into a wider type are cast, and everything that would lose data
(a narrower type, a column that went away, names that differ only in case) is refused with both schemas shown.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from dw_platform.foundation import PermanentError, UserError

_MOST_DIGITS = 38
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# Delta has no unsigned types: each becomes the next signed one that holds all its values.
_REPLACED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
# What Parquet's own schema text uses for itself; Delta refuses them in tables without column mapping.
_FORBIDDEN = frozenset(" ,;{}()\n\t=")
_KEPT = {*_INTEGERS, pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.date32()}


class UnsupportedTypeError(UserError):
    """A column's type has no counterpart in Delta."""

    def __init__(self, column: str, kind: str) -> None:
        self.column, self.kind = column, kind
        super().__init__(
            f"column {column} has type {kind}, which Delta cannot store. Cast it before writing: times and durations "
            "to int64 or text, unions to struct or text, an all-NULL column to the type it should have."
        )


class ValueDoesNotFitError(PermanentError):
    """A value cannot be kept exactly in the type that its column has in the table."""

    def __init__(self, column: str, kind: str, cause: str) -> None:
        self.column, self.kind, self.cause = column, kind, cause
        super().__init__(
            f"column {column} has a value that {kind} cannot keep exactly ({cause}). Nothing was written; round or "
            "cast the column before writing."
        )


class InvalidColumnsError(UserError):
    """Column names that a Delta table cannot have."""

    def __init__(self, table: str, problem: str) -> None:
        self.table, self.problem = table, problem
        super().__init__(f"{table}: {problem}. Rename the columns before writing.")


class SchemaMismatchError(PermanentError):
    """What arrives cannot go into the table without losing something."""

    def __init__(self, table: str, problems: Sequence[str], expected: pa.Schema, actual: pa.Schema) -> None:
        self.table, self.problems, self.expected, self.actual = table, tuple(problems), expected, actual
        super().__init__(
            f"{table}: the data does not fit the table: {'; '.join(problems)}. Nothing was written. "
            f"Cast the data, or overwrite the table to change its schema.\n"
            f"  table: {describe(expected)}\n  data:  {describe(actual)}"
        )


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """The table's schema after the write, and the columns that have to be added for it first."""

    target: pa.Schema
    added: tuple[pa.Field, ...]


def describe(schema: pa.Schema) -> str:
    """Return a schema on one line."""
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the types that Delta stores, or raise naming the column that has none."""
    return pa.schema([_normal_field(field, field.name) for field in schema])


def check_names(table: str, schema: pa.Schema) -> None:
    """Refuse column names that Spark would refuse later, when the table can no longer be changed cheaply."""
    if not schema.names:
        raise InvalidColumnsError(table, "a table needs at least one column")
    if problems := _case_problems((), schema.names):
        raise InvalidColumnsError(table, "; ".join(problems))
    if odd := [name for name in _all_names(schema) if not name or _FORBIDDEN & set(name)]:
        raise InvalidColumnsError(
            table, f"the column names {', '.join(map(repr, odd))} are empty or contain a space or one of ,;{{}}()="
        )


def plan_schema(
    table: str,
    existing: pa.Schema,
    incoming: pa.Schema,
    *,
    missing: Literal["refuse", "null"] = "refuse",
    filled: frozenset[str] = frozenset(),
) -> SchemaPlan:
    """Compare normal schemas.

    `missing="null"` lets the data lack nullable columns; columns in `filled` may always be absent, because the
    engine computes them.
    """
    problems = _case_problems(existing.names, incoming.names)
    for field in existing:
        if field.name not in incoming.names:
            if field.name not in filled and (missing == "refuse" or not field.nullable):
                problems.append(f"column {field.name} is missing")
        elif incoming.names.count(field.name) == 1:
            arriving = incoming.field(field.name).type
            if not fits(arriving, field.type):
                problems.append(f"column {field.name} is {arriving}, the table has {field.type}")
    added = [field for field in incoming if field.name not in existing.names]
    if problems:
        raise SchemaMismatchError(table, problems, existing, incoming)
    # A column that earlier rows do not have is NULL in them, so it cannot be required.
    optional = tuple(field.with_nullable(True) for field in added)
    return SchemaPlan(pa.schema([*existing, *optional]), optional)


def same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether both have the same names and types; order and NOT NULL are the table's own business."""
    return len(one) == len(other) and {f.name: f.type for f in one} == {f.name: f.type for f in other}


def _all_names(fields: Iterable[pa.Field]) -> Iterator[str]:
    for field in fields:
        yield field.name
        yield from _all_names(field.type.field(i) for i in range(field.type.num_fields))


def _case_problems(existing: Sequence[str], incoming: Sequence[str]) -> list[str]:
    problems = []
    known = {name.casefold(): name for name in existing}
    seen: set[str] = set()
    for name in incoming:
        other = known.setdefault(name.casefold(), name)
        if name in seen:
            problems.append(f"column {name} appears twice")
        elif other != name:
            problems.append(f"column {name} differs from {other} only in case")
        seen.add(name)
    return problems


def fits(arriving: pa.DataType, stored: pa.DataType) -> bool:
    """Whether every value of `arriving` can be kept exactly in `stored`."""
    if arriving == stored or pa.types.is_null(arriving):
        return True
    if arriving in _INTEGERS and stored in _INTEGERS:
        return _INTEGERS.index(arriving) <= _INTEGERS.index(stored)
    if pa.types.is_float32(arriving) and pa.types.is_float64(stored):
        return True
    if pa.types.is_decimal(arriving) and pa.types.is_decimal(stored):
        whole, stored_whole = arriving.precision - arriving.scale, stored.precision - stored.scale
        return bool(stored.scale >= arriving.scale and stored_whole >= whole)
    if pa.types.is_struct(arriving) and pa.types.is_struct(stored):
        names = {field.name for field in arriving}
        return names == {field.name for field in stored} and all(
            fits(arriving.field(field.name).type, field.type) for field in stored
        )
    if pa.types.is_list(arriving) and pa.types.is_list(stored):
        return fits(arriving.value_type, stored.value_type)
    if pa.types.is_map(arriving) and pa.types.is_map(stored):
        return fits(arriving.key_type, stored.key_type) and fits(arriving.item_type, stored.item_type)
    return False


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with exactly the columns, order and types of `target`; absent columns become NULL."""
    names = set(batch.schema.names)
    columns = [
        _conform_column(batch.column(field.name), field) if field.name in names else pa.nulls(len(batch), field.type)
        for field in target
    ]
    # Nullability is checked where the rows are written; an array itself may hold a NULL whatever its field says.
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in target]))


def _conform_column(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return conform_array(array, field.type)
    except pa.ArrowInvalid as error:
        raise ValueDoesNotFitError(field.name, str(field.type), str(error).splitlines()[0]) from error


def conform_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast without loss; structs are matched by field name rather than by position."""
    if array.type == target:
        return array
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        children = [conform_array(array.field(field.name), field.type) for field in target]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    return array.cast(target, safe=True)


def needed_features(schema: pa.Schema) -> list[str]:
    """Return the table features that must be named for these columns; none for those every protocol has."""
    if not any(_has_local_time(field.type) for field in schema):
        return []
    required = any(not field.nullable for field in schema)
    return ["timestampNtz", "invariants"] if required else ["timestampNtz"]


def _has_local_time(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return pa.types.is_nested(kind) and any(_has_local_time(kind.field(i).type) for i in range(kind.num_fields))


def without_rules(schema: pa.Schema) -> pa.Schema:
    """Return a normal schema in which everything may be NULL, at any depth; whoever writes the rows checks them."""
    return pa.schema([_without_rules(field) for field in schema])


def _without_rules(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_without_rules(child) for child in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_without_rules(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _without_rules(kind.item_field))
    return pa.field(field.name, kind)


def _normal_field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, _normal_type(field.type, path), nullable=field.nullable)


def _normal_type(kind: pa.DataType, path: str) -> pa.DataType:
    if kind in _KEPT:
        return kind
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if kind in _REPLACED:
        return _REPLACED[kind]
    if pa.types.is_dictionary(kind):
        return _normal_type(kind.value_type, path)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        # Delta keeps microseconds, as an instant (UTC) or without a zone.
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([_normal_field(child, f"{path}.{child.name}") for child in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _normal_type(kind.value_type, f"{path}[]")))
    if pa.types.is_map(kind):
        return pa.map_(_normal_type(kind.key_type, f"{path}.key"), _normal_type(kind.item_type, f"{path}.value"))
    raise UnsupportedTypeError(path, str(kind))
