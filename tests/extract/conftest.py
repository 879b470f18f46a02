"""Sources of all three kinds: SQLite as a file, PostgreSQL and MariaDB as real servers, an empty database each."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from dw_platform.extract.source import DatabaseSource, open_engine
from tests.servers import create_database, mariadb_server_url, mariadb_url, postgres_server_url, postgres_url

__all__ = ["mariadb_server_url", "mariadb_url", "postgres_server_url", "postgres_url"]

KINDS = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.server),
    pytest.param("mysql", marks=pytest.mark.server),
]


@dataclass(frozen=True)
class Sandbox:
    """A database that a test may fill, beside the platform's own read-only view of it."""

    source: DatabaseSource
    admin: Engine
    """Connections that may write."""

    @property
    def kind(self) -> str:
        return self.source.kind

    def run(self, *statements: str) -> None:
        """Execute statements as they are: no character in them is a placeholder."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.source.file)) as connection:
                for statement in statements:
                    connection.execute(statement)
                connection.commit()
            return
        with self.admin.connect() as connection:
            for statement in statements:
                cursor: Any = connection.connection.cursor()
                cursor.execute(statement.encode() if self.kind == "postgresql" else statement)
            connection.connection.commit()

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows of plain Python values; `table` is SQL, quoted by the caller where it has to be."""
        if not rows:
            return
        mark = "?" if self.kind == "sqlite" else "%s"
        statement = f"INSERT INTO {table} VALUES ({', '.join([mark] * len(rows[0]))})"
        with self.admin.connect() as connection:
            cursor: Any = connection.connection.cursor()
            cursor.executemany(statement, [tuple(row) for row in rows])
            connection.connection.commit()

    def quote(self, name: str) -> str:
        return self.admin.dialect.identifier_preparer.quote_identifier(name)


def sandbox(name: str, url: str) -> Sandbox:
    return Sandbox(DatabaseSource(name=name, url=url), create_engine(url))


@pytest.fixture
def sqlite_box(tmp_path: Path) -> Iterator[Sandbox]:
    file = tmp_path / "source.db"
    with closing(sqlite3.connect(file)) as connection:
        # WAL, so that a test can write while the platform reads, as the other two allow.
        connection.execute("PRAGMA journal_mode=WAL")
    box = sandbox("lite", f"sqlite:///{file}")
    yield box
    box.admin.dispose()


@pytest.fixture
def postgres_box(postgres_url: str) -> Iterator[Sandbox]:
    box = sandbox("pg", postgres_url.replace("postgresql://", "postgresql+psycopg://", 1))
    yield box
    box.admin.dispose()


@pytest.fixture(scope="session")
def shared_postgres_box(postgres_server_url: str) -> Iterator[Sandbox]:
    """One database for many small tests, each of which brings its own table."""
    url = create_database(postgres_server_url).replace("postgresql://", "postgresql+psycopg://", 1)
    box = sandbox("pg", url)
    yield box
    box.admin.dispose()


@pytest.fixture
def mysql_box(mariadb_url: str) -> Iterator[Sandbox]:
    box = sandbox("maria", mariadb_url)
    yield box
    box.admin.dispose()


@pytest.fixture(params=KINDS)
def box(request: pytest.FixtureRequest) -> Sandbox:
    """Each of the three in turn."""
    name = {"sqlite": "sqlite_box", "postgresql": "postgres_box", "mysql": "mysql_box"}[request.param]
    found: Sandbox = request.getfixturevalue(name)
    return found


@pytest.fixture
def engine(box: Sandbox) -> Iterator[Engine]:
    """The platform's own way to the same database."""
    opened = open_engine(box.source)
    yield opened
    opened.dispose()
