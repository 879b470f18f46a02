"""PostgreSQL's own catalog: types through domains and arrays down to what they are made of, and usable unique indexes.

An index counts if it is valid, unique, a B-tree, without condition and without expressions. A column with a
nondeterministic collation takes different texts for equal, so there an index with another collation proves nothing.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from dw_platform.extract.description import ColumnKind, SourceColumn, SourceTable, UniqueKey, sorted_keys

_TABLE = text("""
    SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.reltuples::bigint,
        c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = CAST(:name AS text)
        AND CASE WHEN CAST(:schema AS text) IS NULL THEN pg_catalog.pg_table_is_visible(c.oid)
            ELSE n.nspname = CAST(:schema AS text) END
""")
_COLUMNS = text("""
    SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, a.atttypid, a.atttypmod
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = :table AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
""")
_TYPES = text("""
    SELECT t.oid, t.typname, n.nspname, t.typtype::text, t.typcategory::text, t.typelem, t.typbasetype, t.typtypmod
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = ANY(:types)
""")
_KEYS = text("""
    SELECT i.indexrelid, i.indisprimary, a.attname, NOT a.attnotnull,
        COALESCE(l.collisdeterministic, true) OR i.indcollation[k.n] = a.attcollation
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
        JOIN pg_catalog.pg_am m ON m.oid = x.relam AND m.amname = 'btree'
        CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS k(n)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n]
        LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
    WHERE i.indrelid = :table AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    ORDER BY x.relname, k.n
""")
_NAMES = text("""
    SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN c.relname ELSE n.nspname || '.' || c.relname END
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
    LIMIT 10000
""")
_FAMILIES = {"b": "base", "e": "enum", "r": "range", "m": "range", "c": "composite"}


class PostgresCatalog:
    """A Catalog."""

    def find(self, connection: Connection, source: str, schema: str | None, name: str) -> SourceTable | None:
        row = connection.execute(_TABLE, {"schema": schema, "name": name}).first()
        if row is None:
            return None
        oid, found_schema, found_name, relkind, rows, inherited = row
        columns = connection.execute(_COLUMNS, {"table": oid}).all()
        types = _load_types(connection, {each[3] for each in columns})
        return SourceTable(
            source=source,
            kind="postgresql",
            schema=found_schema,
            name=found_name,
            is_view=relkind in {"v", "f"} or inherited,
            columns=tuple(SourceColumn(n, shown, null, _kind(types, t, mod)) for n, shown, null, t, mod in columns),
            # A parent's index says nothing about the rows of the tables that inherit from it.
            keys=() if inherited else _keys(connection, oid),
            estimated_rows=rows if rows >= 0 and not inherited and relkind not in {"v", "f"} else None,
        )

    def names(self, connection: Connection) -> list[str]:
        return [str(name) for name in connection.execute(_NAMES).scalars()]


@dataclass(frozen=True, slots=True)
class _Type:
    name: str
    schema: str
    family: str
    category: str
    element: int
    base: int
    modifier: int


def _load_types(connection: Connection, wanted: set[int]) -> dict[int, _Type]:
    """Return the types with all that they are made of: a few rounds, because domains and arrays nest."""
    known: dict[int, _Type] = {}
    while wanted:
        rows: Any = connection.execute(_TYPES, {"types": sorted(wanted)}).all()
        known |= {row[0]: _Type(*row[1:]) for row in rows}
        parts = {part for kind in known.values() for part in (kind.element, kind.base) if part}
        missing = parts - known.keys()
        wanted = set() if missing == wanted else missing
    return known


def _kind(types: dict[int, _Type], oid: int, modifier: int) -> ColumnKind:
    kind = types.get(oid)
    if kind is None:
        return ColumnKind("unknown", "unknown")
    if kind.family == "d":
        return _kind(types, kind.base, kind.modifier if modifier == -1 else modifier)
    if kind.category == "A" and kind.element:
        return ColumnKind(kind.name, "array", element=_kind(types, kind.element, modifier))
    known = kind.schema == "pg_catalog"
    precision, scale = _digits(modifier) if kind.name == "numeric" and known else (None, None)
    return ColumnKind(
        kind.name if known else f"{kind.schema}.{kind.name}",
        _FAMILIES.get(kind.family, "unknown"),
        precision=precision,
        scale=scale,
    )


def _digits(modifier: int) -> tuple[int | None, int | None]:
    """Return precision and scale as numeric packs them; the scale is signed and has 11 bits."""
    if modifier < 4:
        return None, None
    packed = modifier - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def _keys(connection: Connection, oid: int) -> tuple[UniqueKey, ...]:
    indexes: dict[int, list[Any]] = {}
    for row in connection.execute(_KEYS, {"table": oid}):
        indexes.setdefault(row[0], []).append(row)
    return sorted_keys(
        [
            UniqueKey(
                tuple(row[2] for row in rows), primary=rows[0][1], nullable=any(null for _, _, _, null, _ in rows)
            )
            for rows in indexes.values()
            if all(proves for *_, proves in rows)
        ]
    )
