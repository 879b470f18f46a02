import pickle
import socket
import sqlite3
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from dw_platform.extract.errors import (
    DatabaseAccessError,
    DatabaseUnavailableError,
    SourceChangedError,
    StatementRefusedError,
)
from dw_platform.extract.source import DatabaseSource, adbc_connection, open_engine, scrubbed, translated
from dw_platform.foundation import InvalidValueError, PlatformError
from tests.extract.conftest import Sandbox
from tests.servers import free_port, postgres_server

SECRET = "hun/ter:2@x"
QUOTED = "hun%2Fter%3A2%40x"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


def connected(source: DatabaseSource) -> Any:
    engine = open_engine(source)
    try:
        with translated(source), engine.connect() as connection:
            return connection.execute(text("SELECT 1")).scalar()
    finally:
        engine.dispose()


def fetched(source: DatabaseSource, statement: str, table: str = "") -> Any:
    with closing(adbc_connection(source)) as connection, connection.cursor() as cursor, translated(source, table):
        cursor.execute(statement)
        return cursor.fetchall()


def test_kinds_and_what_may_be_shown() -> None:
    def source(url: str) -> DatabaseSource:
        return DatabaseSource(name="x", url=url)

    assert source("postgresql://u@h/d").kind == "postgresql"
    assert source("postgresql+psycopg2://u@h/d").kind == "postgresql"
    assert source("mysql://u@h/d").kind == "mysql"
    assert source("mariadb+pymysql://u@h/d").kind == "mysql"
    assert source("sqlite:///some.db").kind == "sqlite"
    assert source(f"postgresql://u:{QUOTED}@h/d").shown == "postgresql://u:***@h/d"
    assert QUOTED not in repr(source(f"postgresql://u:{QUOTED}@h/d"))


@pytest.mark.parametrize(
    "url",
    ["oracle://u:hunter2@h/d", "mssql+pyodbc://u:hunter2@h/d", "hunter2", "", "sqlite://", "sqlite:///:memory:",
     "postgresql://u:hunter2@h:port/d", "sqlite:///a.db?mode=rw"],
)  # fmt: skip
def test_other_databases_are_refused_with_those_that_work(url: str) -> None:
    with pytest.raises(InvalidValueError, match="sqlite:///FILE") as caught:
        DatabaseSource(name="x", url=url)
    shown = "".join(traceback.format_exception(caught.value))
    assert "u:hunter2" not in shown


@pytest.mark.parametrize("field", ["connect_timeout_s", "statement_timeout_s", "max_connections", "chunk_bytes"])
def test_limits_are_above_zero(field: str) -> None:
    with pytest.raises(InvalidValueError, match="more than 0"):
        DatabaseSource(name="x", url="sqlite:///a.db", **{field: 0})  # type: ignore[arg-type]


def test_a_relative_file_stays_the_same_file_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = DatabaseSource(name="x", url="sqlite:///a b%25.db")
    assert source.file == tmp_path / "a b%.db"
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(source)).file == tmp_path / "a b%.db"


def test_sessions_cannot_write(box: Sandbox, engine: Engine) -> None:
    box.run("CREATE TABLE t (a int)")
    with pytest.raises(StatementRefusedError), translated(box.source), engine.begin() as connection:
        connection.execute(text("INSERT INTO t VALUES (1)"))
    if box.kind != "mysql":
        with pytest.raises(PlatformError):
            fetched(box.source, "INSERT INTO t VALUES (1)")


def test_no_more_connections_are_opened_than_allowed(box: Sandbox) -> None:
    source = DatabaseSource(name="few", url=box.source.url, max_connections=1, statement_timeout_s=0.2)
    engine = open_engine(source)
    with engine.connect(), pytest.raises(DatabaseUnavailableError, match="are in use"), translated(source):
        engine.connect()
    engine.dispose()


def test_a_missing_file_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    source = DatabaseSource(name="gone", url=f"sqlite:///{tmp_path}/no.db")
    for attempt in (connected, adbc_connection):
        with pytest.raises(DatabaseUnavailableError, match=r"there is no file .*no\.db"):
            attempt(source)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database" * 100)
    source = DatabaseSource(name="odd", url=f"sqlite:///{tmp_path}/x.db")
    engine = open_engine(source)
    with (
        pytest.raises(StatementRefusedError, match="not a database"),
        translated(source),
        engine.connect() as connection,
    ):
        connection.execute(text("SELECT * FROM sqlite_master"))
    engine.dispose()


def test_a_locked_file_is_waited_for_and_then_unavailable(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    with closing(sqlite3.connect(file)) as writer:
        writer.execute("CREATE TABLE t (a)")
        writer.execute("BEGIN EXCLUSIVE")
        source = DatabaseSource(name="busy", url=f"sqlite:///{file}", statement_timeout_s=0.1)
        engine = open_engine(source)
        with (
            pytest.raises(DatabaseUnavailableError, match="locked"),
            translated(source),
            engine.connect() as connection,
        ):
            connection.execute(text("SELECT * FROM t"))
        engine.dispose()


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_server_that_is_not_there_is_unavailable(kind: str, host: str) -> None:
    source = DatabaseSource(name="away", url=f"{kind}://app:{QUOTED}@{host}:{free_port()}/shop", connect_timeout_s=2)
    attempts = [connected, adbc_connection] if kind == "postgresql" else [connected]
    for attempt in attempts:
        with pytest.raises(DatabaseUnavailableError) as caught:
            attempt(source)
        assert_no_password(caught.value)


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_server_that_accepts_and_stays_silent_is_given_up(kind: str, silent_port: int) -> None:
    url = f"{kind}://app:{QUOTED}@127.0.0.1:{silent_port}/shop"
    source = DatabaseSource(name="silent", url=url, connect_timeout_s=2)
    attempts = [connected, adbc_connection] if kind == "postgresql" else [connected]
    for attempt in attempts:
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailableError) as caught:
            attempt(source)
        # Not a measure of speed: without the timeout it would be the 300 s of a statement, or for ever.
        assert time.monotonic() - started < 60
        assert_no_password(caught.value)


@pytest.mark.server
class TestPostgres:
    @pytest.fixture
    def guarded(self, postgres_box: Sandbox) -> DatabaseSource:
        """A user who may log in but not read."""
        postgres_box.run(
            "CREATE TABLE IF NOT EXISTS t (a int)",
            "DO $$ BEGIN CREATE ROLE outsider LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        )
        return DatabaseSource(name="pg", url=postgres_box.source.url.replace("postgres:@", f"outsider:{QUOTED}@"))

    def test_an_unknown_user_or_database_is_refused(self, postgres_box: Sandbox) -> None:
        url = postgres_box.source.url
        for other in (url.replace("postgres:@", f"nobody:{QUOTED}@"), url.replace("/test_", f"/{SECRET[:3]}_")):
            for attempt in (connected, adbc_connection):
                with pytest.raises(DatabaseAccessError, match="does not exist") as caught:
                    attempt(DatabaseSource(name="pg", url=other))
                assert_no_password(caught.value)

    def test_a_wrong_password_is_refused(self) -> None:
        import psycopg

        # A server of its own, because the shared one trusts everybody.
        directory = Path(tempfile.mkdtemp(prefix="dw-postgres-login-"))
        server = postgres_server(directory)
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as admin:
                admin.execute("CREATE ROLE app LOGIN PASSWORD 'right'")
                rules = Path(str(admin.execute("SHOW hba_file").fetchone()[0]))  # type: ignore[index]
                rules.write_text("local all app scram-sha-256\n" + rules.read_text())
                admin.execute("SELECT pg_reload_conf()")
            url = server.get_uri().replace("postgres:@", f"app:{QUOTED}@")
            right = DatabaseSource(name="pg", url=server.get_uri().replace("postgres:@", "app:right@"))
            # The rules are read again soon after the call, not by it.
            for attempt in (connected, adbc_connection):
                error = _refusal(attempt, DatabaseSource(name="pg", url=url))
                assert "password authentication failed" in error.cause
                assert_no_password(error)
            assert connected(right) == 1
            adbc_connection(right).close()
        finally:
            server.cleanup()

    def test_a_table_that_may_not_be_read_says_so(self, guarded: DatabaseSource) -> None:
        with pytest.raises(DatabaseAccessError, match="permission denied for table t") as caught:
            fetched(guarded, "SELECT * FROM t")
        assert "SELECT" not in str(caught.value)

    def test_both_ways_have_the_same_settings(self, postgres_box: Sandbox) -> None:
        names = ["statement_timeout", "timezone", "datestyle", "intervalstyle", "bytea_output", "client_encoding"]
        names += ["default_transaction_read_only", "standard_conforming_strings", "extra_float_digits"]
        statement = f"SELECT {', '.join(f'''current_setting('{name}')''' for name in names)}"
        source = DatabaseSource(name="pg", url=postgres_box.source.url, statement_timeout_s=7)
        expected = ("7s", "UTC", "ISO, YMD", "iso_8601", "hex", "UTF8", "on", "on", "1")
        engine = open_engine(source)
        with engine.connect() as connection:
            assert tuple(connection.execute(text(statement)).one()) == expected
        engine.dispose()
        with closing(adbc_connection(source)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            assert cursor.fetchone() == expected

    def test_a_statement_that_takes_too_long_is_ended(self, postgres_box: Sandbox) -> None:
        source = DatabaseSource(name="slow", url=postgres_box.source.url, statement_timeout_s=0.1)
        with pytest.raises(DatabaseUnavailableError, match="statement timeout"):
            fetched(source, "SELECT pg_sleep(60)")

    def test_what_is_missing_is_a_change_of_the_table_that_is_read(self, postgres_box: Sandbox) -> None:
        source = postgres_box.source
        with pytest.raises(SourceChangedError, match='relation "nope" does not exist'):
            fetched(source, "SELECT * FROM nope", "nope")
        with pytest.raises(StatementRefusedError):
            fetched(source, "SELECT * FROM nope")

    def test_passwords_with_any_character_reach_both_drivers(self, postgres_box: Sandbox) -> None:
        # The server trusts everybody, so what counts is that the address around it is still understood.
        for password in ("a b+c", "%", "'\"\\", "ü=&?/#:@"):
            url = postgres_box.source.parsed.set(password=password).render_as_string(hide_password=False)
            source = DatabaseSource(name="pg", url=url)
            assert connected(source) == 1
            adbc_connection(source).close()
            assert ":***@" in source.shown


@pytest.mark.server
class TestMysql:
    def test_a_wrong_password_or_database_is_refused(self, mysql_box: Sandbox) -> None:
        url = mysql_box.source.url
        for other in (url.replace("root@", f"nobody:{QUOTED}@"), url + "_no"):
            with pytest.raises(DatabaseAccessError) as caught:
                connected(DatabaseSource(name="maria", url=other))
            assert_no_password(caught.value)

    def test_a_statement_that_takes_too_long_is_ended(self, mysql_box: Sandbox) -> None:
        source = DatabaseSource(name="slow", url=mysql_box.source.url, statement_timeout_s=0.1)
        engine = open_engine(source)
        with pytest.raises(DatabaseUnavailableError), translated(source), engine.connect() as connection:
            connection.execute(text("SELECT SLEEP(60) FROM information_schema.tables"))
        engine.dispose()

    def test_a_connection_that_is_ended_is_unavailable(self, mysql_box: Sandbox) -> None:
        engine = open_engine(mysql_box.source)
        with engine.connect() as connection:
            own = connection.execute(text("SELECT CONNECTION_ID()")).scalar()
            mysql_box.run(f"KILL {own}")
            with pytest.raises(DatabaseUnavailableError), translated(mysql_box.source):
                connection.execute(text("SELECT 1"))
        engine.dispose()

    def test_a_session_is_plain_and_in_utc(self, mysql_box: Sandbox) -> None:
        engine = open_engine(DatabaseSource(name="m", url=mysql_box.source.url, statement_timeout_s=7))
        with engine.connect() as connection:
            found = connection.execute(text("SELECT @@time_zone, @@sql_mode, @@max_statement_time")).one()
        engine.dispose()
        assert tuple(found) == ("+00:00", "", 7.0)


def test_a_driver_that_quotes_the_address_is_cleaned() -> None:
    source = DatabaseSource(name="x", url=f"postgresql://u:{QUOTED}@h/d?sslpassword=other1")
    said = f"cannot parse {source.url}: {SECRET} {QUOTED} other1"
    assert not {SECRET, QUOTED, "other1"} & set(scrubbed(source, said).split())
    with pytest.raises(StatementRefusedError) as caught, translated(source):
        raise sqlite3.OperationalError(said)
    assert_no_password(caught.value)


def test_what_no_driver_raised_passes_unchanged() -> None:
    with pytest.raises(KeyError), translated(DatabaseSource(name="x", url="sqlite:///a.db")):
        raise KeyError("x")


def _refusal(attempt: Callable[[DatabaseSource], Any], source: DatabaseSource) -> DatabaseAccessError:
    """Return the error of a login, tried again while the server still takes everybody."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            attempt(source)
        except DatabaseAccessError as error:
            return error
    pytest.fail("the server takes any password")


def assert_no_password(error: BaseException) -> None:
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    assert SECRET not in shown
    assert QUOTED not in shown
