"""The types of `columns`: their Arrow types, and how a text becomes a value of one, exactly or not at all."""

import base64
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dw_platform.foundation import InvalidValueError

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
_NAMES = {kind: name for name, kind in _SIMPLE.items()}


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


def from_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as `kind`; raise ValueError (ArrowInvalid is one) if one of them is not one.

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


def all_finite(column: pa.Array) -> bool:
    """Whether no value is infinite; NULL does not count."""
    return pc.all(pc.is_finite(column)).as_py() is not False


def type_name(kind: pa.DataType) -> str:
    """Return what `columns` calls the type."""
    return _NAMES.get(kind) or f"decimal({kind.precision},{kind.scale})"
