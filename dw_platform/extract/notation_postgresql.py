"""PostgreSQL: a value is its own text, written as a literal without a type.

Such a literal takes the type of the column it is compared with, whatever that is: an enum, a domain, a uuid. So the
statement needs no type names, and the column's collation decides. Text is exact in both directions under the session
settings of the platform: the shortest digits that give the same float, ISO dates and intervals, UTC, hex bytes.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from dw_platform.extract.notation import DatabaseKind, InvalidPositionError, direction, utf8


class PostgresqlNotation:
    """A Notation."""

    kind: DatabaseKind = "postgresql"

    def key_expressions(self, column: str, *, native: bool) -> tuple[str, ...]:
        return (column if native else f"CAST({column} AS text)",)

    def text_of(self, values: Sequence[Any]) -> str | None:
        (value,) = values
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case bytes() | bytearray() | memoryview():
                return f"\\x{bytes(value).hex()}"
            case timedelta():
                return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
            case float():
                return repr(value)
            case _:
                return str(value)

    def literal(self, text: str) -> str:
        utf8(self.kind, text)
        if "\0" in text:
            raise InvalidPositionError(self.kind, "it contains a NUL character")
        quoted = text.replace("'", "''")
        # The E makes the backslash mean the same whatever standard_conforming_strings says.
        return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in text else f"'{quoted}'"

    def equals(self, column: str, text: str | None) -> str:
        return f"{column} IS NULL" if text is None else f"{column} = {self.literal(text)}"

    def nulls_come_first(self, *, descending: bool) -> bool:
        return descending

    def sort_item(self, column: str, *, descending: bool, nulls_first: bool | None) -> str:
        item = direction(column, descending=descending)
        return item if nulls_first is None else f"{item} NULLS {'FIRST' if nulls_first else 'LAST'}"
