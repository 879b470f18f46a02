import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from dw_platform.foundation import FakeClock
from dw_platform.store import StaleVersionError, StoreUnavailableError, StoreUnusableError
from dw_platform.store.sql import SqlStore
from tests.servers import create_database, postgres_server

T = TypeVar("T")


def retry(action: Callable[[], T], timeout_s: float = 30) -> T:
    """What a caller of a TransientError does: try again until it works."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return action()
        except StoreUnavailableError:
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.05)


def test_sqlite_runs_in_wal_mode_with_full_fsync(tmp_path: Path) -> None:
    with closing(SqlStore(f"sqlite:///{tmp_path}/store.db")) as store, store._reading() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    assert settings == ["wal", 2, 30_000]


def test_a_process_that_finds_the_file_locked_while_it_is_created_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as creator:
        creator.execute("CREATE TABLE first (id)")
        creator.execute("BEGIN EXCLUSIVE")

        class ReleasingClock(FakeClock):
            def wait(self, stop: threading.Event, seconds: float) -> bool:
                creator.execute("COMMIT")
                return super().wait(stop, seconds)

        monkeypatch.setattr("dw_platform.store.databases._LOCK_TIMEOUT_S", 0.05)
        monkeypatch.setattr("dw_platform.store.databases.SystemClock", ReleasingClock)
        with closing(SqlStore(f"sqlite:///{tmp_path}/store.db")) as store:
            assert store.put("key", b"value")


def test_a_relative_path_is_fixed_when_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(SqlStore("sqlite:///.dw/store.db")) as store:
        _, (url,) = store.__reduce__()
    assert url == f"sqlite+pysqlite:///{tmp_path}/.dw/store.db"


def test_a_file_that_is_no_database_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"certainly not a database" * 100)
    with pytest.raises(StoreUnusableError, match="not a database"):
        SqlStore(f"sqlite:///{tmp_path}/store.db")


def test_a_writer_that_stays_in_the_way_is_reported_and_reading_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dw_platform.store.databases._LOCK_TIMEOUT_S", 0.05)
    with closing(SqlStore(f"sqlite:///{tmp_path}/store.db")) as store:
        entry = store.put("key", b"value")
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailableError, match="locked"):
                store.put("key", b"other")
            assert store.get("key") == entry
            other.execute("ROLLBACK")
        assert store.put("key", b"other").version == 2


def test_errors_show_neither_values_nor_statements(tmp_path: Path) -> None:
    with closing(SqlStore(f"sqlite:///{tmp_path}/store.db")) as store:
        with closing(sqlite3.connect(tmp_path / "store.db")) as other:
            other.execute("DROP TABLE dw_store")
        with pytest.raises(StoreUnavailableError) as caught:
            store.put("key", b"top secret")
    assert "top secret" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.server
class TestPostgres:
    def test_a_dropped_connection_is_replaced_unnoticed(self, postgres_url: str) -> None:
        import psycopg

        with closing(SqlStore(postgres_url)) as store, psycopg.connect(postgres_url, autocommit=True) as admin:
            entry = store.put("key", b"value")
            dropped = admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
            assert dropped == [(True,)]
            assert store.get("key") == entry

    def test_a_stopped_server_is_unavailable_and_a_restarted_one_works(self) -> None:
        server = postgres_server(Path(tempfile.mkdtemp(prefix="dw-postgres-")))
        try:
            with closing(SqlStore(server.get_uri())) as store:
                entry = store.put("key", b"value")
                server.stop()
                with pytest.raises(StoreUnavailableError):
                    store.put("key", b"lost")
                with pytest.raises(StoreUnavailableError):
                    SqlStore(server.get_uri())
                server.ensure_postgres_running()
                assert retry(lambda: store.get("key")) == entry
                assert store.put("key", b"again").version == entry.version + 1
        finally:
            server.cleanup()

    def test_a_plain_address_uses_psycopg(self, postgres_url: str) -> None:
        for scheme in ("postgresql", "postgres", "postgresql+psycopg"):
            with closing(SqlStore(postgres_url.replace("postgresql", scheme, 1))) as store:
                assert store._database.engine.driver == "psycopg"

    def test_keys_compare_by_bytes_whatever_the_language_of_the_database(self, postgres_url: str) -> None:
        import psycopg

        SqlStore(postgres_url).close()
        column = "table_name = 'dw_store' AND column_name = 'key'"
        with psycopg.connect(postgres_url) as admin:
            found = admin.execute(f"SELECT collation_name FROM information_schema.columns WHERE {column}".encode())
            assert found.fetchone() == ("C",)

    def test_a_database_that_cannot_hold_every_key_is_refused(self, postgres_server_url: str) -> None:
        latin = create_database(postgres_server_url, "TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        with pytest.raises(StoreUnusableError, match="ENCODING 'UTF8'"):
            SqlStore(latin)

    def test_a_user_without_rights_gets_a_permanent_error(self, postgres_url: str) -> None:
        import psycopg

        SqlStore(postgres_url).close()
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("DROP ROLE IF EXISTS reader")
            admin.execute("CREATE ROLE reader LOGIN")
            admin.execute("GRANT SELECT ON dw_store, dw_store_floor TO reader")
        with closing(SqlStore(postgres_url.replace("postgres:@", "reader:@"))) as store:
            assert store.get("key") is None
            with pytest.raises(StoreUnusableError, match="permission denied"):
                store.put("key", b"value")

    def test_a_key_held_by_a_stuck_writer_is_reported_and_other_keys_stay_free(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with closing(SqlStore(postgres_url)) as stuck:
            monkeypatch.setattr("dw_platform.store.databases._LOCK_TIMEOUT_S", 0.2)
            with closing(SqlStore(postgres_url)) as store:
                with stuck._writing("key"):
                    with pytest.raises(StoreUnavailableError, match="timeout"):
                        store.put("key", b"value")
                    assert store.put("other", b"value")
                assert store.put("key", b"value")

    def test_a_writer_that_stalls_in_its_transaction_loses_its_lock(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with closing(SqlStore(postgres_url)) as store:
            monkeypatch.setattr("dw_platform.store.databases._LOCK_TIMEOUT_S", 0.2)
            with closing(SqlStore(postgres_url)) as stalled:

                def stall() -> None:
                    with stalled._writing("key") as connection:
                        # Returns as soon as the server has ended the stalled transaction.
                        store.put("key", b"value")
                        connection.exec_driver_sql("SELECT 1")

                with pytest.raises(StoreUnavailableError):
                    stall()
                with pytest.raises(StaleVersionError):
                    stalled.compare_and_set("key", b"late", expected=None)
