"""SQLite: a value is its storage class and its text, because a column can hold any class, cell by cell.

`i:5`, `t:abc`, `b:6162`, `r:0x1.8p+1`. A float travels in hexadecimal and is written as a quotient or product of
whole numbers, which every version computes exactly; their decimal conversions differ in the last digit. Literals
have no affinity of their own, so the column's decides, as it does in an index.
"""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from dw_platform.extract.notation import DatabaseKind, InvalidPositionError, direction, utf8

_INTEGER = re.compile(r"-?\d{1,19}")
# The largest power of two that is a whole number of SQLite.
_STEP = 62


class SqliteNotation:
    """A Notation."""

    kind: DatabaseKind = "sqlite"

    def key_expressions(self, column: str, *, native: bool) -> tuple[str, ...]:
        del native  # a column declared as INTEGER may hold text all the same
        tagged = (
            f"CASE typeof({column}) WHEN 'integer' THEN 'i:' || {column} WHEN 'text' THEN 't:' || {column} "
            f"WHEN 'blob' THEN 'b:' || hex({column}) WHEN 'real' THEN 'r:' END"
        )
        # Apart, because a reader that gives a column one type must not turn 2**60 + 1 into a float.
        return tagged, f"CASE typeof({column}) WHEN 'real' THEN {column} END"

    def text_of(self, values: Sequence[Any]) -> str | None:
        if len(values) == 2:
            tagged, real = values
            return f"r:{float(real).hex()}" if tagged == "r:" else tagged
        (value,) = values
        match value:
            case None:
                return None
            case int():
                return f"i:{int(value)}"
            case float():
                return f"r:{value.hex()}"
            case Decimal():
                whole = value == value.to_integral_value() and abs(value) < 2**63
                return f"i:{int(value)}" if whole else f"r:{float(value).hex()}"
            case bytes() | bytearray() | memoryview():
                return f"b:{bytes(value).hex()}"
            case _:
                return f"t:{value}"

    def literal(self, text: str) -> str:
        tag, body = text[:2], text[2:]
        if tag == "i:" and _INTEGER.fullmatch(body) and -(2**63) <= int(body) < 2**63:
            # The lowest whole number has no literal: its digits without the sign are one too many.
            return f"({int(body) + 1}-1)" if int(body) == -(2**63) else body
        if tag == "t:":
            return _text(utf8(self.kind, body), body)
        try:
            if tag == "b:":
                return f"X'{bytes.fromhex(body).hex()}'"
            if tag == "r:":
                return _real(float.fromhex(body))
        except (ValueError, OverflowError) as error:
            raise InvalidPositionError(self.kind, "its digits are no number") from error
        raise InvalidPositionError(self.kind, "it does not begin with a storage class")

    def equals(self, column: str, text: str | None) -> str:
        # Its statistics count NULL as one value among the others, so it would rather scan than look for few of them.
        return f"unlikely({column} IS NULL)" if text is None else f"{column} = {self.literal(text)}"

    def nulls_come_first(self, *, descending: bool) -> bool:
        return not descending

    def sort_item(self, column: str, *, descending: bool, nulls_first: bool | None) -> str:
        item = direction(column, descending=descending)
        return item if nulls_first is None else f"{item} NULLS {'FIRST' if nulls_first else 'LAST'}"


def _text(encoded: bytes, text: str) -> str:
    if "\0" in text:
        # The plus takes away the affinity that a cast has.
        return f"+CAST(X'{encoded.hex()}' AS TEXT)"
    return "'" + text.replace("'", "''") + "'"


def _real(value: float) -> str:
    if math.isnan(value):
        raise ValueError("SQLite stores NULL in place of NaN")
    if math.isinf(value):
        return "9e999" if value > 0 else "-9e999"
    numerator, denominator = value.as_integer_ratio()
    # Down to an odd numerator of at most 53 bits and a power of two, up or down.
    shift = (numerator & -numerator).bit_length() - 1 if numerator else 0
    exponent = shift - (denominator.bit_length() - 1)
    operator = "*" if exponent > 0 else "/"
    steps, left = [], abs(exponent)
    while left:
        steps.append(f"{operator}{2 ** min(left, _STEP)}")
        left -= min(left, _STEP)
    return f"(CAST({numerator >> shift} AS REAL){''.join(steps)}+0.0)"
