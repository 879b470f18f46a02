"""SQLite's pragmas: declared types, and indexes that prove uniqueness.

Three oddities: a primary key may hold NULL unless it is the rowid or the table has none; an index may have another
collation than its column, and proves nothing about the column's own comparison then; types are words to which cells
need not keep.
"""

import re
from typing import Any

from sqlalchemy import Connection

from dw_platform.extract.description import (
    ColumnKind,
    SourceColumn,
    SourceTable,
    UniqueKey,
    quote_name,
    sorted_keys,
)

_DIGITS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
_PLAIN = {"no_parameters": True}


class SqliteCatalog:
    """A Catalog."""

    def find(self, connection: Connection, source: str, schema: str | None, name: str) -> SourceTable | None:
        if schema not in {None, "main"}:
            return None
        found = connection.exec_driver_sql(
            "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE", (name,)
        ).first()
        if found is None:
            return None
        rows = connection.exec_driver_sql(
            'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1', (found[0],)
        ).all()
        return SourceTable(
            source=source,
            kind="sqlite",
            schema=None,
            name=found[0],
            is_view=found[1] == "view",
            columns=tuple(SourceColumn(n, kind, not required, declared(kind)) for n, kind, required, _ in rows),
            keys=() if found[1] == "view" else _keys(connection, found[0], rows),
        )

    def names(self, connection: Connection) -> list[str]:
        names = connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'",
            execution_options=_PLAIN,
        ).scalars()
        return [str(name) for name in names]


def declared(text: str) -> ColumnKind:
    """Return what the words of a declaration say."""
    digits = _DIGITS.search(text)
    return ColumnKind(
        " ".join(_DIGITS.sub(" ", text).upper().split()),
        precision=int(digits[1]) if digits else None,
        scale=int(digits[2] or 0) if digits else None,
    )


def _keys(connection: Connection, table: str, columns: Any) -> tuple[UniqueKey, ...]:
    optional = {name: not required for name, _, required, _ in columns}
    primary = tuple(name for name, _, _, at in sorted(columns, key=lambda row: row[3]) if at)
    indexes = connection.exec_driver_sql(
        'SELECT name, origin FROM pragma_index_list(?) WHERE "unique" AND NOT partial ORDER BY name', (table,)
    ).all()
    found = []
    if primary and all(origin != "pk" for _, origin in indexes):
        # Only the rowid itself has no index of its own, and it is never NULL.
        found.append(UniqueKey(primary, primary=True))
    for index, origin in indexes:
        parts = connection.exec_driver_sql(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", (index,)
        ).all()
        if all(name is not None and _collation(connection, table, name) == coll.upper() for name, coll in parts):
            key = tuple(str(name) for name, _ in parts)
            nullable = any(optional.get(name, True) for name in key)
            found.append(UniqueKey(key, primary=origin == "pk", nullable=nullable))
    return sorted_keys(found)


def _collation(connection: Connection, table: str, column: str) -> str:
    """Return a column's collation; no pragma tells it, but a comparison shows it."""
    name, owner = quote_name("sqlite", column), quote_name("sqlite", table)
    same_case, padded = connection.exec_driver_sql(
        f"SELECT x = 'A', x = 'a ' FROM (SELECT {name} AS x FROM {owner} WHERE 0 UNION ALL SELECT 'a')",  # noqa: S608
        execution_options=_PLAIN,
    ).one()
    return "NOCASE" if same_case else "RTRIM" if padded else "BINARY"
