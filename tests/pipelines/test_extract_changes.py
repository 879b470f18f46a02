"""Incremental copies and reconciling: what is newer arrives once, what is deleted goes, whatever the key looks like."""

from datetime import datetime
from pathlib import Path

import pytest

from dw_platform.pipelines.extract import extract_table, reconcile_table
from dw_platform.pipelines.extract_errors import ColumnsDoNotFitError, UnusableCursorError
from tests.extract.conftest import (
    Sandbox,
    box,
    mariadb_server_url,
    mariadb_url,
    mysql_box,
    postgres_box,
    postgres_server_url,
    postgres_url,
    sqlite_box,
)
from tests.pipelines.extracts import TIME, add_people, copied, ids, make_people, moment, platform_for
from tests.pipelines.test_extract import StoppedByTestError, after

__all__ = [
    "box",
    "mariadb_server_url",
    "mariadb_url",
    "mysql_box",
    "postgres_box",
    "postgres_server_url",
    "postgres_url",
    "sqlite_box",
]

BY_TIME = {"mode": "incremental", "cursor": "seen"}


def test_what_is_newer_arrives_and_what_is_read_again_unchanged_does_not(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 1_000)
    with platform_for(box, tmp_path, **BY_TIME, overlap="1m") as platform:
        assert extract_table(platform, "crm.people").mode == "full"
        version = platform.lake.table("shop.people").snapshot().version
        again = extract_table(platform, "crm.people")
        assert (again.mode, again.rows, again.written, again.commits) == ("incremental", 61, 0, 0)
        assert platform.lake.table("shop.people").snapshot().version == version
        add_people(box, 1_001, 1_011)
        box.run(f"UPDATE people SET name = 'changed', seen = '{moment(2_000)}' WHERE id = 7")
        report = extract_table(platform, "crm.people")
        assert (report.written, report.replaced, report.commits) == (11, 1, 1)
        rows = copied(platform)
        assert [row["id"] for row in rows] == list(range(1, 1_011))
        assert (rows[6]["name"], rows[7]["name"]) == ("changed", "name 8")


def test_numbers_serve_as_cursors(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 100)
    with platform_for(box, tmp_path, mode="incremental", cursor="id", overlap=10) as platform:
        extract_table(platform, "crm.people")
        add_people(box, 101, 121)
        report = extract_table(platform, "crm.people")
        assert (report.rows, report.written) == (31, 20)
        assert ids(platform) == list(range(1, 121))


def test_a_row_that_is_committed_late_is_found_by_the_overlap(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 100)
    with platform_for(box, tmp_path, **BY_TIME, overlap="1m") as platform:
        extract_table(platform, "crm.people")
        box.insert("people", [(500, "late", 1, moment(50))])
        box.insert("people", [(501, "too late", 1, moment(30))])
        extract_table(platform, "crm.people")
        assert ids(platform) == [*range(1, 101), 500]


@pytest.mark.server
def test_an_open_transaction_of_postgresql_holds_the_bound_back(postgres_box: Sandbox, tmp_path: Path) -> None:
    make_people(postgres_box, 100)
    with platform_for(postgres_box, tmp_path, mode="incremental", cursor="id", overlap=0) as platform:
        extract_table(platform, "crm.people")
        with postgres_box.admin.connect() as open_one:
            open_one.exec_driver_sql("INSERT INTO people VALUES (101, 'open', 1, '2026-01-01')")
            add_people(postgres_box, 102, 105)
            held = extract_table(platform, "crm.people")
            assert (held.bound, ids(platform)) == ("below the rows of the oldest open transaction", list(range(1, 101)))
            open_one.connection.commit()
        extract_table(platform, "crm.people")
        assert ids(platform) == list(range(1, 105))


@pytest.mark.server
def test_a_writing_transaction_of_postgresql_holds_times_back_by_its_age(postgres_box: Sandbox, tmp_path: Path) -> None:
    make_people(postgres_box, 10)
    with platform_for(postgres_box, tmp_path, **BY_TIME, overlap="0s") as platform:
        extract_table(platform, "crm.people")
        with postgres_box.admin.connect() as open_one:
            open_one.exec_driver_sql("UPDATE people SET score = 1 WHERE id = 1")
            add_people(postgres_box, 11, 12)
            assert extract_table(platform, "crm.people").bound == "below the oldest open transaction"
            open_one.connection.rollback()
        assert extract_table(platform, "crm.people").bound == "the highest value"
        assert ids(platform) == list(range(1, 12))


def test_a_long_backlog_is_merged_in_steps_that_a_killed_run_remembers(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 100)
    with platform_for(sqlite_box, tmp_path, **BY_TIME, overlap="1s", page_size=50, commit_rows=100) as platform:
        extract_table(platform, "crm.people")
        add_people(sqlite_box, 101, 1_001)
        with pytest.raises(StoppedByTestError):
            extract_table(platform, "crm.people", on_progress=after(300))
        some = len(ids(platform))
        assert 300 < some < 1_000
        report = extract_table(platform, "crm.people")
        assert report.rows <= 1_000 - some + 10
        assert ids(platform) == list(range(1, 1_001))


def test_rows_that_changed_behind_an_interrupted_copy_are_read_when_it_goes_on(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 1_000)
    with platform_for(box, tmp_path, **BY_TIME, overlap="1s", page_size=100, commit_rows=200) as platform:
        with pytest.raises(StoppedByTestError):
            extract_table(platform, "crm.people", on_progress=after(400))
        box.run(f"UPDATE people SET name = 'changed', seen = '{moment(2_000)}' WHERE id = 7")
        report = extract_table(platform, "crm.people")
        assert (report.mode, report.resumed, report.replaced) == ("full", True, 1)
        rows = copied(platform)
        assert [row["id"] for row in rows] == list(range(1, 1_001))
        assert rows[6]["name"] == "changed"


def test_a_new_column_of_the_source_is_taken_in_and_a_lost_one_is_refused(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 10)
    with platform_for(box, tmp_path, **BY_TIME) as platform:
        extract_table(platform, "crm.people")
        box.run(
            "ALTER TABLE people ADD COLUMN age integer",
            f"UPDATE people SET age = 7, seen = '{moment(100)}' WHERE id = 3",
        )
        extract_table(platform, "crm.people")
        assert [row["age"] for row in copied(platform)[:4]] == [None, None, 7, None]
        box.run("ALTER TABLE people DROP COLUMN name")
        with pytest.raises(ColumnsDoNotFitError, match="--full"):
            extract_table(platform, "crm.people")
        extract_table(platform, "crm.people", full=True)
        assert platform.lake.table("shop.people").snapshot().schema.names == ["id", "score", "seen", "age"]


def test_a_cursor_that_does_not_grow_is_refused(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 10)
    platform = platform_for(sqlite_box, tmp_path, mode="incremental", cursor="name")
    with platform, pytest.raises(UnusableCursorError):
        extract_table(platform, "crm.people")


def test_a_table_whose_log_forgot_the_cursor_goes_on_from_its_own_rows(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 100)
    with platform_for(sqlite_box, tmp_path, **BY_TIME, overlap="5s") as platform:
        extract_table(platform, "crm.people")
        table = platform.lake.table("shop.people")
        table.append(table.snapshot().schema.empty_table())
        table.snapshot().delta.create_checkpoint()
        for version in range(table.snapshot().version):
            (table.location.local / "_delta_log" / f"{version:020d}.json").unlink()
        add_people(sqlite_box, 101, 111)
        report = extract_table(platform, "crm.people")
        assert (report.mode, report.written) == ("incremental", 10)
        assert ids(platform) == list(range(1, 111))


def test_reconciling_an_unchanged_table_commits_nothing(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 2_000)
    with platform_for(box, tmp_path, **BY_TIME) as platform:
        extract_table(platform, "crm.people")
        version = platform.lake.table("shop.people").snapshot().version
        report = reconcile_table(platform, "crm.people")
        assert (report.mode, report.deleted, report.commits) == ("reconcile", 0, 0)
        assert platform.lake.table("shop.people").snapshot().version == version


def test_deleted_rows_go_and_rows_that_were_missed_arrive(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 2_000)
    with platform_for(box, tmp_path, **BY_TIME, overlap="1s") as platform:
        extract_table(platform, "crm.people")
        box.run("DELETE FROM people WHERE id IN (1, 700, 701, 2000)", "UPDATE people SET id = -5 WHERE id = 6")
        box.insert("people", [(9_000, "missed", 1, moment(3))])
        report = reconcile_table(platform, "crm.people")
        assert (report.deleted, report.written) == (5, 2)
        gone = {1, 6, 700, 701, 2000}
        assert ids(platform) == [-5, *(number for number in range(1, 2_000) if number not in gone), 9_000]
        assert reconcile_table(platform, "crm.people").deleted == 0


def test_a_swap_of_keys_that_keeps_count_and_sum_is_found(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 100)
    with platform_for(sqlite_box, tmp_path, **BY_TIME, overlap="1s") as platform:
        sqlite_box.run("DELETE FROM people WHERE id IN (16, 17)")
        extract_table(platform, "crm.people")
        sqlite_box.run("DELETE FROM people WHERE id IN (15, 18)")
        sqlite_box.insert("people", [(16, "new", 1, moment(1)), (17, "new", 1, moment(1))])
        assert reconcile_table(platform, "crm.people").deleted == 2
        assert ids(platform) == [number for number in range(1, 101) if number not in {15, 18}]


KEYS = {
    "text": ("code varchar(20) NOT NULL, PRIMARY KEY (code)", ["code"], lambda n: (f"Zoë '{n}",)),
    "text and number": (
        "code varchar(20) NOT NULL, part integer NOT NULL, PRIMARY KEY (code, part)",
        ["code", "part"],
        lambda n: (f"c{n % 7}", n),
    ),
    "date and bytes": (
        "day date NOT NULL, mark BYTES NOT NULL, PRIMARY KEY (day, mark)",
        ["day", "mark"],
        lambda n: (f"2026-01-{1 + n % 28:02d}", b"\x00\xff%d" % n),
    ),
    "decimal and time": (
        "amount decimal(20, 5) NOT NULL, moment TIME NOT NULL, PRIMARY KEY (amount, moment)",
        ["amount", "moment"],
        lambda n: (n / 8, moment(n)),
    ),
}
BYTES = {"postgresql": "bytea", "mysql": "varbinary(20)", "sqlite": "blob"}


@pytest.mark.parametrize("shape", KEYS)
def test_deleted_rows_are_found_by_any_comparable_key(box: Sandbox, tmp_path: Path, shape: str) -> None:
    if box.kind == "sqlite" and shape in {"date and bytes", "decimal and time"}:
        pytest.skip("SQLite keeps dates and decimals as text or floats, which are not compared")
    columns, names, key = KEYS[shape]
    columns = columns.replace("TIME", TIME[box.kind]).replace("BYTES", BYTES[box.kind])
    box.run(_declared(columns, TIME[box.kind]))
    box.insert(
        f"people ({', '.join(names)}, id, seen)", [(*key(number), number, moment(number)) for number in range(300)]
    )
    with platform_for(box, tmp_path, **BY_TIME, overlap="1s") as platform:
        extract_table(platform, "crm.people")
        assert reconcile_table(platform, "crm.people").deleted == 0
        box.run("DELETE FROM people WHERE id IN (3, 99, 200)")
        box.insert(f"people ({', '.join(names)}, id, seen)", [(*key(301), 301, moment(5))])
        report = reconcile_table(platform, "crm.people")
        assert report.deleted == 3
        assert ids(platform) == [number for number in [*range(300), 301] if number not in {3, 99, 200}]


def _declared(columns: str, time: str) -> str:
    before, _, key = columns.partition(", PRIMARY KEY")
    return f"CREATE TABLE people ({before}, id integer NOT NULL, seen {time} NOT NULL, PRIMARY KEY{key})"


def test_times_without_a_zone_are_compared_among_themselves(sqlite_box: Sandbox, tmp_path: Path) -> None:
    sqlite_box.run("CREATE TABLE people (id integer PRIMARY KEY, seen TIMESTAMP)")
    sqlite_box.insert("people", [(1, "2099-01-01T00:00:00.5"), (2, None)])
    with platform_for(sqlite_box, tmp_path, **BY_TIME, overlap="1h") as platform:
        extract_table(platform, "crm.people")
        sqlite_box.insert("people", [(3, "2098-12-31T23:30:00"), (4, "2098-12-31T22:30:00"), (5, None)])
        extract_table(platform, "crm.people")
        assert {row["id"]: row["seen"] for row in copied(platform)} == {
            1: datetime.fromisoformat("2099-01-01T00:00:00.500000"),
            2: None,
            3: datetime.fromisoformat("2098-12-31T23:30:00"),
        }
