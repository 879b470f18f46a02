"""PostgreSQL: what its driver for Arrow gives exactly is taken as it is, everything else by its text.

Measured: `numeric` as text and then cast by Arrow is twice as fast as the driver's own way. What the driver gives
wrongly never reaches it: arrays of several dimensions would come flattened, arrays that do not begin at 1 fail.
"""

import pyarrow as pa

from dw_platform.extract.description import ColumnKind, SourceColumn
from dw_platform.extract.type_reading import LOCAL, UTC, Reading, decimal_for

_NATIVE = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": LOCAL,
    "timestamptz": UTC,
}
_BY_TEXT = {
    "time", "timetz", "interval", "uuid", "json", "jsonb", "jsonpath", "xml", "inet", "cidr", "macaddr", "macaddr8",
    "bit", "varbit", "money", "char", "tsvector", "tsquery", "pg_lsn", "xid", "xid8", "cid", "tid", "regclass",
    "regtype", "regproc", "point", "line", "lseg", "box", "path", "polygon", "circle",
}  # fmt: skip


def reading(column: SourceColumn, quoted: str) -> Reading:
    """Return how `column` is read; `quoted` is its name as SQL."""
    kind = column.kind
    if kind.family == "array" and kind.element is not None:
        return _array(column, kind.element, quoted)
    arrow, wire, note = _scalar(kind, column.type_text)
    text = _text(kind, quoted)
    if arrow is None:
        return Reading(arrow=None, expression=text, text=text)
    if kind.base == "oid":
        return Reading(arrow=arrow, expression=f"CAST({quoted} AS bigint)", text=text)
    if kind.base in _NATIVE:
        return Reading(arrow=arrow, expression=quoted, text=text)
    expression = f"CAST(CAST({quoted} AS numeric) AS text)" if kind.base == "money" else text
    return Reading(arrow=arrow, wire=wire, expression=expression, text=text, note=note)


def _scalar(kind: ColumnKind, type_text: str) -> tuple[pa.DataType | None, pa.DataType | None, str]:
    """Return the type here, the type on the way, and a note."""
    if kind.base in _NATIVE:
        return _NATIVE[kind.base], None, ""
    if kind.base == "oid":
        # The driver takes it for a signed number of 32 bits.
        return pa.int64(), None, ""
    if kind.base == "numeric":
        if decimal := decimal_for(kind.precision, kind.scale):
            return decimal, pa.string(), ""
        return pa.string(), None, f"{type_text} may have more than 38 digits: kept as text"
    if kind.family in {"enum", "range"} or kind.base in _BY_TEXT or kind.base.endswith(".citext"):
        return pa.string(), None, ""
    return None, None, ""


def _text(kind: ColumnKind, quoted: str) -> str:
    if kind.base in {"text", "varchar", "bpchar", "name"}:
        # A cast would cut the blanks with which char(n) is filled up.
        return quoted
    if kind.base == "inet":
        # Its cast appends /32 to every address; its own text does not.
        return f"CASE WHEN {quoted} IS NOT NULL THEN format('%s', {quoted}) END"
    return f"CAST({quoted} AS text)"


def _array(column: SourceColumn, element: ColumnKind, quoted: str) -> Reading:
    text = f"CAST({quoted} AS text)"
    arrow, wire, note = _scalar(element, column.type_text)
    if arrow is None or element.family == "array":
        return Reading(arrow=None, expression=text, text=text)
    guard = f"array_ndims({quoted}) > 1 OR array_lower({quoted}, 1) <> 1"
    return Reading(
        arrow=pa.list_(arrow),
        wire=pa.list_(wire or arrow),
        expression=f"CASE WHEN {guard} THEN NULL ELSE {_elements(element, quoted)} END",
        text=text,
        note=note,
        guard=guard,
        guard_what="an array with several dimensions or with bounds of its own",
    )


def _elements(element: ColumnKind, quoted: str) -> str:
    if element.base == "oid":
        return f"CAST({quoted} AS bigint[])"
    if element.base in _NATIVE:
        # The cast does nothing but for domains, whose arrays the driver does not know.
        return f"CAST({quoted} AS pg_catalog.{element.base}[])"
    if element.base == "money":
        return f"CAST(CAST({quoted} AS numeric[]) AS text[])"
    if element.base == "inet":
        return (
            f"CASE WHEN {quoted} IS NOT NULL THEN ARRAY(SELECT {_text(element, 'e')} "  # noqa: S608 - a quoted name
            f"FROM unnest({quoted}) WITH ORDINALITY AS u(e, n) ORDER BY n) END"
        )
    return f"CAST({quoted} AS text[])"
