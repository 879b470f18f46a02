"""Connections, cache and limits of the manager: bounded, counted, changed while it runs."""

import threading
from datetime import timedelta

import pytest

from dw_platform.extract.connections import Connections, NoFreeConnectionError
from dw_platform.extract.errors import DatabaseUnavailableError, UnknownSourceTableError
from dw_platform.extract.limits import DatabaseLimits
from dw_platform.extract.source import DatabaseSource
from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.scaling import PressureLevel, PressureThresholds, apply_changes
from tests.extract.conftest import Sandbox
from tests.extract.paging import all_pages, column, managed


def fill(box: Sandbox, rows: int = 6) -> None:
    box.run("CREATE TABLE t (id integer NOT NULL PRIMARY KEY)")
    box.insert("t", [(number,) for number in range(rows)])


def sessions(box: Sandbox) -> int:
    with box.admin.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dw_platform extract'"
        )
        return int(found.scalar_one())


@pytest.mark.server
def test_pages_one_after_the_other_use_two_connections(postgres_box: Sandbox) -> None:
    fill(postgres_box)
    with managed(postgres_box) as manager:
        all_pages(manager, "pg", [1], table="t")
        all_pages(manager, "pg", [1], table="t", order=["-id"])
        assert sessions(postgres_box) <= postgres_box.source.max_connections
    assert sessions(postgres_box) == 0


@pytest.mark.server
def test_many_threads_together_stay_within_the_limit(postgres_box: Sandbox) -> None:
    fill(postgres_box)
    most, found, failed = [0], list[list[int]](), list[BaseException]()
    with managed(postgres_box, limits=DatabaseLimits(max_connections=4)) as manager:

        def work(order: str) -> None:
            try:
                found.append(column(all_pages(manager, "pg", [1, 2], table="t", order=[order]), "id"))
                most[0] = max(most[0], sessions(postgres_box))
            except BaseException as error:  # noqa: BLE001 - told to the test below
                failed.append(error)

        threads = [threading.Thread(target=work, args=(order,)) for order in ["id", "-id"] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    assert sorted(found) == [[0, 1, 2, 3, 4, 5]] * 4 + [[5, 4, 3, 2, 1, 0]] * 4
    assert most[0] <= 4


@pytest.mark.server
def test_connections_that_died_between_pages_are_replaced(postgres_box: Sandbox) -> None:
    fill(postgres_box)
    with managed(postgres_box) as manager:
        first = manager.execute_paginated_query("pg", table="t", page_size=2)
        with postgres_box.admin.connect() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dw_platform extract'"
            )
        rest = manager.execute_paginated_query("pg", table="t", token=first.continuation_token)
    assert [item["id"] for item in first.items + rest.items] == [0, 1, 2, 3, 4, 5]


def test_a_database_that_is_away_is_said_to_be_away(sqlite_box: Sandbox) -> None:
    with managed(sqlite_box) as manager:
        sqlite_box.source.file.unlink()
        with pytest.raises(DatabaseUnavailableError):
            manager.execute_paginated_query("lite", table="t")
        assert [result.healthy for result in manager.check_health()] == [False]
        assert manager.scaling_metrics()["in_use"] == 0


def test_who_waits_too_long_for_a_connection_is_told(sqlite_box: Sandbox) -> None:
    changes = []
    connections = Connections(sqlite_box.source, max_connections=2, on_change=lambda: changes.append(1))
    with connections.slot(1.0):
        assert connections.occupancy == 1.0
        with pytest.raises(NoFreeConnectionError), connections.slot(0.01):
            raise AssertionError
        connections.resize(4)
        with connections.slot(1.0):
            assert connections.in_use == 2
    assert connections.in_use == 0
    assert len(changes) == 4
    connections.close()


def test_a_cached_page_is_taken_without_the_database_until_it_is_too_old(sqlite_box: Sandbox) -> None:
    fill(sqlite_box)
    clock = FakeClock()
    with managed(sqlite_box, clock=clock, limits=DatabaseLimits(cache_ttl=timedelta(seconds=30))) as manager:
        first = manager.execute_paginated_query("lite", table="t", page_size=2, cached=True)
        first.items[0]["id"] = "changed by its reader"
        sqlite_box.run("DROP TABLE t")
        clock.advance(29)
        again = manager.execute_paginated_query("lite", table="t", page_size=2, cached=True)
        assert [item["id"] for item in again.items] == [0, 1]
        assert again.continuation_token == first.continuation_token
        for other in ({"page_size": 3}, {"page_size": 2, "cached": False}, {"page_size": 2, "order": ["-id"]}):
            with pytest.raises(UnknownSourceTableError):
                manager.execute_paginated_query("lite", table="t", **({"cached": True} | other))  # type: ignore[arg-type]
        clock.advance(1)
        with pytest.raises(UnknownSourceTableError):
            manager.execute_paginated_query("lite", table="t", page_size=2, cached=True)
        assert manager.scaling_metrics()["cache_hit_ratio"] == pytest.approx(1 / 5)


def test_limits_change_while_it_runs(sqlite_box: Sandbox) -> None:
    fill(sqlite_box)
    with managed(sqlite_box) as manager:
        first = manager.execute_paginated_query("lite", table="t", page_size=2)
        changes = {"max_page_size": 3, "max_connections": 2, "cache_bytes": "1MiB", "token_ttl": "1h"}
        manager.reconfigure_limits(apply_changes(manager.current_limits(), changes))
        assert manager.current_limits().cache_bytes == 1024**2
        with pytest.raises(InvalidValueError, match="from 1 to 3"):
            manager.execute_paginated_query("lite", table="t", page_size=4)
        rest = manager.execute_paginated_query("lite", table="t", page_size=3, token=first.continuation_token)
        assert [item["id"] for item in rest.items] == [2, 3, 4]
        assert manager.keyring.ttl == timedelta(hours=1)


def test_pressure_and_numbers_tell_what_it_does(sqlite_box: Sandbox) -> None:
    fill(sqlite_box)
    thresholds = PressureThresholds(warning=0.4, warning_exit=0.1)
    with managed(sqlite_box, limits=DatabaseLimits(thresholds=thresholds)) as manager:
        assert manager.name == "database"
        assert manager.backpressure_state().level is PressureLevel.NORMAL
        all_pages(manager, "lite", [4], table="t")
        numbers = manager.scaling_metrics()
        assert (numbers["pages"], numbers["rows"], numbers["in_use"]) == (2, 6, 0)


@pytest.mark.parametrize(
    "wrong", [{"max_page_size": 0}, {"max_connections": 1}, {"chunk_bytes": 2, "buffer_bytes": 1}, {"cache_entries": 0}]
)
def test_impossible_limits_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError):
        DatabaseLimits(**wrong)  # type: ignore[arg-type]


def test_a_large_value_is_streamed_through_the_manager(sqlite_box: Sandbox) -> None:
    sqlite_box.run("CREATE TABLE v (id INTEGER PRIMARY KEY, photo BLOB)")
    sqlite_box.insert("v", [(1, b"x" * 200_000)])
    with managed(sqlite_box, limits=DatabaseLimits(chunk_bytes=1024, buffer_bytes=4096)) as manager:
        with manager.stream_value("lite", "v", {"id": 1}, "photo") as stream:
            chunks = list(stream)
        assert b"".join(chunks) == b"x" * 200_000
        assert max(map(len, chunks)) == 1024
        assert stream.stats().peak_bytes <= 4096 + 1024


def test_passwords_stay_out_of_what_it_says() -> None:
    source = DatabaseSource(name="away", url="postgresql://me:secret-word@127.0.0.1:1/x", connect_timeout_s=0.5)
    with managed(Sandbox(source, None)) as manager, pytest.raises(DatabaseUnavailableError) as refused:  # type: ignore[arg-type]
        manager.execute_paginated_query("away", table="t")
    assert "secret-word" not in f"{refused.value} {refused.value!r} {refused.value.__cause__}"
