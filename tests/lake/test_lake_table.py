import json
from pathlib import Path

import pyarrow as pa
import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.lake.commit import (
    CommitConflictError,
    NotCommittedError,
    PositionConflictError,
    StalePositionError,
)
from dw_platform.lake.features import Engine
from dw_platform.lake.lake import Lake
from dw_platform.lake.lock import FileTableLock, TableBusyError
from dw_platform.lake.nesting import NestedTableError
from dw_platform.lake.parquet import NullInRequiredColumnError
from dw_platform.lake.schema import InvalidColumnsError, SchemaMismatchError
from dw_platform.lake.table import LakeTable
from tests.lake.workers import answer, started, tell

ROWS = pa.table({"id": [1, 2], "v": ["a", None]})


def ids(table: LakeTable) -> list[int]:
    return sorted(table.snapshot().read_arrow(["id"])["id"].to_pylist())


def data_files(table: LakeTable) -> set[Path]:
    return set(table.location.local.rglob("*.parquet")) - set(table.location.local.glob("_delta_log/*"))


def referenced(table: LakeTable) -> set[Path]:
    return {Path(uri) for uri in table.snapshot().delta.file_uris()}


def test_the_first_rows_make_the_table_and_the_commit_says_who_wrote_it_and_why(lake: Lake) -> None:
    report = lake.table("shop.orders").append(ROWS)
    assert (report.rows, report.files, report.engine) == (2, 1, Engine.ARROW)
    assert report.bytes == sum(path.stat().st_size for path in data_files(lake.table("shop.orders")))
    newest, first = lake.table("shop.orders").history()
    assert (newest.version, newest.engine, newest.operation) == (report.version, "arrow", "WRITE")
    assert newest.reason == report.reason == "no feature or constraint of the table needs Spark's writer"
    assert (first.operation, first.reason) == ("CREATE TABLE", "the table is made")


def test_arrow_writes_start_no_jvm(tmp_path: Path) -> None:
    from dw_platform.lake.session import SparkProvider
    from dw_platform.lake.settings import LakeSettings, SparkSettings
    from dw_platform.store import MemoryStore

    settings = LakeSettings(root=str(tmp_path / "lake"))
    provider = SparkProvider(SparkSettings(scratch=tmp_path), settings)
    table = Lake(settings, store=MemoryStore(), spark=provider).table("t")
    table.append(ROWS)
    table.overwrite(ROWS)
    table.maintain()
    assert not provider.started


def test_a_root_with_spaces_and_umlauts_works(tmp_path: Path, lake: Lake) -> None:
    from dw_platform.lake.settings import LakeSettings
    from dw_platform.store import MemoryStore

    odd = Lake(LakeSettings(root=str(tmp_path / "ein See für #1, 'so'")), store=MemoryStore(), spark=lake.spark)
    odd.table("a.b").append(ROWS)
    assert odd.table_names() == ["a.b"]
    assert ids(odd.table("a.b")) == [1, 2]


def test_rows_come_back_by_column_and_version(lake: Lake) -> None:
    table = lake.table("t")
    first = table.append(ROWS).version
    table.append(pa.table({"id": [3], "v": ["c"]}))
    assert table.snapshot(first).read_arrow().to_pylist() == ROWS.to_pylist()
    assert table.snapshot().read_arrow(["v"]).column_names == ["v"]
    assert (table.snapshot().row_count, table.snapshot().file_count) == (3, 2)
    assert table.snapshot().size_bytes == sum(path.stat().st_size for path in data_files(table))


def test_positions_are_committed_with_the_rows(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS, positions={"topic/0": 10, "topic/1": 7})
    assert [table.snapshot().position(name) for name in ("topic/0", "topic/1", "topic/2")] == [10, 7, None]


def test_positions_can_move_without_rows(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS, positions={"p": 1})
    report = table.append(ROWS.schema.empty_table(), positions={"p": 2})
    assert (report.rows, report.files, table.snapshot().position("p")) == (0, 0, 2)


@pytest.mark.parametrize("proposed", [10, 9])
def test_a_position_that_does_not_move_forward_is_refused(lake: Lake, proposed: int) -> None:
    table = lake.table("t")
    table.append(ROWS, positions={"p": 10})
    with pytest.raises(StalePositionError) as caught:
        table.append(ROWS, positions={"p": proposed})
    assert (caught.value.committed, caught.value.proposed) == (10, proposed)
    assert data_files(table) == referenced(table)


def test_of_two_writers_with_one_plan_the_second_conflicts_and_leaves_no_file(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS, positions={"p": 1})
    mine, theirs = table.snapshot(), table.snapshot()
    table.append(ROWS, positions={"p": 5}, snapshot=theirs)
    with pytest.raises(PositionConflictError) as caught:
        table.append(ROWS, positions={"p": 9}, snapshot=mine)
    assert caught.value.app_ids == ("p",)
    assert table.snapshot().position("p") == 5
    assert data_files(table) == referenced(table)
    assert ids(table) == [1, 1, 2, 2]


def test_writers_of_different_positions_do_not_conflict(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    mine, theirs = table.snapshot(), table.snapshot()
    table.append(ROWS, positions={"a": 1}, snapshot=theirs)
    table.append(ROWS, positions={"b": 1}, snapshot=mine)
    assert len(ids(table)) == 6


def test_a_plan_older_than_a_moved_position_conflicts_also_when_columns_are_added_first(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS, positions={"p": 1})
    planned = table.snapshot()
    table.append(ROWS, positions={"p": 50})
    with pytest.raises(PositionConflictError):
        table.append(ROWS.append_column("new", pa.array([1, 2])), positions={"p": 90}, snapshot=planned)
    assert len(ids(table)) == 4


def test_a_snapshot_used_twice_does_not_hide_what_others_committed_in_between(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    planned = table.snapshot()
    table.append(ROWS, positions={"b": 10})
    table.append(ROWS, positions={"a": 5}, snapshot=planned)
    with pytest.raises(PositionConflictError):
        table.append(ROWS, positions={"b": 20}, snapshot=planned)


def test_a_changed_schema_conflicts_by_deltas_own_rules_and_is_not_mistaken_for_a_position(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    planned = table.snapshot()
    table.append(ROWS.append_column("new", pa.array([1, 2])))
    with pytest.raises(CommitConflictError, match="Metadata changed"):
        table.append(ROWS, positions={"p": 1}, snapshot=planned)
    assert data_files(table) == referenced(table)


def test_an_append_stands_beside_a_delete_that_came_first(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    planned = table.snapshot()
    table.snapshot().delta.delete("id = 1")
    table.append(ROWS, positions={"p": 1}, snapshot=planned)
    assert ids(table) == [1, 2, 2]


def test_a_delete_that_came_first_hides_no_moved_position(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS, positions={"p": 1})
    planned = table.snapshot()
    table.snapshot().delta.delete("id = 1")
    table.append(ROWS, positions={"p": 5})
    with pytest.raises(PositionConflictError):
        table.append(ROWS, positions={"p": 9}, snapshot=planned)
    assert data_files(table) >= referenced(table)
    assert ids(table) == [1, 2, 2]


def test_a_commit_whose_answer_was_lost_is_found_in_the_log(lake: Lake) -> None:
    table = lake.table("t")
    table.create(ROWS.schema, properties={"delta.checkpointInterval": "1"})
    # A checkpoint follows the commit; with a folder in the place of its pointer it fails, after the commit stands.
    (table.location.local / "_delta_log" / "_last_checkpoint" / "x").mkdir(parents=True)
    report = table.append(ROWS, positions={"p": 3})
    assert report.version == table.snapshot().version
    assert ids(table) == [1, 2]
    assert table.snapshot().position("p") == 3


def test_new_columns_are_taken_in_and_narrower_numbers_are_widened(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    table.append(pa.table({"id": pa.array([3], pa.int8()), "v": ["c"], "extra": [0.5]}))
    rows = {row["id"]: row for row in table.snapshot().read_arrow().to_pylist()}
    assert rows == {
        1: {"id": 1, "v": "a", "extra": None},
        2: {"id": 2, "v": None, "extra": None},
        3: {"id": 3, "v": "c", "extra": 0.5},
    }
    assert table.snapshot().schema.field("id").type == pa.int64()


def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    before = table.snapshot().version, data_files(table)
    with pytest.raises(SchemaMismatchError) as caught:
        table.append(pa.table({"id": ["text"], "v": ["a"]}))
    assert caught.value.expected.names == caught.value.actual.names == ["id", "v"]
    with pytest.raises(SchemaMismatchError, match="column v is missing"):
        table.append(pa.table({"id": [1]}))
    assert (table.snapshot().version, data_files(table)) == before
    table.append(pa.table({"id": [3]}), missing="null")
    assert ids(table) == [1, 2, 3]


def test_a_null_in_a_required_column_is_refused_and_nothing_is_written(lake: Lake) -> None:
    table = lake.table("t")
    table.create(pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]))
    with pytest.raises(NullInRequiredColumnError):
        table.append(pa.table({"id": pa.array([1, None], pa.int64()), "v": ["a", "b"]}))
    assert data_files(table) == set()
    table.append(ROWS)
    assert not table.snapshot().schema.field("id").nullable


def test_a_required_column_beside_a_local_time_names_its_features(lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us"))])
    snapshot = lake.table("t").create(schema)
    assert {"timestampNtz", "invariants"} <= snapshot.facts.writer_features


def test_partitioned_rows_come_back_whatever_their_values(lake: Lake) -> None:
    values = ["plain", "a/b", "50%", "x=y", "ü \U0001f600", "..", "", None, "__HIVE_DEFAULT_PARTITION__", "a'b\"c\\"]
    rows = pa.table({"p": pa.array(values), "id": list(range(len(values)))})
    table = lake.table("t")
    table.append(rows, partition_by=["p"])
    table.append(rows)
    found = {row["id"]: row["p"] for row in table.snapshot().read_arrow().to_pylist()}
    assert found == {number: value or None for number, value in enumerate(values)}
    assert len(ids(table)) == 2 * len(values)


def test_an_overwrite_replaces_rows_and_keeps_the_tables_rules(lake: Lake) -> None:
    table = lake.table("t")
    table.create(pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]))
    table.append(ROWS, positions={"p": 4})
    report = table.overwrite(pa.table({"v": ["z"], "id": [9]}))
    assert (report.engine, report.rows, ids(table)) == (Engine.ARROW, 1, [9])
    assert not table.snapshot().schema.field("id").nullable
    assert table.snapshot().position("p") == 4
    with pytest.raises(NullInRequiredColumnError):
        table.overwrite(pa.table({"id": pa.array([None], pa.int64()), "v": ["z"]}))
    assert ids(table) == [9]


def test_an_overwrite_may_change_the_columns(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    table.overwrite(pa.table({"id": ["x"], "other": [1.5]}))
    assert table.snapshot().read_arrow().to_pylist() == [{"id": "x", "other": 1.5}]


def test_an_overwrite_replaces_what_came_while_its_files_were_written(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    base = table.snapshot()
    files = table._write_files(pa.table({"id": [7], "v": ["new"]}), base, base.schema)
    table.append(ROWS)
    table._commit_arrow(base, files, mode="overwrite", positions={}, started=0)
    assert ids(table) == [7]


def test_two_overwrites_of_an_empty_table_leave_the_rows_of_one(lake: Lake) -> None:
    table = lake.table("t")
    base = table.create(ROWS.schema)
    both = [table._write_files(ROWS, base, base.schema) for _ in range(2)]
    for files in both:
        table._commit_arrow(base, files, mode="overwrite", positions={}, started=0)
    assert ids(table) == [1, 2]


def test_an_overwrite_conflicts_when_the_columns_changed_meanwhile(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    base = table.snapshot()
    files = table._write_files(ROWS, base, base.schema)
    table.append(ROWS.append_column("new", pa.array([1, 2])))
    with pytest.raises(CommitConflictError, match="columns or properties"):
        table._commit_arrow(base, files, mode="overwrite", positions={}, started=0)
    assert data_files(table) == referenced(table)


def test_a_busy_table_leaves_no_file_behind(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table("t")
    table.append(ROWS)
    monkeypatch.setattr(table._lock, "shared", lambda: FileTableLock(table.location.local).shared(timeout_s=0))
    with FileTableLock(table.location.local).exclusive(), pytest.raises(TableBusyError):
        table.append(ROWS, snapshot=table.snapshot())
    assert data_files(table) == referenced(table)


def test_two_processes_that_create_one_table_end_up_with_the_same(lake: Lake) -> None:
    root = str(Path(lake.settings.root))
    with started("create", root, "t") as one, started("create", root, "t") as two:
        tell(one)
        tell(two)
        made = {answer(one), answer(two)}
    assert len(made) == 1
    assert made == {lake.table("t").snapshot().delta.metadata().id}
    assert lake.table("t").snapshot().facts.writer_features >= {"timestampNtz"}


def test_a_table_is_refused_inside_another_and_around_others(lake: Lake) -> None:
    lake.table("shop").append(ROWS)
    with pytest.raises(NestedTableError) as caught:
        lake.table("shop.orders").append(ROWS)
    assert caught.value.other == str(lake.location("shop").local)
    lake.table("crm.people").append(ROWS)
    with pytest.raises(NestedTableError):
        lake.table("crm").append(ROWS)


def test_tables_are_listed_by_name(lake: Lake) -> None:
    assert lake.table_names() == []
    for name in ("zoo", "shop.orders", "shop.people"):
        lake.table(name).append(ROWS, partition_by=["v"])
    (lake.location("zoo").local.parent / "no_table").mkdir()
    assert lake.table_names() == ["shop.orders", "shop.people", "zoo"]
    assert lake.table("zoo").exists()
    assert not lake.table("no_table").exists()


@pytest.mark.parametrize("name", ["", "Orders", "a.b.c", "_hidden", "shop._delta_log", "../up", "a-b", "1st", "a" * 64])
def test_a_name_that_is_no_folder_everywhere_is_refused(lake: Lake, name: str) -> None:
    with pytest.raises(InvalidValueError, match="lower-case letters"):
        lake.table(name)


def test_the_statistics_in_the_log_are_those_of_the_rows(lake: Lake) -> None:
    table = lake.table("t")
    version = table.append(pa.table({"id": [3, 1, 2], "a.b": ["x", None, "y"]})).version
    log = (table.location.local / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    [add] = [json.loads(line)["add"] for line in log if '"add"' in line]
    assert json.loads(add["stats"]) == {
        "numRecords": 3,
        "minValues": {"id": 1, "a.b": "x"},
        "maxValues": {"id": 3, "a.b": "y"},
        "nullCount": {"id": 0, "a.b": 1},
    }


def test_history_shows_a_stranger_by_its_own_name(lake: Lake) -> None:
    from deltalake import CommitProperties, write_deltalake

    table = lake.table("t")
    table.append(ROWS)
    foreign = CommitProperties(custom_metadata={"userMetadata": "not json"})
    write_deltalake(table.location.uri, ROWS, mode="append", commit_properties=foreign)
    assert table.history(1)[0].engine.startswith("delta-rs")
    assert table.history(1)[0].reason == ""


@pytest.mark.parametrize("columns", [{"a b": [1]}, {"A": [1], "a": [2]}, {}])
def test_column_names_that_make_a_broken_table_are_refused_before_it_exists(
    lake: Lake, columns: dict[str, list[int]]
) -> None:
    with pytest.raises(InvalidColumnsError):
        lake.table("t").append(pa.table(columns))
    assert not lake.table("t").exists()


def test_a_new_column_with_a_broken_name_is_refused_and_the_table_stays_as_it_is(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    with pytest.raises(InvalidColumnsError):
        table.append(ROWS.append_column("a b", pa.array([1, 2])))
    assert table.snapshot().schema.names == ["id", "v"]


def test_every_error_before_a_commit_says_so_by_its_type() -> None:
    assert all(
        issubclass(kind, NotCommittedError) for kind in (PositionConflictError, StalePositionError, CommitConflictError)
    )
