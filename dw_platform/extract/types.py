"""Which Arrow type a column gets, and the SQL that gives its values exactly.

Every type either keeps all its values or is refused: wide numbers become text, and what can appear in a column but
not in its Arrow type (infinity in a timestamp, NaN in a decimal, an array in an array) is found while reading and
raises ValueNotKeptError. `types` in platform.yaml overrides the choice for a column; `string` always works, because
every database can give the text of every value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dw_platform.extract import types_mysql, types_postgresql, types_sqlite
from dw_platform.extract.description import SourceColumn, SourceTable
from dw_platform.extract.errors import UnmappableColumnError
from dw_platform.extract.type_reading import LOCAL, MOST_DIGITS, UTC, Reading
from dw_platform.foundation import InvalidValueError

_READINGS = {
    "postgresql": types_postgresql.reading,
    "mysql": types_mysql.reading,
    "sqlite": types_sqlite.reading,
}
_NAMED = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": UTC,
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """How one column is read; may be pickled."""

    name: str
    arrow: pa.DataType
    """The type in which its values arrive here."""

    expression: str
    """SQL that gives the value."""

    wire: pa.DataType
    """The type in which the driver hands the expression over; another one shows that the column was changed."""

    note: str = ""
    """What a reader of the schema should know, such as that a number is kept as text."""

    guard: str | None = None
    """SQL that is true for a value which `arrow` cannot keep and the driver does not report."""

    guard_what: str = ""
    """What the guard finds, for the error."""


def map_columns(
    table: SourceTable,
    *,
    columns: Sequence[str] = (),
    exclude: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
) -> tuple[ColumnMapping, ...]:
    """Return the mappings of the wished columns (all, if none are named) in the order of the table."""
    chosen = dict(overrides or {})
    for name in (*columns, *exclude, *chosen):
        table.column(name)
    wished = [
        column for column in table.columns if (not columns or column.name in columns) and column.name not in exclude
    ]
    if not wished:
        raise InvalidValueError("columns", list(columns), f"at least one column of {table} that is not excluded")
    return tuple(_mapping(table, column, chosen.get(column.name)) for column in wished)


def arrow_type(text: str) -> pa.DataType:
    """Return the type that platform.yaml calls `text`."""
    if text in _NAMED:
        return _NAMED[text]
    if match := _DECIMAL.fullmatch(text):
        digits, scale = int(match[1]), int(match[2])
        if 1 <= digits <= MOST_DIGITS and scale <= digits:
            return pa.decimal128(digits, scale)
    raise InvalidValueError("types", text, f"one of {', '.join(_NAMED)}, decimal(1..{MOST_DIGITS}, scale)")


def _mapping(table: SourceTable, column: SourceColumn, override: str | None) -> ColumnMapping:
    reading = _READINGS[table.kind](column, table.quote(column.name))
    if override is not None:
        return _overridden(table, column, reading, override)
    if reading.arrow is None:
        choices = [f"`types: {{{column.name}: {each}}}`" for each in reading.choices]
        raise UnmappableColumnError(
            table.source, str(table), column.name, column.type_text, [*choices, f"`exclude: [{column.name}]`"]
        )
    return ColumnMapping(
        column.name,
        reading.arrow,
        reading.expression,
        reading.wire or reading.arrow,
        reading.note,
        reading.guard,
        reading.guard_what,
    )


def _overridden(table: SourceTable, column: SourceColumn, reading: Reading, override: str) -> ColumnMapping:
    target = arrow_type(override)
    note = f"{column.type_text} read as {override}"
    if target == pa.string():
        return ColumnMapping(
            column.name, target, reading.text, target, note, reading.text_guard, "bytes where text is expected"
        )
    if reading.arrow is not None and (target == reading.arrow or target in _exact_casts(reading.arrow)):
        wire = reading.wire or reading.arrow
        return ColumnMapping(column.name, target, reading.expression, wire, note, reading.guard, reading.guard_what)
    if target == pa.binary() and reading.binary:
        return ColumnMapping(
            column.name, target, reading.binary, target, note, reading.binary_guard, "a number where bytes are expected"
        )
    if _can_be_parsed(reading.arrow, target):
        return ColumnMapping(column.name, target, reading.text, pa.string(), note, reading.text_guard, "bytes")
    raise InvalidValueError(
        f"type of {column.name} in {table}", override, f"what {column.type_text or 'it'} can be read as, such as string"
    )


def _exact_casts(natural: pa.DataType) -> Iterator[pa.DataType]:
    """Give the types to which Arrow casts with every value checked."""
    if pa.types.is_integer(natural):
        yield from (pa.int32(), pa.int64(), pa.float64(), pa.bool_())
    if pa.types.is_boolean(natural):
        yield from (pa.int32(), pa.int64())
    if natural == pa.float32():
        yield pa.float64()
    if natural == pa.string():
        yield pa.binary()
    if natural in {pa.date32(), LOCAL}:
        yield UTC


def _can_be_parsed(natural: pa.DataType | None, target: pa.DataType) -> bool:
    """Return whether values of `target` can be made from the text of a column."""
    if target == pa.binary():
        return False
    if natural is None or natural == pa.string():
        return True
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_one(natural) for is_one in numbers) and any(is_one(target) for is_one in numbers)
