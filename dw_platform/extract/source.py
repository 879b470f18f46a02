"""A database the platform reads from: its address, its limits, and the two ways to talk to it.

`open_engine` gives SQLAlchemy connections for metadata, single rows and everything that is not bulk;
`adbc_connection` gives Arrow tables at the speed of the database (PostgreSQL, SQLite). Both set up their sessions the
same way (see sessions.py): read-only, with timeouts, in UTC, with texts in one notation.

Every statement runs inside `translated`, which turns whatever a driver raises into the errors of this package.
The password is in `url` alone; representations, messages and chained exceptions do not show it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy import URL, Engine, QueuePool, create_engine, event, exc, make_url

from dw_platform.extract import sessions
from dw_platform.extract.driver_errors import Remedy, report_of
from dw_platform.extract.errors import (
    DatabaseAccessError,
    DatabaseUnavailableError,
    SourceChangedError,
    StatementRefusedError,
)
from dw_platform.foundation import InvalidValueError, MissingExtraError, PlatformError
from dw_platform.store.urls import without_password

Kind = Literal["postgresql", "mysql", "sqlite"]

_KINDS: dict[str, Kind] = {
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_ALLOWED = (
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, mysql://USER:PASSWORD@HOST:PORT/DATABASE (also for MariaDB) or "
    "sqlite:///FILE, with special characters of a password as %XX"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSource:
    """A database to read from; may be pickled, and opens nothing by itself."""

    name: str
    """What the platform calls it, in messages and metadata."""

    url: str = field(repr=False)
    """Its address as SQLAlchemy writes it; a relative file of SQLite is made absolute."""

    connect_timeout_s: float = 5.0
    """Until a connection stands; libpq counts in whole seconds, of which it takes two at least."""

    statement_timeout_s: float = 300.0
    """For one statement: a page of a healthy table takes well below a second."""

    max_connections: int = 4
    """Most that are open at once in one process; sources serve others too."""

    chunk_bytes: int = 64 * 1024
    """Piece in which a large value is fetched."""

    buffer_bytes: int = 64 * 1024 * 1024
    """Most bytes of one large value that are held at once."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout_s", "statement_timeout_s", "max_connections", "chunk_bytes", "buffer_bytes"):
            if not getattr(self, name) > 0:
                raise InvalidValueError(name, getattr(self, name), "more than 0")
        url = self.parsed
        if url.get_backend_name() not in _KINDS:
            raise InvalidValueError("database url", self.shown, _ALLOWED)
        if self.kind == "sqlite":
            if not url.database or url.database == ":memory:" or url.query:
                raise InvalidValueError("database url", self.shown, "sqlite:///FILE, without options")
            # Absolute, so that a pickled source opens the same file in a process with another working directory.
            absolute = url.set(database=str(Path(url.database).absolute()))
            object.__setattr__(self, "url", absolute.render_as_string(hide_password=False))

    @property
    def parsed(self) -> URL:
        try:
            return make_url(self.url)
        except (exc.ArgumentError, ValueError):
            # Without the cause: SQLAlchemy quotes the address it could not read, password and all.
            raise InvalidValueError("database url", self.shown, _ALLOWED) from None

    @property
    def kind(self) -> Kind:
        """The database's family, which decides notation and driver."""
        return _KINDS[self.parsed.get_backend_name()]

    @property
    def shown(self) -> str:
        """The address without its password."""
        return without_password(self.url)

    @property
    def file(self) -> Path:
        """The file of a SQLite source."""
        return Path(self.parsed.database or "")


def open_engine(source: DatabaseSource) -> Engine:
    """Return an engine with at most `max_connections` connections; it connects with its first statement."""
    arguments = {"hide_parameters": True, "poolclass": QueuePool, "pool_size": source.max_connections}
    arguments |= {"max_overflow": 0, "pool_timeout": source.statement_timeout_s, "pool_pre_ping": True}
    try:
        match source.kind:
            case "postgresql":
                url = source.parsed.set(drivername="postgresql+psycopg")
                engine = create_engine(
                    url, connect_args=_missing(url, sessions.postgres_arguments(source)), **arguments
                )
                event.listen(engine, "connect", lambda raw, _: sessions.prepare_psycopg(raw, source), insert=True)
            case "mysql":
                url = source.parsed.set(drivername="mysql+pymysql")
                given = _missing(url, sessions.mysql_arguments(source))
                engine = create_engine(url, connect_args=given, **arguments)
                event.listen(engine, "connect", lambda raw, _: sessions.prepare_mysql(raw, source), insert=True)
            case "sqlite":
                engine = create_engine(
                    "sqlite+pysqlite://", creator=lambda: sessions.open_sqlite(source, _sqlite_uri(source)), **arguments
                )
    except ImportError as error:
        raise _missing_extra(source) from error
    return engine


def adbc_connection(source: DatabaseSource) -> Any:
    """Return a new ADBC connection (DB-API) that commits by itself: nothing stays open between statements."""
    with translated(source):
        if source.kind == "sqlite":
            return _adbc_sqlite(source)
        if source.kind == "mysql":
            raise InvalidValueError("database url", source.shown, "PostgreSQL or SQLite, which ADBC reads")
        try:
            import adbc_driver_postgresql.dbapi as adbc_postgresql  # type: ignore[import-untyped]  # noqa: PLC0415
            from psycopg.conninfo import make_conninfo  # noqa: PLC0415
            from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg  # noqa: PLC0415
        except ImportError as error:
            raise _missing_extra(source) from error
        # SQLAlchemy reads the address, so that both drivers understand it alike; a conninfo has no escaping of its own
        # kind for `+` or spaces, on which the two writers of URLs differ.
        _, options = PGDialect_psycopg().create_connect_args(source.parsed)  # type: ignore[no-untyped-call]
        connection = adbc_postgresql.connect(
            make_conninfo(**(sessions.postgres_arguments(source) | options)), autocommit=True
        )
        return _prepared(connection, sessions.postgres_settings(source))


@contextmanager
def translated(source: DatabaseSource, table: str = "") -> Iterator[None]:
    """Turn what drivers raise into this package's errors; with a `table`, missing things mean that it was changed."""
    try:
        yield
    except PlatformError:
        raise
    except Exception as error:
        translation = translation_of(error, source, table)
        if translation is None:
            raise
        # A chained exception is printed too, so one that quotes the password must not be chained.
        raise translation from (error if scrubbed(source, str(error)) == str(error) else None)


def translation_of(error: BaseException, source: DatabaseSource, table: str = "") -> PlatformError | None:
    """Return this package's error for a driver's; None where no driver has raised it."""
    report = report_of(error)
    if report is None:
        return None
    text = scrubbed(source, report.text)
    match report.remedy:
        case Remedy.WAIT:
            return DatabaseUnavailableError(source.name, text)
        case Remedy.ACCESS:
            return DatabaseAccessError(source.name, text)
        case Remedy.START_AGAIN if table:
            return SourceChangedError(source.name, table, text)
        case _:
            return StatementRefusedError(source.name, text)


def scrubbed(source: DatabaseSource, text: str) -> str:
    """Return a driver's text without the password, in whatever form it may quote it."""
    text = text.replace(source.url, source.shown)
    url = source.parsed
    given = [url.password, *(url.query.get(name) for name in ("password", "sslpassword"))]
    for password in given:
        if password:
            for form in (str(password), quote(str(password), safe=""), quote(str(password))):
                text = text.replace(form, "***")
    return text


def _missing(url: URL, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the address does not set by itself."""
    return {name: value for name, value in arguments.items() if name not in url.query}


def _adbc_sqlite(source: DatabaseSource) -> Any:
    import adbc_driver_sqlite.dbapi as adbc_sqlite  # noqa: PLC0415 - only for bulk reading

    sessions.check_sqlite_file(source.name, source.file)
    return _prepared(
        adbc_sqlite.connect(_sqlite_uri(source), autocommit=True), f"PRAGMA busy_timeout={sessions.busy_ms(source)}"
    )


def _prepared(connection: Any, statement: str) -> Any:
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            cursor.fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _sqlite_uri(source: DatabaseSource) -> str:
    # Read-only also means that a missing file is not created.
    return f"file:{quote(str(source.file))}?mode=ro"


def _missing_extra(source: DatabaseSource) -> MissingExtraError:
    if source.kind == "mysql":
        return MissingExtraError(f"Reading from {source.name} (MySQL or MariaDB)", "mysql")
    return MissingExtraError(f"Reading from {source.name} (PostgreSQL)", "postgres")
