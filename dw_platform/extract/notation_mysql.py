"""MySQL and MariaDB: a value is the family of its literal and its text.

`n:5` exact numbers, `f:1.5e0` doubles, `s:abc` text, `x:6162` bytes, `d:`, `m:` and `t:` dates, moments and times.
A string against a number would be compared as two doubles, so each family has its own literal. Text is written as hex
with its character set in front: no escape is needed, whatever sql_mode says, and the column's collation decides.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from dw_platform.extract.notation import DatabaseKind, InvalidPositionError, direction, utf8

_PATTERNS = {
    "n": re.compile(r"-?\d{1,66}(\.\d{1,66})?"),
    "f": re.compile(r"-?\d{1,17}(\.\d{1,25})?e[+-]?\d{1,3}"),
    "x": re.compile(r"([0-9a-f]{2})*"),
    "d": re.compile(r"\d{4}-\d\d-\d\d"),
    "m": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?"),
    "t": re.compile(r"-?\d{2,3}:\d\d:\d\d(\.\d{1,6})?"),
}
_WRITTEN = {"n": "{}", "f": "{}", "x": "X'{}'", "d": "DATE'{}'", "m": "TIMESTAMP'{}'", "t": "TIME'{}'"}


class MysqlNotation:
    """A Notation."""

    kind: DatabaseKind = "mysql"

    def key_expressions(self, column: str, *, native: bool) -> tuple[str, ...]:
        del native  # the driver's Python values are exact
        return (column,)

    def text_of(self, values: Sequence[Any]) -> str | None:
        (value,) = values
        match value:
            case None:
                return None
            case bool() | int():
                return f"n:{int(value)}"
            case Decimal():
                return f"n:{value:f}"
            case float():
                return f"f:{_double(value)}"
            case bytes() | bytearray() | memoryview():
                return f"x:{bytes(value).hex()}"
            case datetime():
                return f"m:{_in_utc(value).isoformat(' ')}"
            case date():
                return f"d:{value.isoformat()}"
            case timedelta():
                return f"t:{_time(value)}"
            case time():
                return f"t:{value.isoformat()}"
            case _:
                return f"s:{value}"

    def literal(self, text: str) -> str:
        family, _, body = text.partition(":")
        if family == "s":
            return f"_utf8mb4 X'{utf8(self.kind, body).hex()}'"
        if family not in _PATTERNS or not _PATTERNS[family].fullmatch(body):
            raise InvalidPositionError(self.kind, "it does not begin with the family of a literal")
        return _WRITTEN[family].format(body)

    def equals(self, column: str, text: str | None) -> str:
        # With = or a bare IS NULL its optimizer prefers to walk all rows of that value (access type `ref`) and tests
        # the next column on each. As ranges they join the next column's into one (access type `range`).
        if text is None:
            return f"({column} IS NULL OR {column} < NULL)"
        value = self.literal(text)
        return f"{column} >= {value} AND {column} <= {value}"

    def nulls_come_first(self, *, descending: bool) -> bool:
        return not descending

    def sort_item(self, column: str, *, descending: bool, nulls_first: bool | None) -> str:
        item = direction(column, descending=descending)
        if nulls_first is None:
            return item
        return f"{column} IS {'NOT ' if nulls_first else ''}NULL, {item}"


def _double(value: float) -> str:
    if not math.isfinite(value):
        raise InvalidPositionError("mysql", "a double there is always finite")
    digits, _, exponent = repr(value).partition("e")
    return f"{digits}e{exponent or 0}"


def _in_utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _time(value: timedelta) -> str:
    sign, left = ("-", -value) if value < timedelta(0) else ("", value)
    seconds, micros = left.days * 86_400 + left.seconds, left.microseconds
    fraction = f".{micros:06d}" if micros else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
