"""JSON values become typed columns one by one: slow, and the definition of what is right.

One object a value, every declared field of its type or absent, numbers exact. A value that is not that has a reason,
which names the field and never its content.
"""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa

from dw_platform.pipelines.ingest_types import all_finite, from_text, type_name

NO_VALUE = "no value"

Part = tuple[pa.RecordBatch, dict[int, str]]
"""Rows of the good values, and why the others are not among them, by their number."""


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
        raise _WrongError(f"{field.name}: {_named(value)} is not a {type_name(field.type)}")
    return value if type(value) is bool else str(value)


def _cells(cells: Sequence[Any], field: pa.Field) -> pa.Array:
    kind = field.type
    try:
        if pa.types.is_boolean(kind):
            return pa.array(cells, kind)
        texts = pa.array(cells, pa.string())
        column = texts if pa.types.is_string(kind) else from_text(texts, kind)
    except ValueError as error:  # Arrow, base64 and half a surrogate pair all raise one
        raise _WrongError(f"{field.name}: the value does not fit a {type_name(kind)}") from error
    if pa.types.is_floating(kind) and not all_finite(column):
        raise _WrongError(f"{field.name}: the value is too large for a {type_name(kind)}")
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


def _named(value: Any) -> str:
    names = {_Number: "a number", str: "a text", bool: "a boolean", list: "a list"}
    return names.get(type(value), "an object")


_KINDS: dict[int, tuple[type, ...]] = {
    pa.bool_().id: (bool,),
    **{kind.id: (_Number,) for kind in (pa.int32(), pa.int64(), pa.float32(), pa.float64())},
}
