"""Rows that arrive in parts: progress in the log, one commit that shows them, changes by key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError, TransientError
from dw_platform.lake.changes import ChangedRows, UpsertReport
from dw_platform.lake.commit import PositionConflictError
from dw_platform.lake.features import Engine
from dw_platform.lake.lake import Lake
from dw_platform.lake.lanes import run_lanes
from dw_platform.lake.load import StagedFilesGoneError
from dw_platform.lake.parquet import DataFile, write_batches
from dw_platform.lake.parts import Part, PartBoard, ReadPage, jobs_with_notes
from dw_platform.lake.planning import new_job
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings, SparkSettings
from dw_platform.lake.table import LakeTable
from dw_platform.store import MemoryStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("at", pa.int64())])
APP = "extract/shop.customers"


@pytest.fixture
def quiet(tmp_path: Path) -> Lake:
    """A lake whose Spark was never started, so that everything happens in this process."""
    root = LakeSettings(root=str(tmp_path / "quiet"))
    return Lake(root, store=MemoryStore(), spark=SparkProvider(SparkSettings(scratch=tmp_path), root))


def rows(*ids: int, v: str = "a", at: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids), "at": [at] * len(ids)}, schema=SCHEMA)


def written(table: LakeTable, *parts: pa.Table) -> list[DataFile]:
    job = new_job(table.snapshot(), SCHEMA)
    return [file for part in parts for file in write_batches(job, part.to_batches())]


def content(table: LakeTable) -> dict[int, tuple[str, int]]:
    found = table.snapshot().read_arrow()
    assert len(found) == len(set(found["id"].to_pylist())), "no key is there twice"
    return {row["id"]: (row["v"], row["at"]) for row in found.to_pylist()}


def changes(table: LakeTable, *parts: pa.Table, **settings: Any) -> ChangedRows:
    return ChangedRows(files=written(table, *parts), schema=SCHEMA, keys=("id",), **settings)


def upserted(table: LakeTable, *parts: pa.Table, **settings: Any) -> UpsertReport:
    load = table.load(APP)
    return load.upsert(load.state(), changes(table, *parts, **settings), {"n": 1}, reason="changes arrive")


def parquet_files(table: LakeTable) -> set[str]:
    return {path.name for path in table.location.local.rglob("*.parquet")}


def referenced(table: LakeTable) -> set[str]:
    return {Path(uri).name for uri in table.snapshot().delta.file_uris()}


# Progress and replacing


def test_progress_is_a_commit_without_rows_that_says_how_to_go_on(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1, 2))
    load = table.load(APP)
    state = load.state()
    assert (state.position, state.details) == (None, None)
    state = load.progress(state, {"at": [5, None]}, reason="half of it is read")
    again = table.load(APP).state()
    assert (again.position, again.details, state.position) == (1, {"at": [5, None]}, 1)
    assert sorted(content(table)) == [1, 2]
    assert table.history(1)[0].reason == "half of it is read"


def test_progress_survives_other_commits_and_a_checkpoint(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1))
    load = table.load(APP)
    load.progress(load.state(), {"at": 7}, reason="so far")
    table.append(rows(2))
    table.snapshot().delta.create_checkpoint()
    table.append(rows(3))
    assert (load.state().position, load.state().details) == (1, {"at": 7})


def test_without_its_commit_in_the_log_the_position_is_known_and_the_details_are_not(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1))
    load = table.load(APP)
    load.progress(load.state(), {"at": 7}, reason="so far")
    table.append(rows(2))
    table.snapshot().delta.create_checkpoint()
    for version in range(table.snapshot().version):
        (table.location.local / "_delta_log" / f"{version:020d}.json").unlink()
    assert (load.state().position, load.state().details) == (1, None)


def test_of_two_loads_of_one_table_only_one_goes_on(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1))
    mine, theirs = table.load(APP), table.load(APP)
    planned = theirs.state()
    mine.progress(mine.state(), {}, reason="first")
    with pytest.raises(PositionConflictError):
        theirs.progress(planned, {}, reason="second")
    with pytest.raises(PositionConflictError):
        theirs.replace(planned, new_job(planned.snapshot, SCHEMA), [], {}, reason="second")
    with pytest.raises(PositionConflictError):
        theirs.upsert(planned, changes(table, rows(1)), {}, reason="second")


def test_a_replacement_shows_all_rows_at_once_and_also_changes_the_columns(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(pa.table({"id": [1], "old": ["x"]}))
    load = table.load(APP)
    state = load.state()
    job = new_job(state.snapshot, SCHEMA)
    files = [file for part in (rows(5), rows(6, 7)) for file in write_batches(job, part.to_batches())]
    assert table.snapshot().schema.names == ["id", "old"]
    report = load.replace(state, job, files, {"finished": True}, reason="a full copy")
    assert (report.rows, report.engine, report.files) == (3, Engine.ARROW, 2)
    assert (sorted(content(table)), load.state().details) == ([5, 6, 7], {"finished": True})


def test_a_replacement_whose_files_are_gone_changes_nothing(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1))
    load, files = table.load(APP), written(table, rows(2), rows(3))
    (table.location.local / files[0].path).unlink()
    state = load.state()
    with pytest.raises(StagedFilesGoneError) as gone:
        load.replace(state, new_job(state.snapshot, SCHEMA), files, {}, reason="a full copy")
    assert (gone.value.missing, sorted(content(table))) == (1, [1])


@pytest.mark.spark
def test_a_table_with_a_constraint_is_loaded_by_spark_with_the_same_promises(lake: Lake) -> None:
    table = lake.table("shop.customers")
    table.append(rows(1))
    place = table.location.spark_uri
    lake.spark.get().sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT positive CHECK (id > 0)")
    load = table.load(APP)
    state = load.progress(load.state(), {"at": 1}, reason="so far")
    job = new_job(state.snapshot, SCHEMA)
    files = [file for part in (rows(5), rows(6, 7)) for file in write_batches(job, part.to_batches())]
    assert load.replace(state, job, files, {"finished": True}, reason="a full copy").engine is Engine.SPARK
    assert (sorted(content(table)), load.state().position, load.state().details) == ([5, 6, 7], 2, {"finished": True})
    report = upserted(table, rows(6, 9, v="b", at=2), newest_by="at", deleted=pa.table({"id": [5]}))
    assert report.commit is not None
    assert (report.commit.engine, report.written, report.replaced) == (Engine.SPARK, 2, 2)
    assert content(table) == {6: ("b", 2), 7: ("a", 1), 9: ("b", 2)}
    assert load.state().position == 3
    assert upserted(table, rows(6, v="c", at=1), newest_by="at").written == 0
    assert content(table)[6] == ("b", 2)


# Changes by key


def test_changes_replace_rows_of_the_same_key_and_untouched_files_stay(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1, 2))
    table.append(rows(3, 4))
    untouched = referenced(table)
    report = upserted(table, rows(2, 9, v="b"))
    assert report.commit is not None
    assert (report.written, report.replaced, report.unchanged) == (2, 1, 0)
    assert content(table) == {1: ("a", 1), 2: ("b", 1), 3: ("a", 1), 4: ("a", 1), 9: ("b", 1)}
    assert len(untouched & referenced(table)) == 1
    assert not quiet.spark.started


def test_deleted_keys_go_and_a_deletion_wins_over_a_change(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1, 2, 3))
    upserted(table, rows(2, 3, v="b"), deleted=pa.table({"id": [1, 2, 77]}))
    assert content(table) == {3: ("b", 1)}
    assert parquet_files(table) >= referenced(table)


def test_of_several_changes_of_one_key_the_last_one_read_counts(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1))
    report = upserted(table, rows(1, 2, v="b"), rows(1, v="c"), rows(2, v="d"))
    assert (report.written, report.unchanged) == (2, 2)
    assert content(table) == {1: ("c", 1), 2: ("d", 1)}


def test_what_is_read_again_and_has_not_changed_is_no_commit(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1, 2, at=5))
    version = table.snapshot().version
    report = upserted(table, rows(1, 2, v="b", at=5), newest_by="at")
    assert (report.commit, report.unchanged) == (None, 2)
    assert (table.snapshot().version, parquet_files(table)) == (version, referenced(table))
    report = upserted(table, rows(1, at=4, v="old"), rows(2, at=6, v="new"), newest_by="at")
    assert (report.written, report.replaced, report.unchanged) == (1, 1, 1)
    assert content(table) == {1: ("a", 5), 2: ("new", 6)}


def test_rows_written_before_a_column_was_added_are_older_than_every_change(quiet: Lake) -> None:
    table = quiet.table("shop.customers")
    table.append(pa.table({"id": [1, 2], "v": ["x", "y"]}))
    table.prepare(SCHEMA)
    upserted(table, rows(1, v="b"), newest_by="at")
    assert content(table) == {1: ("b", 1), 2: ("y", None)}


def test_a_commit_in_between_makes_it_compare_again(quiet: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = quiet.table("shop.customers")
    table.append(rows(1, 2))
    from dw_platform.lake import changing

    beaten = iter([True])
    stage = changing.stage

    def beaten_once(*args: Any, **settings: Any) -> Any:
        staging = stage(*args, **settings)
        if next(beaten, False):
            table.append(rows(3, v="meanwhile"))
        return staging

    monkeypatch.setattr(changing, "stage", beaten_once)
    upserted(table, rows(2, 3, v="b"))
    assert content(table) == {1: ("a", 1), 2: ("b", 1), 3: ("b", 1)}
    left = parquet_files(table) - referenced(table)
    assert len(left) == 2, "the two files that were replaced, for readers of older versions; nothing of the first try"


keys = st.integers(0, 12)
versions = st.integers(0, 5)
change_lists = st.lists(st.lists(st.tuples(keys, versions), min_size=1, max_size=8), min_size=1, max_size=3)


@settings(max_examples=40)
@given(before=st.lists(st.dictionaries(keys, versions, max_size=6), max_size=3), parts=change_lists, gone=st.sets(keys))
def test_any_changes_give_what_a_dictionary_would(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[dict[int, int]],
    parts: list[list[tuple[int, int]]],
    gone: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("any")
    root = LakeSettings(root=str(folder / "lake"))
    table = Lake(root, store=MemoryStore(), spark=SparkProvider(SparkSettings(scratch=folder), root)).table("t")
    table.create(SCHEMA)
    model: dict[int, tuple[str, int]] = {}
    for number, part in enumerate(before):
        new = {key: at for key, at in part.items() if key not in model}
        model |= {key: (f"old {number}", at) for key, at in new.items()}
        table.append(pa.table({"id": list(new), "v": [f"old {number}"] * len(new), "at": list(new.values())}, SCHEMA))
    tables, newest = [], dict[int, tuple[str, int]]()
    for number, listed in enumerate(parts):
        texts = [f"new {number}.{place}" for place in range(len(listed))]
        ids, ats = zip(*listed, strict=True)
        tables.append(pa.table({"id": ids, "v": texts, "at": ats}, SCHEMA))
        newest |= {key: (text, at) for (key, at), text in zip(listed, texts, strict=True)}
    for key, (text, at) in newest.items():
        if key not in gone and (key not in model or at > model[key][1]):
            model[key] = (text, at)
    upserted(table, *tables, newest_by="at", deleted=pa.table({"id": pa.array(sorted(gone), pa.int64())}))
    assert content(table) == {key: value for key, value in model.items() if key not in gone}


@pytest.mark.spark
def test_spark_reads_what_the_files_say_after_changes_and_can_go_on(lake: Lake) -> None:
    table = lake.table("shop.customers")
    table.append(rows(*range(1000)))
    lake.spark.get()
    assert upserted(table, rows(*range(0, 2000, 2), v="b", at=2), newest_by="at").replaced == 500
    found = {row.id: row.v for row in table.read().collect()}
    assert (len(found), found[2], found[3], found[1998]) == (1500, "b", "a", "b")
    table.maintain()
    table.delete("id = 3")
    assert table.read().where("id % 2 = 1").count() == 499


# Lanes


def numbers(lane: int, start: Any) -> Iterator[ReadPage]:
    """Ten pages of ten numbers a lane; lane 8 breaks in the middle, lane 9 is refused."""
    for page in range(start or 0, 10):
        if lane == 8 and page == 5:
            raise OSError("the disk is gone")
        if lane == 9 and page == 5:
            raise InvalidValueError("page", page, "below 5")
        first = lane * 1000 + page * 10
        yield ReadPage(rows(*range(first, first + 10)), page + 1, page == 9)


def ran(lake: Lake, table: LakeTable, lanes: list[tuple[int, Any]], *, spark: bool) -> list[Part]:
    job = new_job(table.snapshot(), SCHEMA)
    return list(run_lanes(job, lanes, numbers, workers=2, part_rows=30, spark=lake.spark.get if spark else None))


@pytest.mark.parametrize("spark", [False, pytest.param(True, marks=pytest.mark.spark)])
def test_parts_come_in_order_and_hold_every_page_once(lake: Lake, spark: bool) -> None:  # noqa: FBT001
    table = lake.table("t")
    table.create(SCHEMA)
    parts = ran(lake, table, [(1, None), (2, 4), (3, None)], spark=spark)
    for lane, start in ((1, None), (2, 4), (3, None)):
        mine = [part for part in parts if part.lane == lane]
        assert [part.start for part in mine] == [start, *(part.end for part in mine[:-1])]
        assert [part.last for part in mine] == [False] * (len(mine) - 1) + [True]
        assert sum(part.rows for part in mine) == (10 - (start or 0)) * 10
    job = new_job(table.snapshot(), SCHEMA)
    load = table.load(APP)
    load.replace(load.state(), job, [file for part in parts for file in part.files], {}, reason="all")
    assert sorted(content(table)) == [*range(1000, 1100), *range(2040, 2100), *range(3000, 3100)]
    assert jobs_with_notes(table.location)
    load.clear_notes()
    assert not jobs_with_notes(table.location)


@pytest.mark.parametrize("spark", [False, pytest.param(True, marks=pytest.mark.spark)])
@pytest.mark.parametrize(("lane", "kind"), [(8, TransientError), (9, InvalidValueError)])
def test_finished_parts_are_handed_out_before_the_error(
    lake: Lake,
    spark: bool,  # noqa: FBT001
    lane: int,
    kind: type[Exception],
) -> None:
    table = lake.table("t")
    table.create(SCHEMA)
    job = new_job(table.snapshot(), SCHEMA)
    got = list[Part]()
    provider = lake.spark.get if spark else None
    with pytest.raises(kind):
        got.extend(run_lanes(job, [(lane, None)], numbers, workers=1, part_rows=20, spark=provider))
    assert [part.end for part in got] == [2, 4]
    named = {file.path for part in got for file in part.files}
    assert {path.name for path in table.location.local.glob("*.parquet")} == named, "what was begun is removed"


def test_another_attempt_goes_on_at_the_end_of_the_chain(quiet: Lake) -> None:
    from dw_platform.lake.parts import write_lane

    table = quiet.table("t")
    table.create(SCHEMA)
    job = new_job(table.snapshot(), SCHEMA)
    with pytest.raises(OSError, match="the disk is gone"):
        write_lane(job, 8, None, numbers, part_rows=20)
    board = PartBoard(table.location, job.job_id)
    assert board.end_of(8, None) == (4, False)

    def mended(lane: int, start: Any) -> Iterator[ReadPage]:
        return (ReadPage(page.rows, page.end, page.last) for page in numbers(lane - 7, start))

    write_lane(job, 8, None, mended, part_rows=20)
    assert board.end_of(8, None) == (10, True)
    write_lane(job, 8, None, mended, part_rows=20)
    assert sum(board.read(name).rows for name in board.names()) == 100


def test_whoever_stops_early_ends_the_threads(quiet: Lake) -> None:
    table = quiet.table("t")
    table.create(SCHEMA)
    job = new_job(table.snapshot(), SCHEMA)

    def endless(_lane: int, start: Any) -> Iterator[ReadPage]:
        page = start or 0
        while True:
            page += 1
            yield ReadPage(rows(page), page, last=False)

    parts = run_lanes(job, [(0, None), (1, None)], endless, workers=2, part_rows=1, spark=None)
    assert next(parts).rows == 1
    parts.close()
