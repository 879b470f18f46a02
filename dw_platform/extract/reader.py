"""Pages of a table as Arrow, each after the position where the one before ended.

A page is read by one statement a branch (see keyset.py), and no transaction stays open between statements, so a
reader that waits holds nothing in the source. What a page costs here is Arrow work by column, never Python by row.

The rows have exactly the mapped names and types. A value that its type cannot keep raises ValueNotKeptError; a table
that was dropped or altered raises SourceChangedError; a connection that died raises DatabaseUnavailableError, and
whoever opens a new reader continues after the last position that a page returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from dw_platform.extract import keyset
from dw_platform.extract.conditions import Condition, conditions_sql
from dw_platform.extract.conform import conformed
from dw_platform.extract.description import SourceTable
from dw_platform.extract.errors import ValueNotKeptError
from dw_platform.extract.key_column import OrderColumn, Position
from dw_platform.extract.notation import notation_of
from dw_platform.extract.reader_rows import Rows, open_rows
from dw_platform.extract.selection import Selection, native_columns, number_columns
from dw_platform.extract.source import DatabaseSource, translated
from dw_platform.extract.types import ColumnMapping
from dw_platform.foundation import InvalidValueError


@dataclass(frozen=True, slots=True)
class TableQuery:
    """What to read of a table and in which order; may be pickled."""

    table: SourceTable
    columns: tuple[ColumnMapping, ...]
    order: tuple[OrderColumn, ...]
    """Its columns contain a key of the table."""

    where: tuple[Condition, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The schema of every page; notes travel as metadata of their columns."""
        return pa.schema(
            [
                pa.field(each.name, each.arrow, metadata={"note": each.note} if each.note else None)
                for each in self.columns
            ]
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in order, and where they end."""

    rows: pa.Table
    last: Position | None
    """The position of the last row; None if there are no rows."""

    exhausted: bool
    """Whether fewer rows came than were asked for, so that nothing is left up to the bound."""


class PageReader:
    """One connection, used by one thread, open between entering and leaving the context."""

    def __init__(self, source: DatabaseSource, query: TableQuery) -> None:
        self._source, self._query = source, query
        self._notation = notation_of(source.kind)
        self._numbers = number_columns(query.table)
        self._filter = conditions_sql(
            query.where, notation=self._notation, quote=query.table.quote, numbers=self._numbers
        )
        keys = keyset.key_expressions(
            query.order, notation=self._notation, quote=query.table.quote, native=native_columns(query.table)
        )
        self._page = Selection.of(query.columns, keys, source.kind)
        self._keys = Selection.of((), keys, source.kind)
        self._rows: Rows | None = None

    def __enter__(self) -> Self:
        self._rows = open_rows(self._source)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def page(self, after: Position | None, limit: int, *, upto: Position | None = None) -> Page:
        """Return up to `limit` rows after `after`, none of them beyond `upto`."""
        if limit < 1:
            raise InvalidValueError("limit", limit, "at least 1")
        parts: list[pa.Table] = []
        last, missing = None, limit
        for branch in self._branches(self._query.order, after, upto):
            columns, key = self._fetch(self._page, branch, missing)
            if columns:
                parts.append(self._checked(columns))
                missing -= len(columns[0])
            last = key or last
            if missing <= 0:
                break
        rows = pa.concat_tables(parts) if parts else self._query.schema.empty_table()
        return Page(rows, last, exhausted=missing > 0)

    def last_position(self) -> Position | None:
        """Return the greatest position there is now, the bound for a reading that has to end."""
        backwards = keyset.reversed_order(self._query.order)
        for branch in self._branches(backwards, None, None):
            _, key = self._fetch(self._keys, branch, 1)
            if key is not None:
                return key
        return None

    def has_null_in_key(self) -> bool:
        """Return whether a row has NULL in a column of the order that may be NULL by its declaration."""
        table = self._query.table
        names = [each.name for each in self._query.order if table.column(each.name).nullable]
        for name in names:
            _, key = self._fetch(self._keys, keyset.Branch(f"{table.quote(name)} IS NULL", ""), 1)
            if key is not None:
                return True
        return False

    def _branches(
        self, order: Sequence[OrderColumn], after: Position | None, upto: Position | None
    ) -> list[keyset.Branch]:
        return keyset.branches(order, after, upto, notation=self._notation, quote=self._qualified)

    def _qualified(self, name: str) -> str:
        # In ORDER BY a bare name means the output column of that name: PostgreSQL gives it to CAST(name AS text), which
        # sorts differently.
        return f"{self._query.table.quoted()}.{self._query.table.quote(name)}"

    def _fetch(
        self, selection: Selection, branch: keyset.Branch, limit: int
    ) -> tuple[list[pa.ChunkedArray], Position | None]:
        if self._rows is None:
            raise InvalidValueError("reader", "closed", "used inside its `with` block")
        table = self._query.table
        where = " AND ".join(part for part in (self._filter, branch.where) if part)
        tail = f"FROM {table.quoted()}"
        tail += f" WHERE {where}" if where else ""
        tail += f" ORDER BY {branch.order_by}" if branch.order_by else ""
        with translated(self._source, str(table)):
            columns, values = self._rows.fetch(selection, f"{tail} LIMIT {int(limit)}", limit)
        if values is None:
            return [], None
        return columns, keyset.position_of(selection.grouped(values), notation=self._notation)

    def _checked(self, columns: list[pa.ChunkedArray]) -> pa.Table:
        query, selection = self._query, self._page
        if selection.guard is not None and (found := selection.broken_guard(columns[selection.guard])) is not None:
            mapping = query.columns[found]
            raise ValueNotKeptError(query.table.source, str(query.table), mapping.name, mapping.guard_what)
        check_text = self._rows is not None and self._rows.check_text
        arrays = [
            conformed(columns[at], mapping, query.table, check_text=check_text)
            for at, mapping in zip(selection.values, query.columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=query.schema)


def read_values(page: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a small page as Python values."""
    rows: list[dict[str, Any]] = page.to_pylist()
    return rows
