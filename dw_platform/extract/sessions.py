"""How a session with a source is set up, so that values come in one notation and nothing waits for ever.

Three limits end a wait: the connect timeout (also for a server that accepts and stays silent), the server's own
statement timeout, and the socket's (keepalive, read timeout) when the other side is gone without a word.
"""

import math
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dw_platform.extract.errors import DatabaseUnavailableError

if TYPE_CHECKING:
    from dw_platform.extract.source import DatabaseSource

# The server answers a statement that it cancelled; only a server that is gone lets this pass too.
_GRACE_S = 10
# A writer holds SQLite's lock for moments; a reader of a file in WAL mode does not wait for it at all.
_LONGEST_BUSY_S = 30


def postgres_arguments(source: "DatabaseSource") -> dict[str, Any]:
    """Return libpq's parameters: a silent peer is noticed within about 20 s, also in the middle of a page."""
    return {
        "connect_timeout": max(2, math.ceil(source.connect_timeout_s)),
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
        "client_encoding": "UTF8",
        "application_name": "dw_platform extract",
    }


def postgres_settings(source: "DatabaseSource") -> str:
    """Return one statement that makes the session read-only, limited in time, and exact in what it prints."""
    settings = {
        "statement_timeout": str(math.ceil(source.statement_timeout_s * 1000)),
        "lock_timeout": str(math.ceil(source.statement_timeout_s * 1000)),
        "idle_in_transaction_session_timeout": str(math.ceil(source.statement_timeout_s * 1000)),
        "default_transaction_read_only": "on",
        "timezone": "UTC",
        "datestyle": "ISO, YMD",
        "intervalstyle": "iso_8601",
        "bytea_output": "hex",
        "extra_float_digits": "1",
        "standard_conforming_strings": "on",
    }
    # As one SELECT, because ADBC prepares what it is given, and only single statements can be prepared.
    calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
    return f"SELECT {calls}"


def prepare_psycopg(connection: Any, source: "DatabaseSource") -> None:
    """Set up a new connection of psycopg."""
    connection.execute(postgres_settings(source))
    connection.commit()


def mysql_arguments(source: "DatabaseSource") -> dict[str, Any]:
    """Return pymysql's parameters; until the session is prepared the connect timeout holds for reads too."""
    return {
        "charset": "utf8mb4",
        "connect_timeout": max(1, math.ceil(source.connect_timeout_s)),
        "read_timeout": max(1, math.ceil(source.connect_timeout_s)),
        "write_timeout": max(1, math.ceil(source.connect_timeout_s)),
        "local_infile": False,
    }


def prepare_mysql(connection: Any, source: "DatabaseSource") -> None:
    """Set up a new connection of pymysql."""
    if "mariadb" in connection.get_server_info().lower():
        limit = f"max_statement_time={source.statement_timeout_s:.3f}"
    else:
        limit = f"max_execution_time={math.ceil(source.statement_timeout_s * 1000)}"
    # ANSI_QUOTES or NO_BACKSLASH_ESCAPES would change what quoted names and texts mean; '' restores the plain rules.
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION {limit}, time_zone='+00:00', sql_mode=''")
        # Its variable has two names among the servers in use; the statement has one.
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
    connection.commit()
    # pymysql applies its connect timeout to the socket alone, so a server that accepts and stays silent is noticed by
    # the read timeout, which then has to grow for statements.
    connection._read_timeout = source.statement_timeout_s + _GRACE_S  # noqa: SLF001 - there is no public way later


def open_sqlite(source: "DatabaseSource", uri: str) -> sqlite3.Connection:
    """Return a connection that any thread may use, one at a time, as the pool takes care of."""
    check_sqlite_file(source.name, source.file)
    return sqlite3.connect(uri, uri=True, timeout=busy_ms(source) / 1000, check_same_thread=False)


def check_sqlite_file(name: str, file: Path) -> None:
    """Refuse a file that is not there with its name, which the drivers leave out."""
    if not file.is_file():
        raise DatabaseUnavailableError(name, f"there is no file {file}")


def busy_ms(source: "DatabaseSource") -> int:
    """Return how long to wait for a writer of the file."""
    return math.ceil(min(source.statement_timeout_s, _LONGEST_BUSY_S) * 1000)
