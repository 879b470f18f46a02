"""Copies of databases' tables: equal to their source, resumed after any interruption, never half visible."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dw_platform.extract.errors import (
    DatabaseUnavailableError,
    NoKeyError,
    NullInKeyError,
    SourceChangedError,
    TokenForOtherRequestError,
    UnknownSourceTableError,
    UnmappableColumnError,
)
from dw_platform.foundation import FakeClock, TransientError
from dw_platform.lake.session import SparkProvider
from dw_platform.pipelines import Platform
from dw_platform.pipelines.extract import (
    ExtractProgress,
    extract_table,
    find_extract,
    plan_of,
    reconcile_table,
    resume_token,
)
from dw_platform.pipelines.extract_errors import (
    ExtractBusyError,
    NotIncrementalError,
    NotResumableError,
    UnknownExtractError,
)
from dw_platform.pipelines.extract_full import RESUMABLE_FOR
from dw_platform.pipelines.extract_state import ExtractState
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
from tests.pipelines.extracts import add_people, copied, ids, make_people, platform_for

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


class StoppedByTestError(TransientError):
    """What a test raises in the middle of a run."""


def after(rows: int, then: Callable[[], Any] | None = None) -> Callable[[ExtractProgress], None]:
    """Return a listener that interrupts, or does something else, once so many rows are committed."""
    done = list[bool]()

    def listen(at: ExtractProgress) -> None:
        if at.committed and at.rows >= rows and not done:
            done.append(True)
            if then is None:
                raise StoppedByTestError
            then()

    return listen


def interrupted(platform: Platform, rows: int = 1) -> None:
    with pytest.raises(StoppedByTestError):
        extract_table(platform, "crm.people", on_progress=after(rows))


def test_a_full_copy_equals_its_source_and_needs_no_jvm(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 3_000)
    with platform_for(box, tmp_path, page_size=500, commit_rows=1_000) as platform:
        report = extract_table(platform, "crm.people")
        assert (report.mode, report.rows, report.written, report.resumed) == ("full", 3_000, 3_000, False)
        rows = copied(platform)
        assert len(rows) == 3_000
        assert rows[41] == {
            "id": 42, "name": "name 42", "score": Decimal("0.42"), "seen": datetime.fromisoformat("2026-01-01T00:00:42")
        }  # fmt: skip
        assert ids(platform) == list(range(1, 3_001))
        assert not platform.spark.started
        assert platform.lake.table("shop.people").history(1)[0].reason == "a full copy of crm.people"


def test_readers_see_the_old_rows_until_the_new_ones_are_complete(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 1_000)
    with platform_for(sqlite_box, tmp_path, page_size=100, commit_rows=200) as platform:
        extract_table(platform, "crm.people")
        sqlite_box.run("DELETE FROM people WHERE id <= 900")
        add_people(sqlite_box, 5_000, 6_000)
        seen = list[int]()
        report = extract_table(platform, "crm.people", on_progress=lambda _: seen.append(len(ids(platform))))
        assert (set(seen), report.rows) == ({1_000}, 1_100)
        assert ids(platform) == [*range(901, 1_001), *range(5_000, 6_000)]


def test_an_interrupted_copy_goes_on_where_it_was(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 4_000)
    with platform_for(box, tmp_path, page_size=200, commit_rows=800) as platform:
        interrupted(platform, 1_600)
        assert ids(platform) == []
        state = ExtractState.from_json(platform.lake.table("shop.people").load("extract/crm.people").state().details)
        assert state is not None
        # What lies before the positions is not read again: a change there does not appear.
        box.run("UPDATE people SET name = 'changed'")
        report = extract_table(platform, "crm.people")
        assert (report.resumed, report.rows) == (True, 4_000)
        assert ids(platform) == list(range(1, 4_001))
        assert sum(row["name"] != "changed" for row in copied(platform)) == state.rows >= 1_600
        assert extract_table(platform, "crm.people").resumed is False
        assert {row["name"] for row in copied(platform)} == {"changed"}


def test_a_copy_that_is_interrupted_again_and_again_comes_to_its_end(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 2_000)
    with platform_for(sqlite_box, tmp_path, page_size=50, commit_rows=100) as platform:
        for rows in range(200, 2_000, 300):
            interrupted(platform, rows)
        assert extract_table(platform, "crm.people").resumed
        assert ids(platform) == list(range(1, 2_001))


def test_rows_beyond_the_end_that_was_fixed_at_the_start_wait_for_the_next_copy(
    sqlite_box: Sandbox, tmp_path: Path
) -> None:
    make_people(sqlite_box, 1_000)
    with platform_for(sqlite_box, tmp_path, page_size=50, commit_rows=100) as platform:
        extract_table(platform, "crm.people", on_progress=after(100, lambda: add_people(sqlite_box, 5_000, 5_010)))
        assert ids(platform) == list(range(1, 1_001))


def test_a_token_continues_its_own_run_and_no_other(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 1_000)
    with platform_for(sqlite_box, tmp_path, page_size=50, commit_rows=100) as platform:
        assert resume_token(platform, "crm.people") is None
        interrupted(platform, 200)
        first = resume_token(platform, "crm.people")
        assert first is not None
        with pytest.raises(StoppedByTestError):
            extract_table(platform, "crm.people", full=True, on_progress=after(200))
        second = resume_token(platform, "crm.people")
        with pytest.raises(NotResumableError, match="another one has begun"):
            extract_table(platform, "crm.people", resume=first)
        assert extract_table(platform, "crm.people", resume=second).resumed
        with pytest.raises(NotResumableError, match="no run of it is unfinished"):
            extract_table(platform, "crm.people", resume=second)


def test_a_token_of_another_table_is_refused(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 500)
    sqlite_box.run(
        "CREATE TABLE pets (id integer PRIMARY KEY, name text)", "INSERT INTO pets SELECT id, name FROM people"
    )
    both = "table: shop.people, page_size: 50, commit_rows: 100}\n      - {source: pets, table: shop.pets"
    with platform_for(sqlite_box, tmp_path, both, page_size=50, commit_rows=100) as platform:
        interrupted(platform, 100)
        token = resume_token(platform, "crm.people")
        with pytest.raises(StoppedByTestError):
            extract_table(platform, "crm.pets", on_progress=after(100))
        with pytest.raises(TokenForOtherRequestError):
            extract_table(platform, "crm.pets", resume=token)


def test_a_copy_begins_again_when_the_source_was_altered_meanwhile(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 1_000)
    with platform_for(sqlite_box, tmp_path, page_size=50, commit_rows=100) as platform:
        interrupted(platform, 300)
        sqlite_box.run("ALTER TABLE people ADD COLUMN age integer", "UPDATE people SET age = 5")
        report = extract_table(platform, "crm.people")
        assert (report.resumed, {row["age"] for row in copied(platform)}) == (False, {5})
        assert ids(platform) == list(range(1, 1_001))


def test_a_copy_begins_again_when_its_files_are_gone_or_it_is_too_old(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 1_000)
    with platform_for(sqlite_box, tmp_path, page_size=50, commit_rows=100) as platform:
        interrupted(platform, 300)
        for path in platform.lake.table("shop.people").location.local.glob("*.parquet"):
            path.unlink()
        assert extract_table(platform, "crm.people").resumed is False
        interrupted(platform, 300)
        platform.clock = FakeClock(start=platform.clock.now() + RESUMABLE_FOR + timedelta(hours=1))
        assert extract_table(platform, "crm.people").resumed is False
        assert ids(platform) == list(range(1, 1_001))


def test_a_table_that_is_dropped_in_the_middle_leaves_the_copy_as_it_was(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 12_000)
    with platform_for(box, tmp_path, page_size=10, commit_rows=50) as platform:
        extract_table(platform, "crm.people")
        dropping = after(50, lambda: box.run("DROP TABLE people"))
        with pytest.raises(SourceChangedError) as gone:
            extract_table(platform, "crm.people", on_progress=dropping)
        assert gone.value.table.endswith("people")
        assert ids(platform) == list(range(1, 12_001))
        with pytest.raises(UnknownSourceTableError):
            extract_table(platform, "crm.people")


def test_two_runs_at_once_are_one_run_and_a_refusal(sqlite_box: Sandbox, tmp_path: Path) -> None:
    make_people(sqlite_box, 500)
    with platform_for(sqlite_box, tmp_path, page_size=50, commit_rows=100) as platform:
        refused = list[str]()

        def second() -> None:
            with pytest.raises(ExtractBusyError) as busy:
                extract_table(platform, "crm.people")
            refused.append(busy.value.owner)

        extract_table(platform, "crm.people", on_progress=after(100, second))
        assert len(refused) == 1
        assert ids(platform) == list(range(1, 501))


def test_an_empty_table_becomes_an_empty_table_with_its_columns(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 0)
    with platform_for(box, tmp_path) as platform:
        assert extract_table(platform, "crm.people").rows == 0
        assert platform.lake.table("shop.people").snapshot().schema.names == ["id", "name", "score", "seen"]
        add_people(box, 1, 4)
        extract_table(platform, "crm.people")
        assert ids(platform) == [1, 2, 3]
        box.run("DELETE FROM people")
        extract_table(platform, "crm.people")
        assert ids(platform) == []


def test_names_that_sql_or_delta_do_not_like_are_copied_all_the_same(box: Sandbox, tmp_path: Path) -> None:
    names = ["order", '"', "first name", "select", "a;b", "it's", "x'); DROP TABLE people; --"]
    columns = ", ".join(f"{box.quote(name)} varchar(10)" for name in names)
    box.run(f"CREATE TABLE people (id integer PRIMARY KEY, {columns})")
    box.insert("people", [(1, *["v"] * len(names))])
    with platform_for(box, tmp_path) as platform:
        extract_table(platform, "crm.people")
        (row,) = copied(platform)
        assert row == {
            "id": 1, "order": "v", '"': "v", "first_name": "v", "select": "v", "a_b": "v", "it's": "v",
            "x'___DROP_TABLE_people__--": "v",
        }  # fmt: skip


def test_two_thousand_columns_are_copied(sqlite_box: Sandbox, tmp_path: Path) -> None:
    columns = ", ".join(f"c{number} integer" for number in range(1_999))
    sqlite_box.run(f"CREATE TABLE people (id integer PRIMARY KEY, {columns})")
    sqlite_box.run("INSERT INTO people (id, c7, c1998) VALUES (1, 7, 1998)")
    with platform_for(sqlite_box, tmp_path) as platform:
        assert extract_table(platform, "crm.people").rows == 1
        (row,) = copied(platform)
        assert (len(row), row["c7"], row["c1998"], row["c0"]) == (2_000, 7, 1998, None)


def test_a_view_is_copied_by_the_key_that_the_user_names(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 100)
    box.run("ALTER TABLE people RENAME TO persons", "CREATE VIEW people AS SELECT * FROM persons WHERE id > 50")
    with platform_for(box, tmp_path) as platform, pytest.raises(NoKeyError, match="view"):
        extract_table(platform, "crm.people")
    with platform_for(box, tmp_path, key="[id]", page_size=7) as platform:
        assert extract_table(platform, "crm.people").rows == 50


def test_keys_that_do_not_tell_rows_apart_are_refused(sqlite_box: Sandbox, tmp_path: Path) -> None:
    sqlite_box.run("CREATE TABLE people (id bigint, name text)")
    with platform_for(sqlite_box, tmp_path) as platform, pytest.raises(NoKeyError):
        extract_table(platform, "crm.people")
    sqlite_box.run("CREATE UNIQUE INDEX one ON people (id)", "INSERT INTO people VALUES (1, 'a'), (NULL, 'b')")
    with platform_for(sqlite_box, tmp_path, key="[id]") as platform, pytest.raises(NullInKeyError) as null:
        extract_table(platform, "crm.people")
    assert null.value.columns == ("id",)


def test_a_column_without_a_type_names_itself_and_the_choices(sqlite_box: Sandbox, tmp_path: Path) -> None:
    sqlite_box.run("CREATE TABLE people (id integer PRIMARY KEY, what)", "INSERT INTO people VALUES (1, 'x')")
    with platform_for(sqlite_box, tmp_path) as platform, pytest.raises(UnmappableColumnError) as refused:
        extract_table(platform, "crm.people")
    assert (refused.value.column, any("types" in choice for choice in refused.value.choices)) == ("what", True)
    with platform_for(sqlite_box, tmp_path, types="{what: string}") as platform:
        extract_table(platform, "crm.people")
        assert copied(platform) == [{"id": 1, "what": "x"}]
    with platform_for(sqlite_box, tmp_path, exclude="[what]", table="table: shop.other") as platform:
        extract_table(platform, "crm.people")
        assert copied(platform, "shop.other") == [{"id": 1}]


@pytest.mark.parametrize("kind", ["sqlite_box", pytest.param("postgres_box", marks=pytest.mark.server)])
def test_large_values_go_to_files_beside_the_table(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    source: Sandbox = request.getfixturevalue(kind)
    source.run(f"CREATE TABLE people (id integer PRIMARY KEY, photo {'bytea' if 'post' in kind else 'blob'})")
    large = bytes(range(256)) * 1_000
    source.insert("people", [(1, b"small"), (2, large), (3, None), (4, large), (5, b"x" * 1024)])
    with platform_for(source, tmp_path, files="{photo: 1KiB}") as platform:
        extract_table(platform, "crm.people")
        rows = copied(platform)
        root = platform.lake.table("shop.people").location.local
        assert [row["photo"] for row in rows] == [b"small", None, None, None, b"x" * 1024]
        assert [row["photo_file"] is not None for row in rows] == [False, True, False, True, False]
        assert rows[1]["photo_file"] == rows[3]["photo_file"], "the same bytes are kept once"
        assert (root / rows[1]["photo_file"]).read_bytes() == large
        assert len([path for path in (root / "_dw_values").rglob("*") if path.is_file()]) == 1


def test_an_extract_is_found_by_its_source_or_its_table_and_nothing_else(sqlite_box: Sandbox, tmp_path: Path) -> None:
    with platform_for(sqlite_box, tmp_path) as platform:
        assert find_extract(platform, "crm.people").name == find_extract(platform, "shop.people").name == "crm.people"
        with pytest.raises(UnknownExtractError) as unknown:
            find_extract(platform, "crm.pets")
        assert unknown.value.known == ("crm.people",)
        with pytest.raises(NotIncrementalError):
            reconcile_table(platform, "crm.people")


def test_a_plan_says_what_would_be_read_and_changes_nothing(box: Sandbox, tmp_path: Path) -> None:
    make_people(box, 2_000)
    with platform_for(box, tmp_path, page_size=100, exclude="[name]") as platform:
        plan = plan_of(platform, "crm.people")
        assert (plan["key"], plan["page_size"], len(plan["ranges"])) == (["id"], 100, plan["tasks"])
        assert [(column["name"], column["becomes"]) for column in plan["columns"]] == [
            ("id", "int64"), ("score", "decimal128(12, 2)"), ("seen", "timestamp[us]")
        ]  # fmt: skip
        assert not platform.lake.table("shop.people").exists()


def test_a_database_that_is_away_is_said_to_be_and_its_password_is_not(tmp_path: Path) -> None:
    from sqlalchemy import create_engine

    from dw_platform.extract.source import DatabaseSource
    from tests.servers import free_port

    url = f"postgresql+psycopg://u:hunter2@127.0.0.1:{free_port()}/x"
    away = Sandbox(DatabaseSource(name="crm", url=url), create_engine(url))
    with platform_for(away, tmp_path) as platform, pytest.raises(DatabaseUnavailableError) as unavailable:
        extract_table(platform, "crm.people")
    assert "hunter2" not in str(unavailable.value)


@pytest.mark.server
def test_no_free_connection_is_told_and_few_are_respected(postgres_box: Sandbox, tmp_path: Path) -> None:
    make_people(postgres_box, 10)
    with platform_for(postgres_box, tmp_path) as platform:
        from dw_platform.pipelines.extract_plan import plan_extract

        extract = find_extract(platform, "crm.people")
        plan = plan_extract(extract.database, extract.section)
        assert plan.free_connections is not None
        assert plan.free_connections > 0
        from dataclasses import replace

        assert replace(plan, free_connections=1).workers(8) == 1
        assert replace(plan, free_connections=50).workers(8) == 4, "the file's max_connections"
        with pytest.raises(DatabaseUnavailableError, match="in use"):
            replace(plan, free_connections=0).workers(8)


@pytest.mark.spark
@pytest.mark.server
def test_spark_tasks_read_ranges_and_an_interrupted_job_goes_on(
    postgres_box: Sandbox, tmp_path: Path, spark_provider: SparkProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Platform, "spark", spark_provider)
    spark_provider.get()
    postgres_box.run(
        "CREATE TABLE people (id bigint PRIMARY KEY, name text, score numeric(12, 2), seen timestamp NOT NULL)",
        "INSERT INTO people SELECT i, 'name ' || i, i / 100.0, timestamp '2026-01-01' + i * interval '1 s' "
        "FROM generate_series(1, 50000) i",
        "ANALYZE people",
    )
    with platform_for(postgres_box, tmp_path, page_size=1_000, commit_rows=5_000) as platform:
        interrupted(platform, 15_000)
        report = extract_table(platform, "crm.people")
        assert (report.resumed, report.rows) == (True, 50_000)
        assert ids(platform) == list(range(1, 50_001))
        assert platform.lake.table("shop.people").read().selectExpr("sum(score)").first()[0] == Decimal("12500250.00")
