"""The information schema of MySQL and MariaDB.

An index counts if it is unique over whole columns: one over the first characters of a column could not give the order
that pages need, and one over an expression has no column at all.
"""

from typing import Any

from sqlalchemy import Connection, text

from dw_platform.extract.description import ColumnKind, SourceColumn, SourceTable, UniqueKey, sorted_keys

_TABLE = text("""
    SELECT table_schema, table_name, table_type, table_rows FROM information_schema.tables
    WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name
""")
_COLUMNS = text("""
    SELECT column_name, column_type, is_nullable, data_type, numeric_precision, numeric_scale, character_set_name
    FROM information_schema.columns WHERE table_schema = :schema AND table_name = :name ORDER BY ordinal_position
""")
_KEYS = text("""
    SELECT index_name, column_name, sub_part, nullable FROM information_schema.statistics
    WHERE table_schema = :schema AND table_name = :name AND non_unique = 0 ORDER BY index_name, seq_in_index
""")
_NAMES = text("""
    SELECT CASE WHEN table_schema = DATABASE() THEN table_name ELSE CONCAT(table_schema, '.', table_name) END
    FROM information_schema.tables
    WHERE table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') LIMIT 10000
""")


class MysqlCatalog:
    """A Catalog."""

    def find(self, connection: Connection, source: str, schema: str | None, name: str) -> SourceTable | None:
        row = connection.execute(_TABLE, {"schema": schema, "name": name}).first()
        if row is None:
            return None
        where = {"schema": row[0], "name": row[1]}
        return SourceTable(
            source=source,
            kind="mysql",
            schema=row[0],
            name=row[1],
            is_view=row[2] != "BASE TABLE",
            columns=tuple(_column(each) for each in connection.execute(_COLUMNS, where)),
            keys=_keys(connection.execute(_KEYS, where).all()),
            estimated_rows=None if row[3] is None else int(row[3]),
        )

    def names(self, connection: Connection) -> list[str]:
        return [str(name) for name in connection.execute(_NAMES).scalars()]


def _column(row: Any) -> SourceColumn:
    name, type_text, nullable, base, precision, scale, characters = row
    kind = ColumnKind(
        str(base).lower(),
        precision=None if precision is None else int(precision),
        scale=None if scale is None else int(scale),
        # Only of numbers, because the values of an ENUM are part of its text.
        unsigned=precision is not None and " unsigned" in str(type_text).lower(),
        text=characters is not None,
    )
    return SourceColumn(name, str(type_text), nullable == "YES", kind)


def _keys(rows: Any) -> tuple[UniqueKey, ...]:
    indexes: dict[str, list[Any]] = {}
    for row in rows:
        indexes.setdefault(row[0], []).append(row)
    return sorted_keys(
        [
            UniqueKey(
                tuple(column for _, column, _, _ in parts),
                primary=index == "PRIMARY",
                nullable=any(null == "YES" for *_, null in parts),
            )
            for index, parts in indexes.items()
            if all(column is not None and prefix is None for _, column, prefix, _ in parts)
        ]
    )
