"""The databases behind `SqlStore`: how to connect, and how a writer gets a key for itself.

Both give one guarantee: between `lock` and the end of the transaction nobody else writes the key, and what is
read after `lock` is what the last writer committed.
"""

import sqlite3
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, func, make_url, select

from dw_platform.foundation import InvalidValueError, MissingExtraError, SystemClock
from dw_platform.store.urls import without_password

# Long enough for a crowd of writers, short enough that a stuck one is reported instead of waited for.
_LOCK_TIMEOUT_S = 30
_CONNECT_TIMEOUT_S = 5
# The first half of this platform's advisory locks, so that those of other programs are never waited for.
_ADVISORY_CLASS = 0x6477
_WRITES = "dw_writes"
_ALLOWED = (
    "sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of a password as %XX"
)


class UnsuitableDatabaseError(Exception):
    """The database answers but cannot keep the store's promises; the store that uses it says so in its words."""


class Database(Protocol):
    """One kind of SQL database; it is connected with the first statement."""

    engine: Engine

    def begin(self) -> AbstractContextManager[Connection]:
        """Return a transaction that may write."""

    def lock(self, connection: Connection, name: str) -> None:
        """Keep other writers of `name` out until the transaction ends."""


def open_database(url: str) -> Database:
    """Return the database that `url` names."""
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise InvalidValueError("store address", without_password(url), _ALLOWED) from error
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            return SqliteDatabase(parsed)
        case "postgres" | "postgresql" | "postgresql+psycopg":
            return PostgresDatabase(parsed)
        case _:
            raise InvalidValueError("store address", without_password(url), _ALLOWED)


class SqliteDatabase:
    """A file in WAL mode: readers never wait, one writer at a time, every commit is fsynced."""

    def __init__(self, url: URL) -> None:
        if not url.database or url.database == ":memory:":
            raise InvalidValueError("store address", str(url), "sqlite:///FILE; for a store in memory use memory://")
        # Absolute, so that a pickled store opens the same file in a process with another working directory.
        path = Path(url.database).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.engine = create_engine(
            url.set(drivername="sqlite+pysqlite", database=str(path)),
            hide_parameters=True,
            connect_args={"timeout": _LOCK_TIMEOUT_S},
        )
        event.listen(self.engine, "connect", _configure_sqlite)
        event.listen(self.engine, "begin", _begin_sqlite)
        self._writer = self.engine.execution_options(**{_WRITES: True})

    def begin(self) -> AbstractContextManager[Connection]:
        return self._writer.begin()

    def lock(self, connection: Connection, name: str) -> None:
        """Do nothing: BEGIN IMMEDIATE has already kept every other writer out."""


class PostgresDatabase:
    """A PostgreSQL server through psycopg; writers of different keys do not wait for each other."""

    def __init__(self, url: URL) -> None:
        arguments = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_TIMEOUT_S}
        try:
            self.engine = create_engine(
                url.set(drivername="postgresql+psycopg"),
                hide_parameters=True,
                connect_args=arguments,
                # A connection that the server or a firewall dropped meanwhile is replaced before it is used.
                pool_pre_ping=True,
            )
        except ImportError as error:
            raise MissingExtraError("A control store on PostgreSQL", "postgres") from error
        event.listen(self.engine, "connect", _configure_postgres)

    def begin(self) -> AbstractContextManager[Connection]:
        return self.engine.begin()

    def lock(self, connection: Connection, name: str) -> None:
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_CLASS, func.hashtext(name))))


def _configure_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # Python would begin transactions by itself, as readers that cannot always become writers.
    connection.isolation_level = None
    mode = _switch_to_wal(connection)
    if mode != "wal":
        raise UnsuitableDatabaseError(f"it stays in journal mode {mode}; move it to a local disk, which allows WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    """Return the journal mode after asking for WAL; it stays in the file, so only the first switch does anything."""
    clock = SystemClock()
    deadline = clock.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            # The switch may ignore the busy timeout, so processes that create a store together must wait here.
            # The low byte, because a file that is being recovered is busy with a code of its own.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or clock.monotonic() >= deadline:
                raise
            clock.wait(threading.Event(), 0.01)


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE, because a reader that turns into a writer may find itself outdated and fail.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _configure_postgres(connection: Any, _record: Any) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise UnsuitableDatabaseError(f"its encoding {encoding} cannot hold every key; create it with ENCODING 'UTF8'")
    # A client that stops in the middle of a write must not keep its key locked for all others.
    milliseconds = _LOCK_TIMEOUT_S * 1000
    for setting in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(f"SET {setting} = {milliseconds}")
    connection.commit()
