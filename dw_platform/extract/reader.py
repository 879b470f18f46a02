"""Pages of a table as Arrow, each after the position where the one before ended.

A page is read by one statement a branch (see keyset.py), and no transaction stays open between statements, so a
reader that waits holds nothing in the source. What a page costs here is Arrow work by column, never Python by row.

The rows have exactly the mapped names and types. A value that its type cannot keep raises ValueNotKeptError; a table
that was dropped or altered raises SourceChangedError; a connection that died raises DatabaseUnavailableError, and
whoever opens a new reader continues after the last position that a page returned.
"""

from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import pyarrow as pa

from dw_platform.extract import keyset
from dw_platform.extract.conditions import Condition, conditions_sql
from dw_platform.extract.conform import conformed
from dw_platform.extract.description import SourceTable
from dw_platform.extract.errors import ValueNotKeptError
from dw_platform.extract.key_column import OrderColumn, Position
from dw_platform.extract.notation import Notation, notation_of
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

    @property
    def notation(self) -> Notation:
        """How the database writes values."""
        return notation_of(self.table.kind)

    def key_expressions(self) -> list[tuple[str, ...]]:
        """Return what to select so that the position of a row is known."""
        native = native_columns(self.table)
        return keyset.key_expressions(self.order, notation=self.notation, quote=self.table.quote, native=native)

    def branches(self, after: Position | None, upto: Position | None) -> list[keyset.Branch]:
        """Return the statements for the rows after one position up to another."""
        return keyset.branches(self.order, after, upto, notation=self.notation, quote=self.qualified)

    def qualified(self, name: str) -> str:
        """Return a column's name with its table in front.

        In ORDER BY a bare name means the output column of that name, and a cursor that is both a column and, as text,
        part of the position would be two of them.
        """
        return f"{self.table.quoted()}.{self.table.quote(name)}"

    def tail(self, where: str, order_by: str, *, sample: str = "") -> str:
        """Return the part of a statement behind its select list, with this query's own filter."""
        numbers = number_columns(self.table)
        own = conditions_sql(self.where, notation=self.notation, quote=self.qualified, numbers=numbers)
        condition = " AND ".join(part for part in (own, where) if part)
        parts = [f"FROM {self.table.quoted()}", sample]
        parts += [f"WHERE {condition}" if condition else "", f"ORDER BY {order_by}" if order_by else ""]
        return " ".join(part for part in parts if part)


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
        self._page = Selection.of(query.columns, query.key_expressions(), source.kind)
        self._keys = Selection.of((), query.key_expressions(), source.kind)
        self._opened: Rows | None = None

    def __enter__(self) -> Self:
        self._opened = open_rows(self._source)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def page(self, after: Position | None, limit: int, *, upto: Position | None = None) -> Page:
        """Return up to `limit` rows after `after`, none of them beyond `upto`."""
        if limit < 1:
            raise InvalidValueError("limit", limit, "at least 1")
        parts: list[pa.Table] = []
        last, missing = None, limit
        for branch in self._query.branches(after, upto):
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
        backwards = replace(self._query, order=keyset.reversed_order(self._query.order))
        for branch in backwards.branches(None, None):
            _, key = self._fetch(self._keys, branch, 1)
            if key is not None:
                return key
        return None

    def position_ahead(self, after: Position | None, rows: int, *, upto: Position | None = None) -> Position | None:
        """Return the position `rows` rows after `after`; None if there are not so many up to `upto`."""
        missing = rows
        for branch in self._query.branches(after, upto):
            _, key = self._fetch(self._keys, branch, 1, offset=missing - 1)
            if key is not None:
                return key
            # The branch has fewer rows than are to be passed over; the next one begins where it ends.
            missing -= self._count(branch)
        return None

    def count(self, *, upto: Position | None = None) -> int:
        """Return exactly how many rows there are up to `upto`."""
        return sum(self._count(branch) for branch in self._query.branches(None, upto))

    def has_null_in_key(self) -> bool:
        """Return whether a row has NULL in a column of the order that may be NULL by its declaration."""
        table = self._query.table
        names = [each.name for each in self._query.order if table.column(each.name).nullable]
        nulls = (keyset.Branch(f"{table.quote(name)} IS NULL", "") for name in names)
        return any(self._fetch(self._keys, branch, 1)[1] is not None for branch in nulls)

    @property
    def _rows(self) -> Rows:
        if self._opened is None:
            raise InvalidValueError("reader", "closed", "used inside its `with` block")
        return self._opened

    def _fetch(
        self, selection: Selection, branch: keyset.Branch, limit: int, *, offset: int = 0
    ) -> tuple[list[pa.ChunkedArray], Position | None]:
        tail = f"{self._query.tail(branch.where, branch.order_by)} LIMIT {int(limit)}"
        with translated(self._source, str(self._query.table)):
            columns, values = self._rows.fetch(selection, f"{tail} OFFSET {offset}" if offset else tail, limit)
        if values is None:
            return [], None
        return columns, keyset.position_of(selection.grouped(values), notation=self._query.notation)

    def _count(self, branch: keyset.Branch) -> int:
        counting = Selection.of((), [("count(*)",)], self._source.kind)
        with translated(self._source, str(self._query.table)):
            _, values = self._rows.fetch(counting, self._query.tail(branch.where, ""), 1)
        return int(values[0]) if values else 0

    def _checked(self, columns: list[pa.ChunkedArray]) -> pa.Table:
        query, selection = self._query, self._page
        if selection.guard is not None and (found := selection.broken_guard(columns[selection.guard])) is not None:
            mapping = query.columns[found]
            raise ValueNotKeptError(query.table.source, str(query.table), mapping.name, mapping.guard_what)
        arrays = [
            conformed(columns[at], mapping, query.table, check_text=self._rows.check_text)
            for at, mapping in zip(selection.values, query.columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=query.schema)
