"""One job, several tables: files are staged for all of them, committed one by one, and never left behind."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.lake.commit import PositionConflictError
from dw_platform.lake.lake import Lake
from dw_platform.lake.opening import TableMissingError
from dw_platform.lake.staging import PreparedWrite, SplitTasks, Staging, discard, stage
from dw_platform.lake.table import LakeTable

SCHEMA = pa.schema([("id", pa.int64())])


def read(numbers: tuple[int, ...]) -> Generator[tuple[str, pa.RecordBatch], None, Any]:
    """Even numbers to one table, odd ones to the other; a negative one is refused."""
    for number in numbers:
        if number < 0:
            raise InvalidValueError("number", number, "at least 0")
        yield ("odd" if number % 2 else "even"), pa.record_batch([pa.array([number])], schema=SCHEMA)
    return {"seen": len(numbers)}


def made(lake: Lake) -> dict[str, LakeTable]:
    tables = {name: lake.table(f"numbers.{name}") for name in ("even", "odd")}
    for table in tables.values():
        table.create(SCHEMA)
    return tables


def prepared(tables: dict[str, LakeTable]) -> dict[str, PreparedWrite]:
    return {name: table.prepare(SCHEMA) for name, table in tables.items()}


def staged(tables: dict[str, LakeTable], *payloads: tuple[int, ...]) -> Staging:
    return stage(SplitTasks(payloads, read), prepared(tables), spark=None)


def ids(table: LakeTable) -> list[int]:
    return sorted(table.snapshot().read_arrow()["id"].to_pylist())


def data_files(table: LakeTable) -> list[Path]:
    return list(table.location.local.rglob("*.parquet"))


def test_nothing_is_seen_before_the_commit_and_each_table_has_its_own(lake: Lake) -> None:
    tables = made(lake)
    staging = staged(tables, (1, 2, 3), (4,))
    assert {name: write.rows for name, write in staging.writes.items()} == {"even": 2, "odd": 2}
    assert staging.notes == ({"seen": 3}, {"seen": 1})
    assert ids(tables["even"]) == ids(tables["odd"]) == []
    report = tables["odd"].commit_staged(staging.writes["odd"], positions={"p": 4})
    assert (report.rows, report.files, report.engine) == (2, 1, "arrow")
    assert (ids(tables["odd"]), tables["odd"].snapshot().position("p")) == ([1, 3], 4)
    assert ids(tables["even"]) == []
    tables["even"].commit_staged(staging.writes["even"])
    assert ids(tables["even"]) == [2, 4]


def test_a_task_that_fails_leaves_no_file_in_any_table(lake: Lake) -> None:
    tables = made(lake)
    with pytest.raises(InvalidValueError):
        staged(tables, (1, 2), (3, 4, -1))
    assert [path for table in tables.values() for path in data_files(table)] == []


def test_a_discarded_write_leaves_no_file(lake: Lake) -> None:
    tables = made(lake)
    staging = staged(tables, (1, 2))
    discard(staging.writes["odd"])
    assert data_files(tables["odd"]) == []
    tables["even"].commit_staged(staging.writes["even"])
    assert ids(tables["even"]) == [2]


def test_a_position_that_moved_since_the_write_was_prepared_is_a_conflict(lake: Lake) -> None:
    tables = made(lake)
    staging = staged(tables, (1, 3))
    tables["odd"].append(pa.table({"id": [5]}), positions={"p": 1})
    with pytest.raises(PositionConflictError):
        tables["odd"].commit_staged(staging.writes["odd"], positions={"p": 3})
    assert ids(tables["odd"]) == [5]
    assert len(data_files(tables["odd"])) == 1, "the files of the write that lost are gone"


def test_an_unrelated_append_in_between_is_no_conflict(lake: Lake) -> None:
    tables = made(lake)
    staging = staged(tables, (1, 3))
    tables["odd"].append(pa.table({"id": [5]}), positions={"other": 1})
    tables["odd"].commit_staged(staging.writes["odd"], positions={"p": 3})
    assert ids(tables["odd"]) == [1, 3, 5]


def test_new_columns_are_added_before_anything_is_staged(lake: Lake) -> None:
    table = made(lake)["odd"]
    wider = pa.schema([*SCHEMA, ("note", pa.string())])
    assert table.prepare(wider).snapshot.schema.names == ["id", "note"]


def test_a_table_that_is_not_there_is_not_made_by_preparing(lake: Lake) -> None:
    with pytest.raises(TableMissingError):
        lake.table("numbers.none").prepare(SCHEMA)


@pytest.mark.spark
def test_spark_tasks_stage_alike_and_their_permanent_errors_arrive(lake: Lake) -> None:
    tables = made(lake)
    staging = stage(SplitTasks([(1, 2), (3,)], read), prepared(tables), spark=lake.spark.get)
    assert staging.notes == ({"seen": 2}, {"seen": 1})
    for name, table in tables.items():
        table.commit_staged(staging.writes[name])
    assert (ids(tables["even"]), ids(tables["odd"])) == ([2], [1, 3])
    with pytest.raises(InvalidValueError) as caught:
        stage(SplitTasks([(1, 2), (-1,)], read), prepared(tables), spark=lake.spark.get)
    assert caught.value.value == -1
    assert sum(len(data_files(table)) for table in tables.values()) == 3


@pytest.mark.spark
def test_rewinding_deletes_rows_and_lowers_positions(lake: Lake) -> None:
    table = lake.table("t")
    table.append(pa.table({"id": [1, 2, 3]}), positions={"p": 3, "q": 1})
    table.rewind("id >= 2", {"p": 1}, snapshot=table.snapshot())
    assert ids(table) == [1]
    assert [table.snapshot().position(name) for name in ("p", "q")] == [1, 1]
    table.append(pa.table({"id": [2]}), positions={"p": 2})
    assert ids(table) == [1, 2]


@pytest.mark.spark
def test_rewinding_from_positions_that_moved_changes_nothing(lake: Lake) -> None:
    table = lake.table("t")
    table.append(pa.table({"id": [1, 2]}), positions={"p": 2})
    before = table.snapshot()
    table.append(pa.table({"id": [3]}), positions={"p": 3})
    with pytest.raises(PositionConflictError) as caught:
        table.rewind("id >= 2", {"p": 1}, snapshot=before)
    assert caught.value.app_ids == ("p",)
    assert (ids(table), table.snapshot().position("p")) == ([1, 2, 3], 3)


@pytest.mark.spark
def test_a_write_prepared_before_a_rewind_cannot_be_committed_after_it(lake: Lake) -> None:
    table = lake.table("t")
    table.append(pa.table({"id": [1, 2]}), positions={"p": 2})
    staging = stage(SplitTasks([(3,)], read), {"odd": table.prepare(SCHEMA)}, spark=None)
    table.rewind("id >= 2", {"p": 1}, snapshot=table.snapshot())
    with pytest.raises(PositionConflictError):
        table.commit_staged(staging.writes["odd"], positions={"p": 3})
    assert ids(table) == [1]


@pytest.mark.spark
def test_positions_of_a_table_that_needs_sparks_writer_go_back_too(lake: Lake) -> None:
    table = lake.table("t")
    table.append(pa.table({"id": [1, 2, 3]}), positions={"p": 3})
    place = table.location.spark_uri
    lake.spark.get().sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT positive CHECK (id > 0)")
    table.rewind("id >= 2", {"p": 1}, snapshot=table.snapshot())
    assert (ids(table), table.snapshot().position("p")) == ([1], 1)
    staging = stage(SplitTasks([(5,)], read), {"odd": table.prepare(SCHEMA)}, spark=None)
    assert staging.writes["odd"].rows == 1
    report = table.commit_staged(staging.writes["odd"], positions={"p": 2})
    assert (report.engine, ids(table), table.snapshot().position("p")) == ("spark", [1, 5], 2)
