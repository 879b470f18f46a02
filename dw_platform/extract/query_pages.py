"""Pages of a query: by a key that the user vouches for, or by offset.

The query is read as a table of its own: `SELECT q.* FROM (...) AS q`. Its values come as the driver gives them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from dw_platform.extract.conditions import Condition, conditions_sql
from dw_platform.extract.description import quote_name
from dw_platform.extract.key_column import OrderColumn, Position
from dw_platform.extract.keyset import branches, key_expressions, position_of, reversed_order
from dw_platform.extract.notation import notation_of
from dw_platform.extract.source import Kind
from dw_platform.extract.statements import ask, cut, select
from dw_platform.foundation import InvalidValueError

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QueryTable:
    """A query and the columns that it has now."""

    kind: Kind
    query: str
    names: tuple[str, ...]
    fingerprint: str

    @classmethod
    def describe(cls, connection: Connection, kind: Kind, query: str) -> "QueryTable":
        """Ask the database for the columns of a query, without a row."""
        cursor = ask(connection, select("q.*", _origin(query), where=["1 = 0"])).cursor
        described = [] if cursor is None else [(str(each[0]), repr(each[1])) for each in cursor.description]
        names = [name for name, _ in described]
        for at, name in enumerate(names):
            if name in names[:at]:
                raise InvalidValueError("query", name, "one whose columns all have names of their own")
        return cls(kind, query, tuple(names), hashlib.sha256(repr(described).encode()).hexdigest()[:32])

    @property
    def origin(self) -> str:
        """What stands after FROM."""
        return _origin(self.query)

    def quote(self, name: str) -> str:
        """Return a column's name as SQL."""
        return f"q.{quote_name(self.kind, name)}"

    def filter(self, where: Sequence[Condition]) -> str:
        """Return the conditions as SQL."""
        return conditions_sql(where, notation=notation_of(self.kind), quote=self.quote)


def keyset_rows(
    connection: Connection,
    table: QueryTable,
    order: Sequence[OrderColumn],
    where: Sequence[Condition],
    *,
    after: Position | None,
    upto: Position | None,
    limit: int,
) -> tuple[list[Row], Position | None]:
    """Return up to `limit` rows after a position, and the position of the last of them."""
    notation = notation_of(table.kind)
    keys = key_expressions(order, notation=notation, quote=table.quote)
    selected = ", ".join(["q.*", *(part for parts in keys for part in parts)])
    rows: list[Row] = []
    last: Sequence[Any] | None = None
    for branch in branches(order, after, upto, notation=notation, quote=table.quote):
        conditions, missing = [table.filter(where), branch.where], cut(limit - len(rows))
        statement = select(selected, table.origin, where=conditions, order_by=branch.order_by, cut=missing)
        for row in ask(connection, statement):
            rows.append(dict(zip(table.names, row, strict=False)))
            last = row
        if len(rows) >= limit:
            break
    if last is None:
        return rows, None
    left = iter(last[len(table.names) :])
    return rows, position_of([[next(left) for _ in parts] for parts in keys], notation=notation)


def last_position(
    connection: Connection, table: QueryTable, order: Sequence[OrderColumn], where: Sequence[Condition]
) -> Position | None:
    """Return the position of the query's last row."""
    _, found = keyset_rows(connection, table, reversed_order(order), where, after=None, upto=None, limit=1)
    return found


def offset_rows(
    connection: Connection,
    table: QueryTable,
    order: Sequence[OrderColumn],
    where: Sequence[Condition],
    *,
    offset: int,
    limit: int,
) -> list[Row]:
    """Return up to `limit` rows after the first `offset`."""
    if table.kind == "mysql" and not order and not where:
        # It forgets the order of a query inside another, but not of one in brackets.
        statement = f"({table.query}\n) {cut(limit, offset)}"
    else:
        statement = all_rows(table, order, where, cut(limit, offset))
    return [dict(zip(table.names, row, strict=True)) for row in ask(connection, statement)]


def all_rows(table: QueryTable, order: Sequence[OrderColumn], where: Sequence[Condition], rows: str = "") -> str:
    """Return the statement for all rows of a query, or for those that the clause `rows` leaves."""
    notation = notation_of(table.kind)
    items = [
        notation.sort_item(table.quote(each.name), descending=each.descending, nulls_first=each.nulls_first)
        for each in order
    ]
    return select("q.*", table.origin, where=[table.filter(where)], order_by=", ".join(items), cut=rows)


def _origin(query: str) -> str:
    # The line break keeps a comment at the query's end from swallowing the bracket.
    return f"({query}\n) AS q"
