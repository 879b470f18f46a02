"""Databases of a platform: counted across processes, kept in `ops.health`, left alone when they keep failing."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from dw_platform.extract.errors import DatabaseUnavailableError, SourceChangedError
from dw_platform.extract.health_record import health_key, read_record
from dw_platform.foundation import FakeClock
from dw_platform.pipelines import Platform
from dw_platform.pipelines.health import ask_databases, check_databases, record_outcome, skip_reason

MakePlatform = Callable[..., Platform]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database that answers as long as the file is there."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER)")
    return tmp_path / "shop.db"


@pytest.fixture
def platform(make_platform: MakePlatform, file: Path) -> Platform:
    return make_platform(
        f"""
name: tested
home: home
databases:
  - {{name: shop, url: "sqlite:///{file}"}}
  - {{name: away, url: "postgresql://user:sekret-word@127.0.0.1:1/x"}}
  - {{name: other, url: "mssql://user:sekret-word@127.0.0.1:1/x"}}
"""
    )


def advance(platform: Platform, **duration: float) -> None:
    assert isinstance(platform.clock, FakeClock)
    platform.clock.advance(timedelta(**duration).total_seconds())


def rows(platform: Platform) -> list[tuple[str, bool, int]]:
    table = DeltaTable(platform.lake.location("ops.health").uri).to_pyarrow_table()
    return sorted((row["database"], row["healthy"], row["failures"]) for row in table.to_pylist())


def test_every_database_is_asked_and_an_impossible_address_is_that_ones_failure(platform: Platform) -> None:
    report = check_databases(platform)
    assert [(entry.name, entry.result.healthy) for entry in report.databases] == [
        ("shop", True),
        ("away", False),
        ("other", False),
    ]
    assert report.failing == ["away", "other"]
    assert "sekret-word" not in repr(report)
    assert rows(platform) == [("away", False, 1), ("other", False, 1), ("shop", True, 0)]


def test_asking_counts_and_keeps_nothing(platform: Platform) -> None:
    assert [result.healthy for result in ask_databases(platform)] == [True, False, False]
    assert read_record(platform.store, "away") is None
    assert "ops.health" not in platform.table_names()


def test_a_state_is_kept_when_it_changes_and_every_ten_minutes(platform: Platform, file: Path) -> None:
    def count() -> int:
        return sum(1 for database, *_ in rows(platform) if database == "shop")

    check_databases(platform)
    for _ in range(5):
        advance(platform, minutes=1)
        check_databases(platform)
    assert count() == 1
    file.rename(file.with_suffix(".gone"))
    for _ in range(2):
        advance(platform, minutes=1)
        check_databases(platform)
    assert count() == 2, "the first failure, and not the second"
    file.with_suffix(".gone").rename(file)
    advance(platform, minutes=1)
    check_databases(platform)
    assert count() == 3
    advance(platform, minutes=10)
    check_databases(platform)
    assert count() == 4


def test_a_database_that_failed_three_times_is_left_alone_until_its_pause_is_over_or_it_answers(
    platform: Platform, file: Path
) -> None:
    assert skip_reason(platform, "shop", platform.clock.now()) is None
    file.rename(file.with_suffix(".gone"))
    for _ in range(3):
        assert skip_reason(platform, "shop", platform.clock.now()) is None
        check_databases(platform)
    told = skip_reason(platform, "shop", platform.clock.now())
    assert told is not None
    assert told.startswith("database shop is left alone: it failed 3 times in a row (there is no file")
    assert told.endswith("it is tried again in 1m")
    advance(platform, minutes=1)
    assert skip_reason(platform, "shop", platform.clock.now()) is None, "now it is tried"
    check_databases(platform)
    advance(platform, minutes=1)
    assert skip_reason(platform, "shop", platform.clock.now()), "the second pause is two minutes"
    file.with_suffix(".gone").rename(file)
    check_databases(platform)
    assert skip_reason(platform, "shop", platform.clock.now()) is None


def test_extractions_count_like_checks(platform: Platform) -> None:
    for _ in range(3):
        record_outcome(platform, "away", DatabaseUnavailableError("away", "the connection is lost"))
    assert "the connection is lost" in str(skip_reason(platform, "away", platform.clock.now()))
    record_outcome(platform, "away")
    assert skip_reason(platform, "away", platform.clock.now()) is None


def test_what_is_wrong_with_a_table_says_nothing_about_its_database(platform: Platform) -> None:
    for _ in range(3):
        record_outcome(platform, "shop", SourceChangedError("shop", "t", "a column is gone"))
    assert read_record(platform.store, "shop") is None


def test_a_success_of_what_is_healthy_writes_nothing(platform: Platform) -> None:
    check_databases(platform)
    before = platform.store.get(health_key("shop"))
    advance(platform, minutes=1)
    record_outcome(platform, "shop")
    assert platform.store.get(health_key("shop")) == before


def test_a_lake_that_cannot_be_written_does_not_keep_a_check_from_counting(platform: Platform, tmp_path: Path) -> None:
    lake = tmp_path / "home" / "lake"
    lake.parent.mkdir()
    lake.write_text("in the way")
    report = check_databases(platform)
    assert report.not_kept is not None
    record = read_record(platform.store, "away")
    assert record is not None
    assert (record.failures, record.told_at) == (1, None)
    lake.unlink()
    assert check_databases(platform).not_kept is None
    assert ("away", False, 2) in rows(platform)
