"""What may be written into a table: normal types, added columns, safe widening, and nothing else.

`normal_schema` gives the types that Delta stores. `plan_schema` compares what arrives with what the table has:
new columns are taken in, values that fit into a wider type are cast, and everything that would lose data
(a narrower type, a column that went away, names that differ only in case) is refused with both schemas shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from dw_platform.foundation import PermanentError, UserError

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
_KEPT = {*_INTEGERS, pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.date32()}


class UnsupportedTypeError(UserError):
    """A column's type has no counterpart in Delta."""

    def __init__(self, column: str, kind: str) -> None:
        self.column, self.kind = column, kind
        super().__init__(
            f"column {column} has type {kind}, which Delta cannot store. Cast it before writing: times and durations "
            "to int64 or text, unions to struct or text, an all-NULL column to the type it should have."
        )


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


def plan_schema(
    table: str, existing: pa.Schema, incoming: pa.Schema, *, missing: Literal["refuse", "null"] = "refuse"
) -> SchemaPlan:
    """Compare normal schemas; `missing="null"` fills nullable columns that the data does not have."""
    problems = []
    for field in existing:
        if field.name not in incoming.names:
            if missing == "refuse" or not field.nullable:
                problems.append(f"column {field.name} is missing")
            continue
        arriving = incoming.field(field.name).type
        if not fits(arriving, field.type):
            problems.append(f"column {field.name} is {arriving}, the table has {field.type}")
    known = {name.casefold(): name for name in existing.names}
    added = [field for field in incoming if field.name not in existing.names]
    for field in added:
        if same := known.get(field.name.casefold()):
            problems.append(f"column {field.name} differs from {same} only in case")
        known[field.name.casefold()] = field.name
    if len(set(incoming.names)) != len(incoming.names):
        problems.append("a column name appears twice")
    if problems:
        raise SchemaMismatchError(table, problems, existing, incoming)
    # A column that earlier rows do not have is NULL in them, so it cannot be required.
    optional = tuple(field.with_nullable(True) for field in added)
    return SchemaPlan(pa.schema([*existing, *optional]), optional)


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
        conform_array(batch.column(field.name), field.type) if field.name in names else pa.nulls(len(batch), field.type)
        for field in target
    ]
    # Nullability is checked where the rows are written; an array itself may hold a NULL whatever its field says.
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in target]))


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


def _normal_field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, _normal_type(field.type, path), nullable=field.nullable)


def _normal_type(kind: pa.DataType, path: str) -> pa.DataType:
    if kind in _KEPT or pa.types.is_decimal128(kind):
        return kind
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
