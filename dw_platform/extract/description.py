"""What a table looks like in its database: columns with their exact types, and what tells its rows apart.

`describe_table` takes a name, never SQL: `table` or `schema.table`, each exactly as the database spells it. A dot may
be part of a name, so the whole text is looked up first. Any identifier is legal and is quoted by `quote_name`, which
is the only way names get into statements.
"""

import difflib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from dw_platform.extract.errors import UnknownSourceColumnError, UnknownSourceTableError
from dw_platform.extract.source import DatabaseSource, Kind, translated
from dw_platform.foundation import InvalidValueError


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """What a declared type is made of, as far as the mapping to Arrow needs it."""

    base: str
    """PostgreSQL: the catalog's name after all domains (`int4`; `schema.name` outside pg_catalog); MySQL: the type's
    name (`bigint`); SQLite: the declared type in capitals without brackets (`VARCHAR`), or nothing."""

    family: str = "base"
    """PostgreSQL: base, enum, range, composite, array or unknown; always base elsewhere."""

    precision: int | None = None
    scale: int | None = None
    unsigned: bool = False
    text: bool = False
    """MySQL: whether the column has a character set, so that its bytes are text."""

    element: "ColumnKind | None" = None
    """Of an array."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """One column as the database declares it."""

    name: str
    type_text: str
    nullable: bool
    kind: ColumnKind


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """Columns whose values tell all rows apart, in the order of the index."""

    columns: tuple[str, ...]
    primary: bool = False
    nullable: bool = False
    """Whether a column may be NULL; rows with NULL are then not told apart."""

    trusted: bool = False
    """Whether only the user says so, and no constraint."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table or view of a source; may be pickled."""

    source: str
    kind: Kind
    schema: str | None
    name: str
    is_view: bool
    """Whether no index can vouch for all its rows: views, foreign tables, parents of inheriting tables."""

    columns: tuple[SourceColumn, ...]
    keys: tuple[UniqueKey, ...] = ()
    """The primary key first, then keys over columns that are NOT NULL, then the others."""

    estimated_rows: int | None = None
    """What the database's own statistics say; None where they say nothing."""

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def fingerprint(self) -> str:
        """A hash that changes whenever a column is added, removed, renamed, moved or declared otherwise."""
        facts = [(column.name, column.type_text, column.nullable) for column in self.columns]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def column(self, name: str) -> SourceColumn:
        """Return the column with this name, or raise UnknownSourceColumnError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownSourceColumnError(self.source, str(self), name, [column.name for column in self.columns])

    def quoted(self) -> str:
        """Return the table's name as SQL."""
        return ".".join(self.quote(part) for part in (self.schema, self.name) if part is not None)

    def quote(self, name: str) -> str:
        """Return a column's name as SQL."""
        return quote_name(self.kind, name)


def quote_name(kind: Kind, name: str) -> str:
    """Return an identifier as SQL, for statements without parameters.

    Not by SQLAlchemy, which doubles every % for drivers that look for placeholders; ADBC does not. Backticks for
    SQLite, which takes a name in double quotes for a text where there is no such column (any more).
    """
    if not name or "\0" in name:
        raise InvalidValueError("name", name, "a name without NUL characters")
    mark = '"' if kind == "postgresql" else "`"
    return mark + name.replace(mark, mark * 2) + mark


class Catalog(Protocol):
    """Where one kind of database keeps its descriptions."""

    def find(self, connection: Connection, source: str, schema: str | None, name: str) -> SourceTable | None:
        """Return the description of a table, of the session's own schemas if none is given; None if there is none."""

    def names(self, connection: Connection) -> list[str]:
        """Return the tables and views a user may have meant, as they are to be written."""


def describe_table(connection: Connection, source: DatabaseSource, text: str) -> SourceTable:
    """Return the description of the table or view called `text`, or raise UnknownSourceTableError."""
    catalog = _catalog(source.kind)
    with translated(source, text):
        for schema, name in _readings(text):
            if table := catalog.find(connection, source.name, schema, name):
                return table
        known = catalog.names(connection)
    folded = {name.casefold(): name for name in known}
    similar = difflib.get_close_matches(text.casefold(), folded, n=3)
    raise UnknownSourceTableError(source.name, text, [folded[name] for name in similar])


def _readings(text: str) -> Iterator[tuple[str | None, str]]:
    """Give every way to read `text`: as one name, then as schema and name at each of its dots."""
    if not text or "\0" in text:
        return
    yield None, text
    for at, letter in enumerate(text):
        if letter == "." and 0 < at < len(text) - 1:
            yield text[:at], text[at + 1 :]


def _catalog(kind: Kind) -> Catalog:
    # Here, because each of the three builds the descriptions above.
    from dw_platform.extract import catalog_mysql, catalog_postgresql, catalog_sqlite  # noqa: PLC0415

    known: dict[Kind, Catalog] = {
        "postgresql": catalog_postgresql.PostgresCatalog(),
        "mysql": catalog_mysql.MysqlCatalog(),
        "sqlite": catalog_sqlite.SqliteCatalog(),
    }
    return known[kind]


def sorted_keys(keys: list[UniqueKey]) -> tuple[UniqueKey, ...]:
    """Return keys by how well they serve: primary, never NULL, few columns."""
    return tuple(sorted(keys, key=lambda key: (not key.primary, key.nullable, len(key.columns))))
