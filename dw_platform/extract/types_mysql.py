"""MySQL and MariaDB: values come as text, as the protocol carries them, and Arrow makes the types.

Text is exact there but for FLOAT, which is shown with 6 digits and therefore read as the double it equals.
"""

import pyarrow as pa

from dw_platform.extract.description import ColumnKind, SourceColumn
from dw_platform.extract.type_reading import LOCAL, UTC, Reading, decimal_for

_INTEGERS = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "integer": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
}
_TEXT = {
    "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json", "time", "uuid", "inet4",
    "inet6",
}  # fmt: skip
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit"}
_OTHERS = {"double": pa.float64(), "real": pa.float64(), "date": pa.date32(), "datetime": LOCAL, "timestamp": UTC}


def reading(column: SourceColumn, quoted: str) -> Reading:
    """Return how `column` is read; `quoted` is its name as SQL."""
    kind = column.kind
    if kind.base in _BYTES:
        own = f"BIN({quoted})" if kind.base == "bit" else f"HEX({quoted})"
        return Reading(arrow=pa.binary(), expression=quoted, text=own)
    if kind.base == "float":
        double = f"({quoted} + 0e0)"
        return Reading(arrow=pa.float32(), wire=pa.string(), expression=double, text=f"CAST({double} AS CHAR)")
    arrow, note = _type(kind, column.type_text)
    text = f"CAST({quoted} AS CHAR)"
    if arrow is None:
        # Of what is left, only shapes have a text of their own.
        return Reading(arrow=None, expression=f"ST_AsText({quoted})", text=f"ST_AsText({quoted})")
    return Reading(arrow=arrow, wire=pa.string(), expression=quoted, text=text, note=note)


def _type(kind: ColumnKind, type_text: str) -> tuple[pa.DataType | None, str]:
    if kind.base in _INTEGERS:
        return _INTEGERS[kind.base][kind.unsigned], ""
    if kind.base in {"decimal", "numeric"}:
        decimal = decimal_for(kind.precision, kind.scale)
        return decimal or pa.string(), "" if decimal else f"{type_text} has more than 38 digits: kept as text"
    if kind.base == "year":
        return pa.int16(), ""
    if kind.base in _TEXT:
        return pa.string(), ""
    return _OTHERS.get(kind.base), ""
