"""SQLite: a declared type is a wish that single cells need not follow, so each page is checked for its storage classes.

The driver for Arrow gives a column the one type that holds all its cells of a page. Where it is the expected one, all
cells had the expected class, because a declaration converts what it can on the way in. Two mixtures would pass all
the same and are guarded: large whole numbers among floats, and numbers among bytes.
"""

import re

import pyarrow as pa

from dw_platform.extract.description import SourceColumn
from dw_platform.extract.type_reading import LOCAL, Reading, decimal_for

# A float holds 15 digits of any decimal number exactly enough to print them again.
_FLOAT_DIGITS = 15
_LARGEST_EXACT = 2**53
_CHOICES = ("string", "bigint", "double", "binary")


def reading(column: SourceColumn, quoted: str) -> Reading:
    """Return how `column` is read; `quoted` is its name as SQL."""
    base = column.kind.base
    text = f"CAST({quoted} AS TEXT)"
    bytes_inside = f"typeof({quoted}) = 'blob'"
    number_inside = f"typeof({quoted}) IN ('integer', 'real')"

    def plain(arrow: pa.DataType, wire: pa.DataType | None = None) -> Reading:
        return Reading(arrow=arrow, wire=wire, expression=quoted, text=text, text_guard=bytes_inside)

    if re.search("DATETIME|TIMESTAMP", base):
        return plain(LOCAL, pa.string())
    if "DATE" in base:
        return plain(pa.date32(), pa.string())
    if "BOOL" in base:
        return plain(pa.bool_(), pa.int64())
    # From here on in the order of SQLite's own rules for affinity.
    if "INT" in base:
        return plain(pa.int64())
    if re.search("CHAR|CLOB|TEXT", base):
        return plain(pa.string())
    if "BLOB" in base:
        return Reading(
            arrow=pa.binary(),
            expression=f"CAST({quoted} AS BLOB)",
            text=f"hex({quoted})",
            guard=number_inside,
            guard_what="a number where bytes are expected",
        )
    if re.search("REAL|FLOA|DOUB", base):
        return plain(pa.float64())
    if re.search("DEC|NUM|MONEY", base):
        return _number(column, quoted, text, bytes_inside)
    return Reading(
        arrow=None,
        expression=text,
        text=text,
        text_guard=bytes_inside,
        binary=f"CAST({quoted} AS BLOB)",
        binary_guard=number_inside,
        choices=_CHOICES,
    )


def _number(column: SourceColumn, quoted: str, text: str, bytes_inside: str) -> Reading:
    precision = column.kind.precision
    decimal = decimal_for(precision, column.kind.scale)
    if decimal is not None and precision is not None and precision <= _FLOAT_DIGITS:
        return Reading(arrow=decimal, wire=pa.float64(), expression=quoted, text=text, text_guard=bytes_inside)
    return Reading(
        arrow=pa.float64(),
        expression=quoted,
        text=text,
        note=f"{column.type_text} is a floating-point number in SQLite: read as double",
        guard=f"typeof({quoted}) = 'integer' AND {quoted} NOT BETWEEN -{_LARGEST_EXACT} AND {_LARGEST_EXACT}",
        guard_what="a whole number too large for a double",
        text_guard=bytes_inside,
    )
