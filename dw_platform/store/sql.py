"""The store in a SQL database: SQLite for one machine, PostgreSQL for several.

    dw_store        key, version, value: one row an entry
    dw_store_floor  one row: the highest version at which a key was deleted

Durability: a write returns after COMMIT; SQLite fsyncs its log for each, PostgreSQL by its own settings.
Keys compare by bytes (collation "C" and BINARY), whatever the language of the database is.

A store is not usable in a forked child; pickling one and opening it again there works.
"""

import contextlib
from collections.abc import Collection, Iterator

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    exc,
    insert,
    select,
    update,
)

from dw_platform.store.contract import (
    DEFAULT_PAGE,
    Entries,
    Entry,
    check_expected,
    check_key,
    check_page,
    check_prefix,
    check_value,
    next_version,
    prefix_end,
)
from dw_platform.store.databases import UnsuitableDatabaseError, open_database
from dw_platform.store.errors import StoreUnavailableError, StoreUnusableError
from dw_platform.store.urls import without_password

_METADATA = MetaData()
_KEY = Text(collation="C").with_variant(Text(collation="BINARY"), "sqlite")
# The value comes last, so that SQLite reads versions without walking through long values.
_STORE = Table(
    "dw_store",
    _METADATA,
    Column("key", _KEY, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("value", LargeBinary, nullable=False),
)
_FLOOR = Table(
    "dw_store_floor",
    _METADATA,
    Column("id", Integer, primary_key=True),
    Column("version", BigInteger, nullable=False),
)
_SCHEMA_LOCK = "schema"
# SQLite takes 32,766 parameters in one statement, PostgreSQL 65,535.
_KEYS_AT_ONCE = 1000


class SqlStore:
    """A PersistentStore in the database that `url` names; the tables are created if they are missing."""

    def __init__(self, url: str) -> None:
        self._shown_url = without_password(url)
        with self._translated():
            self._database = open_database(url)
            self._create_tables()

    def __reduce__(self) -> tuple[type["SqlStore"], tuple[str]]:
        return SqlStore, (self._database.engine.url.render_as_string(hide_password=False),)

    def get(self, key: str) -> Entry | None:
        check_key(key)
        with self._reading() as connection:
            row = connection.execute(select(_STORE).where(_STORE.c.key == key)).one_or_none()
        return None if row is None else Entry(row.key, bytes(row.value), row.version)

    def put(self, key: str, value: bytes) -> Entry:
        check_key(key)
        check_value(key, value)
        with self._writing(key) as connection:
            return _write(connection, key, value, _version(connection, key))

    def compare_and_set(self, key: str, value: bytes, *, expected: int | None) -> Entry:
        check_key(key)
        check_value(key, value)
        with self._writing(key) as connection:
            actual = _version(connection, key)
            check_expected(key, expected=expected, actual=actual)
            return _write(connection, key, value, actual)

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        check_key(key)
        with self._writing(key) as connection:
            actual = _version(connection, key)
            if actual is None:
                return False
            if expected is not None:
                check_expected(key, expected=expected, actual=actual)
            connection.execute(update(_FLOOR).where(_FLOOR.c.version < actual).values(version=actual))
            connection.execute(delete(_STORE).where(_STORE.c.key == key))
            return True

    def list(self, prefix: str, *, after: str | None = None, limit: int = DEFAULT_PAGE) -> Entries:
        check_page(prefix, after, limit)
        query = select(_STORE).where(*_starts_with(prefix)).order_by(_STORE.c.key).limit(limit)
        if after is not None:
            query = query.where(_STORE.c.key > after)
        with self._reading() as connection:
            return [Entry(row.key, bytes(row.value), row.version) for row in connection.execute(query)]

    def list_versions(self, prefix: str) -> dict[str, int]:
        check_prefix(prefix)
        query = select(_STORE.c.key, _STORE.c.version).where(*_starts_with(prefix)).order_by(_STORE.c.key)
        with self._reading() as connection:
            return {row.key: row.version for row in connection.execute(query)}

    def versions_of(self, keys: Collection[str]) -> dict[str, int]:
        for key in keys:
            check_key(key)
        ordered, versions = [*keys], dict[str, int]()
        with self._reading() as connection:
            for start in range(0, len(ordered), _KEYS_AT_ONCE):
                some = _STORE.c.key.in_(ordered[start : start + _KEYS_AT_ONCE])
                rows = connection.execute(select(_STORE.c.key, _STORE.c.version).where(some))
                versions.update((row.key, row.version) for row in rows)
        return versions

    def close(self) -> None:
        self._database.engine.dispose()

    def _create_tables(self) -> None:
        # Under a lock, because of two processes that create the same table at once one would fail.
        with self._database.begin() as connection:
            self._database.lock(connection, _SCHEMA_LOCK)
            _METADATA.create_all(connection)
            if connection.execute(select(_FLOOR.c.id)).one_or_none() is None:
                connection.execute(insert(_FLOOR).values(id=1, version=0))

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._translated(), self._database.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self, key: str) -> Iterator[Connection]:
        with self._translated(), self._database.begin() as connection:
            self._database.lock(connection, key)
            yield connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except UnsuitableDatabaseError as error:
            raise StoreUnusableError(self._shown_url, str(error)) from error
        except (exc.OperationalError, exc.InterfaceError, exc.InternalError) as error:
            raise StoreUnavailableError(self._shown_url, _reason(error)) from error
        except (exc.TimeoutError, OSError) as error:
            raise StoreUnavailableError(self._shown_url, str(error)) from error
        except exc.DBAPIError as error:
            raise StoreUnusableError(self._shown_url, _reason(error)) from error


def _version(connection: Connection, key: str) -> int | None:
    return connection.execute(select(_STORE.c.version).where(_STORE.c.key == key)).scalar_one_or_none()


def _write(connection: Connection, key: str, value: bytes, actual: int | None) -> Entry:
    floor = 0 if actual is not None else connection.execute(select(_FLOOR.c.version)).scalar_one()
    entry = Entry(key, bytes(value), next_version(actual, floor))
    if actual is None:
        connection.execute(insert(_STORE).values(key=key, version=entry.version, value=entry.value))
    else:
        change = update(_STORE).where(_STORE.c.key == key)
        connection.execute(change.values(version=entry.version, value=entry.value))
    return entry


def _starts_with(prefix: str) -> Iterator[ColumnElement[bool]]:
    # A range instead of LIKE: it uses the index, and % and _ in a key mean themselves.
    yield _STORE.c.key >= prefix
    end = prefix_end(prefix)
    if end is not None:
        yield _STORE.c.key < end


def _reason(error: exc.DBAPIError) -> str:
    return " ".join(str(error.orig).split())
