"""Where one value lies: a row by its key, and a column; and what it means when there is nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dw_platform.extract.description import SourceTable
from dw_platform.extract.key_column import Position
from dw_platform.extract.keys import choose_key
from dw_platform.extract.notation import notation_of
from dw_platform.foundation import InvalidValueError, PermanentError

Key = Mapping[str, Any] | Position
"""Column names with Python values, or a position: the texts of the key's columns, in their order."""


class RowGoneError(PermanentError):
    """There is no row with the key; keys stay out of the text, because they may be personal."""

    def __init__(self, source: str, table: str, columns: Sequence[str]) -> None:
        self.source, self.table, self.columns = source, table, tuple(columns)
        super().__init__(
            f"{source}: table {table} has no row with this key ({', '.join(columns)}); it was deleted, or its key was "
            "changed. Read the page again to see what is there now."
        )


class NoValueError(PermanentError):
    """The value is NULL, which is not the same as a value without bytes."""

    def __init__(self, source: str, table: str, column: str) -> None:
        self.source, self.table, self.column = source, table, column
        super().__init__(
            f"{source}: column {column} of table {table} is NULL in this row, so there is nothing to read."
        )


@dataclass(frozen=True, slots=True)
class Spot:
    """One value of one row, as SQL; `where` names at most one row."""

    table: SourceTable
    column: str
    key: tuple[str, ...]
    where: str
    slice_bytes: int

    @property
    def table_sql(self) -> str:
        """The table's name as SQL."""
        return self.table.quoted()

    @property
    def column_sql(self) -> str:
        """The column's name as SQL."""
        return self.table.quote(self.column)

    def only(self, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Return the one row that was found; none is RowGoneError, and more mean that the key is none."""
        if not rows:
            raise RowGoneError(self.table.source, str(self.table), self.key)
        if len(rows) > 1:
            raise InvalidValueError("key", ", ".join(self.key), f"columns that name one row of {self.table}")
        return rows[0]

    def no_value(self) -> NoValueError:
        """Return the error for NULL."""
        return NoValueError(self.table.source, str(self.table), self.column)


def find_spot(table: SourceTable, key: Key, column: str, *, by: Sequence[str] = (), slice_bytes: int) -> Spot:
    """Return where the value is; a position belongs to the columns `by`, or else to the table's own key."""
    table.column(column)
    notation = notation_of(table.kind)
    if isinstance(key, Mapping):
        texts = {name: notation.text_of([value]) for name, value in key.items()}
    else:
        columns = tuple(by) or choose_key(table).columns
        if len(columns) != len(key):
            raise InvalidValueError("key", f"{len(key)} values", f"one for each of {', '.join(columns)}")
        texts = dict(zip(columns, key, strict=True))
    if not texts:
        raise InvalidValueError("key", "nothing", "at least one column with its value")
    conditions = [
        f"{table.quote(table.column(name).name)} IS NULL"
        if text is None
        else f"{table.quote(table.column(name).name)} = {notation.literal(text)}"
        for name, text in texts.items()
    ]
    return Spot(table, column, tuple(texts), " AND ".join(conditions), slice_bytes)
