"""Databases that answer, refuse, are gone, stay silent or stop in the middle, all asked at once."""

import contextlib
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Pool, event, make_url

from dw_platform.extract.errors import DatabaseAccessError, DatabaseUnavailableError
from dw_platform.extract.health import HealthResult, check_sources
from dw_platform.extract.source import DatabaseSource

CLOSED = "postgresql://user:sekret-word@127.0.0.1:1/x"


def source(url: str, name: str = "shop") -> DatabaseSource:
    return DatabaseSource(name=name, url=url)


def check(url: str, timeout_s: float = 5.0) -> HealthResult:
    (result,) = check_sources([source(url)], timeout_s)
    return result


def thread_is_back(name: str = "shop") -> bool:
    for thread in [each for each in threading.enumerate() if each.name == f"health-{name}"]:
        thread.join(30)
        return not thread.is_alive()
    return True


@contextlib.contextmanager
def at_connect(act: Callable[[Any], object]) -> Iterator[None]:
    """Do something to every connection that is made, before anything is asked over it."""

    def listener(connection: Any, _record: Any) -> None:
        act(connection)

    event.listen(Pool, "connect", listener)
    try:
        yield
    finally:
        event.remove(Pool, "connect", listener)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER)")
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_a_database_that_answers_is_healthy(sqlite_url: str) -> None:
    result = check(sqlite_url)
    assert (result.database, result.healthy, result.why) == ("shop", True, "")
    assert result.latency_s > 0


@pytest.mark.server
def test_postgresql_answers(postgres_url: str) -> None:
    assert check(postgres_url).error is None


def test_nobody_there_is_said_with_the_cause_and_without_the_password() -> None:
    result = check(CLOSED)
    assert isinstance(result.error, DatabaseUnavailableError)
    assert "refused" in result.why
    assert "sekret-word" not in f"{result} {result.error} {result.why}"


@pytest.mark.parametrize(("timeout_s", "who"), [(0.3, "the check"), (2.5, "the driver")])
def test_a_server_that_accepts_and_never_answers_is_given_up(silent: int, timeout_s: float, who: str) -> None:
    found = [source(f"{scheme}://user:sekret-word@127.0.0.1:{silent}/x", scheme) for scheme in ("postgresql", "mysql")]
    for result in check_sources(found, timeout_s):
        assert isinstance(result.error, DatabaseUnavailableError)
        assert ("no answer within" in result.why) == (who == "the check")
        assert thread_is_back(result.database), "the driver's own connect timeout ends it in any case"


@pytest.mark.server
def test_a_server_that_stops_right_after_connecting_is_given_up_and_its_thread_comes_back(postgres_url: str) -> None:
    stopped: list[int] = []

    def stop(connection: Any) -> None:
        stopped.append(connection.info.backend_pid)
        os.kill(stopped[-1], signal.SIGSTOP)

    try:
        with at_connect(stop):
            result = check(postgres_url, timeout_s=0.5)
        assert (type(result.error), result.why) == (DatabaseUnavailableError, "no answer within 0.5 s")
        assert thread_is_back()
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)
    assert stopped
    assert check(postgres_url).healthy


@pytest.mark.server
def test_a_wrong_password_is_refused_access(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        (file,) = connection.execute("SHOW hba_file").fetchone() or ("",)
        rules = Path(file).read_text()
        if "locked_user" not in rules:
            Path(file).write_text(
                f"local all locked_user scram-sha-256\nhost all locked_user all scram-sha-256\n{rules}"
            )
        connection.execute("DROP ROLE IF EXISTS locked_user")
        connection.execute("CREATE ROLE locked_user LOGIN PASSWORD 'right-word'")
        connection.execute("SELECT pg_reload_conf()")
    url = make_url(postgres_url)
    given = {
        word: url.set(username="locked_user", password=word).render_as_string(hide_password=False)
        for word in ("right-word", "wrong-word")
    }
    assert check(given["right-word"]).healthy
    result = check(given["wrong-word"])
    assert isinstance(result.error, DatabaseAccessError)
    assert "wrong-word" not in str(result.error)


def test_a_file_that_is_missing_is_named_and_not_made(tmp_path: Path) -> None:
    result = check(f"sqlite:///{tmp_path / 'missing.db'}")
    assert isinstance(result.error, DatabaseUnavailableError)
    assert "missing.db" in result.why
    assert not (tmp_path / "missing.db").exists()


def test_a_file_that_is_no_database_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("This is not a database. " * 100)
    result = check(f"sqlite:///{tmp_path / 'notes.db'}")
    assert "file is not a database" in result.why


def test_all_are_asked_at_once() -> None:
    """The server hangs up only when all have called: one after the other, the first would wait in vain."""
    count = 5
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            callers = [listening.accept()[0] for _ in range(count)]
            for caller in callers:
                caller.close()

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        port = listening.getsockname()[1]
        urls = [f"mysql://user:word@127.0.0.1:{port}/x"] * count
        results = check_sources([source(url, f"shop{number}") for number, url in enumerate(urls)], 20)
        answering.join(30)
    assert [result.database for result in results] == [f"shop{number}" for number in range(count)]
    assert all("Lost connection" in result.why for result in results)


def test_one_that_fails_does_not_hide_one_that_answers(sqlite_url: str, silent: int) -> None:
    results = check_sources(
        [source(CLOSED, "away"), source(f"mysql://u:p@127.0.0.1:{silent}/x", "silent"), source(sqlite_url, "file")], 0.5
    )
    assert [(result.database, result.healthy) for result in results] == [
        ("away", False),
        ("silent", False),
        ("file", True),
    ]
    assert check_sources([]) == []


def test_a_check_that_never_comes_back_is_left_behind_once_and_not_repeated(sqlite_url: str) -> None:
    released = threading.Event()
    with at_connect(lambda _: released.wait(60)):
        assert check(sqlite_url, timeout_s=0.1).why == "no answer within 0.1 s"
        assert check(sqlite_url, timeout_s=0.1).why == "the check before has not come back yet"
        released.set()
        assert thread_is_back()
        assert check(sqlite_url).healthy
