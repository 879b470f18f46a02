"""JSON values become typed columns, in bulk where that is safe and one by one where it is not.

The careful way defines what is right: one object a value, every declared field of its type or absent, numbers exact.
The bulk way hands all values to Arrow's reader at once and is taken only if its result must be the same:

* Every value begins with `{`, ends with `}`, and has no `}` that anything but `,`, `}` or `]` follows. So no value is
  blank or holds two objects. None can be continued by its neighbour either, because the newline between them may stand
  neither inside a string nor, within one object, between `}` and `{`. The number of rows is compared nevertheless.
* Values are UTF-8, and have no NaN or Infinity, which Arrow would take although JSON has none; no number overflows.

Whatever the bulk way refuses is halved until the refused values are few, and those are looked at one by one. A bad
record therefore never rejects its neighbours, and costs little in speed.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from dw_platform.foundation import InvalidValueError

NO_VALUE = "no value"

# Below this the careful way is as fast as trying.
_FEW = 256
_SUSPICIOUS = r"\}\s*[^\s,}\]]|NaN|Inf"
_BLOCK_LIMIT = 1 << 30
_SIMPLE = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}


def column_type(text: str) -> pa.DataType:
    """Return the Arrow type of a type in `columns`."""
    if text in _SIMPLE:
        return _SIMPLE[text]
    precision, _, scale = text.removeprefix("decimal(").removesuffix(")").partition(",")
    try:
        return pa.decimal128(int(precision), int(scale))
    except ValueError as error:
        raise InvalidValueError("columns", text, "decimal(p,s) with p up to 38 and s up to p") from error


def json_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the columns of a typed stream."""
    return pa.schema([pa.field(name, column_type(kind)) for name, kind in columns.items()])


@dataclass(frozen=True, slots=True)
class Parsed:
    """The good records as rows in their order, which they were, and why the others are not among them."""

    rows: pa.RecordBatch
    good: pa.Array
    """A boolean for each value; rows are those that are true."""

    reasons: Mapping[int, str]
    """By the number of the value."""


def parse_values(values: pa.Array, schema: pa.Schema) -> Parsed:
    """Return typed rows of `values`, an array of binary."""
    parts = list(_parse(values, schema, 0))
    reasons = {number: reason for part in parts for number, reason in part[1].items()}
    rows = pa.concat_batches([part[0] for part in parts]) if parts else _no_rows(schema)
    good = pa.array([True] * len(values))
    if reasons:
        good = pa.array([number not in reasons for number in range(len(values))])
    assert len(rows) + len(reasons) == len(values), "every value is a row or has a reason"
    return Parsed(rows, good, reasons)


Part = tuple[pa.RecordBatch, dict[int, str]]


def _parse(values: pa.Array, schema: pa.Schema, first: int) -> Iterator[Part]:
    if len(values) and (rows := in_bulk(values, schema)) is not None:
        yield rows, {}
    elif len(values) <= _FEW:
        yield one_by_one(values, schema, first)
    else:
        half = len(values) // 2
        yield from _parse(values.slice(0, half), schema, first)
        yield from _parse(values.slice(half), schema, first + half)


def in_bulk(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch | None:
    """Return the rows of all values, or None where one of them needs a closer look."""
    if not schema.names or not _plain(values):
        return None
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text = pc.binary_join(lines, b"\n")[0].as_buffer()
    if text.size > _BLOCK_LIMIT:
        return None
    try:
        # A block of its own for all of it: what is cut between blocks is cut at newlines, wherever they are.
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([pa.field(field.name, _read_as(field.type)) for field in schema]),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(values):
            return None
        columns = [_converted(table.column(field.name).combine_chunks(), field.type) for field in schema]
    except (pa.ArrowInvalid, binascii.Error):
        return None
    if any(pa.types.is_floating(column.type) and not _finite(column) for column in columns):
        return None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(values: pa.Array) -> bool:
    if values.null_count:
        return False
    try:
        texts = values.cast(pa.string())  # checks that it is UTF-8
    except pa.ArrowInvalid:
        return False
    framed = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    return bool(pc.all(framed).as_py() and not pc.any(pc.match_substring_regex(texts, _SUSPICIOUS)).as_py())


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return what Arrow's reader is asked for: types whose text form is this module's own business come as text."""
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_binary(kind) else kind


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else from_text(column, kind)


def from_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as `kind`; raise ArrowInvalid or binascii.Error if one of them is not one.

    A timestamp without a zone is taken for UTC; binary is base64, as other tools write it.
    """
    if pa.types.is_binary(kind):
        decoded = [None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()]
        return pa.array(decoded, kind)
    if not pa.types.is_timestamp(kind):
        return texts.cast(kind)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return texts.cast(pa.timestamp(kind.unit)).cast(kind)


def _finite(column: pa.Array) -> bool:
    return pc.all(pc.is_finite(column)).as_py() is not False


class _Number(str):
    """A number of a document, as it is written there; so that nothing is rounded before its type is known."""

    __slots__ = ()


class _WrongError(ValueError):
    """Why a record is not a row."""


def one_by_one(values: pa.Array, schema: pa.Schema, first: int = 0) -> Part:
    """Return the rows of the good values, and the reasons of the others by their number, counted from `first`."""
    documents: list[dict[str, Any]] = []
    reasons: dict[int, str] = {}
    for number, value in enumerate(values.to_pylist()):
        try:
            documents.append(_document(value))
        except _WrongError as error:
            documents.append({})
            reasons[number] = str(error)
    columns = [_column(documents, field, reasons) for field in schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if reasons:
        rows = rows.filter(pa.array([number not in reasons for number in range(len(rows))]))
    return rows, {first + number: reason for number, reason in reasons.items()}


def _column(documents: Sequence[dict[str, Any]], field: pa.Field, reasons: dict[int, str]) -> pa.Array:
    """Return the field of every document; where it is wrong, NULL and a reason unless the document has one."""
    cells: list[Any] = []
    for number, document in enumerate(documents):
        try:
            cells.append(_typed(document.get(field.name), field))
        except _WrongError as error:
            cells.append(None)
            reasons.setdefault(number, str(error))
    try:
        return _cells(cells, field)
    except _WrongError:
        return pa.concat_arrays([_cell(cell, field, number, reasons) for number, cell in enumerate(cells)])


def _cell(cell: Any, field: pa.Field, number: int, reasons: dict[int, str]) -> pa.Array:
    try:
        return _cells([cell], field)
    except _WrongError as error:
        reasons.setdefault(number, str(error))
        return pa.nulls(1, field.type)


def _typed(value: Any, field: pa.Field) -> Any:
    """Return a boolean, or the text of anything else, if it is what the field's type is written as."""
    if value is None:
        return None
    wanted = _KINDS.get(field.type.id, (_Number, str) if pa.types.is_decimal(field.type) else (str,))
    # Exactly these types: a number is also a text here, and True is also an integer in Python.
    if type(value) not in wanted:
        raise _WrongError(f"{field.name}: {_named(value)} is not a {_called(field.type)}")
    return value if type(value) is bool else str(value)


def _cells(cells: Sequence[Any], field: pa.Field) -> pa.Array:
    kind = field.type
    try:
        if pa.types.is_boolean(kind):
            return pa.array(cells, kind)
        texts = pa.array(cells, pa.string())
        column = texts if pa.types.is_string(kind) else from_text(texts, kind)
    except (pa.ArrowInvalid, binascii.Error, UnicodeEncodeError) as error:
        raise _WrongError(f"{field.name}: the value does not fit a {_called(kind)}") from error
    if pa.types.is_floating(kind) and not _finite(column):
        raise _WrongError(f"{field.name}: the value is too large for a {_called(kind)}")
    return column


def _document(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise _WrongError(NO_VALUE)
    try:
        document = json.loads(
            value.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_refuse, object_pairs_hook=_unique
        )
    except UnicodeDecodeError as error:
        raise _WrongError(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise _WrongError("not readable: nested too deeply") from error
    except json.JSONDecodeError as error:
        raise _WrongError(f"not JSON: {error.msg} at character {error.pos}") from error
    if document is None:
        raise _WrongError(NO_VALUE)
    if not isinstance(document, dict):
        raise _WrongError("not a JSON object")
    return document


def _refuse(constant: str) -> NoReturn:
    raise _WrongError(f"not JSON: {constant} is no number there")


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return _Twice(pairs) if len({name for name, _ in pairs}) < len(pairs) else dict(pairs)


class _Twice(dict[str, Any]):
    """An object that has a field more than once; wrong only if somebody asks for that field."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self._repeated = {name for name in names if names.count(name) > 1}

    def get(self, name: str, default: Any = None) -> Any:
        if name in self._repeated:
            raise _WrongError(f"{name}: the field is there more than once")
        return super().get(name, default)


_KINDS: dict[int, tuple[type, ...]] = {
    pa.bool_().id: (bool,),
    **{kind.id: (_Number,) for kind in (pa.int32(), pa.int64(), pa.float32(), pa.float64())},
}

_NAMES: Callable[[pa.DataType], str | None] = {kind: name for name, kind in _SIMPLE.items()}.get


def _called(kind: pa.DataType) -> str:
    return _NAMES(kind) or f"decimal({kind.precision},{kind.scale})"


def _named(value: Any) -> str:
    names = {_Number: "a number", str: "a text", bool: "a boolean", list: "a list"}
    return names.get(type(value), "an object")


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
