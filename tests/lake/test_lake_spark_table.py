"""What Spark does to a table that the Arrow writer fills, and what the Arrow writer does beside Spark."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dw_platform.foundation import PermanentError, TransientError, UserError
from dw_platform.lake.commit import CommitRefusedError, PositionConflictError, StalePositionError
from dw_platform.lake.features import Engine
from dw_platform.lake.lake import Lake
from dw_platform.lake.lock import COMMIT_TIMEOUT_S, FileTableLock
from dw_platform.lake.parquet import NullInRequiredColumnError
from dw_platform.lake.rows import ArrowTasks
from dw_platform.lake.settings import MaintenancePolicy
from dw_platform.lake.table import LakeTable
from dw_platform.lake.task_errors import TaskFailedError

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


def by_spark(table: LakeTable) -> list[dict[str, Any]]:
    """Return the rows as Spark has them; it gives instants as local times of this process."""
    rows = [row.asDict(recursive=True) for row in table.read().collect()]
    for row in rows:
        if "moment" in row:
            row["moment"] = row["moment"].astimezone(UTC)
    return sorted(rows, key=repr)


def by_deltalake(table: LakeTable) -> list[dict[str, Any]]:
    return sorted(table.snapshot().read_arrow().to_pylist(), key=repr)


def data_files(table: LakeTable) -> set[Path]:
    return {path for path in table.location.local.rglob("*.parquet") if "_delta_log" not in path.parts}


def referenced(table: LakeTable) -> set[Path]:
    return {Path(uri) for uri in table.snapshot().delta.file_uris()}


def everything(number: int) -> dict[str, Any]:
    """One row with a value of every kind; higher numbers sort higher in every column."""
    return {
        "id": number,
        "exact": Decimal(12345678901234567890123456789012345000 + number),
        "double": float(number),
        "text": f"{number:03d}{'x' * 40}",
        "day": date(1500, 1, 1) + timedelta(days=number),
        "moment": datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) + timedelta(microseconds=number * 300),
        "local": datetime(1900, 1, 1) + timedelta(seconds=number),  # noqa: DTZ001 - a local time
        "nested": {"deep": number, "list": [number, None]},
        "tags": [("k", number)],
    }


EVERYTHING = pa.schema(
    [
        ("id", pa.int64()),
        ("exact", pa.decimal128(38, 0)),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("nested", pa.struct([("deep", pa.int64()), ("list", pa.list_(pa.int64()))])),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def test_spark_opens_only_the_file_that_can_hold_the_row_and_finds_it_there(lake: Lake) -> None:
    table = lake.table("t")
    wanted = 20
    for number in (0, 10, wanted, 30, 40):
        table.append(pa.Table.from_pylist([everything(number)], EVERYTHING))
    # A file that Spark opens but cannot find fails the query, so what is taken away proves what was skipped.
    for path in referenced(table):
        if pq.read_table(path, columns=["id"])["id"].to_pylist() != [wanted]:
            path.unlink()
    value = everything(wanted)
    conditions = [
        f"id = {wanted}",
        f"exact = {value['exact']}",
        f"double = {value['double']}D",
        f"text = '{value['text']}'",
        f"day = DATE'{value['day']}'",
        f"local = TIMESTAMP_NTZ'{value['local']}'",
        f"nested.deep = {wanted}",
        f"id > {wanted - 10} AND id < {wanted + 10}",
    ]
    for condition in conditions:
        assert [row.id for row in table.read().where(condition).select("id").collect()] == [wanted], condition


def test_no_row_vanishes_behind_a_bound(lake: Lake) -> None:
    table = lake.table("t")
    long = "y" * 32
    rows = [
        {"id": 1, "f": math.nan, "d": Decimal("9" * 38), "s": long + "\U0010ffff" * 2, "m": -1},
        {"id": 2, "f": math.inf, "d": Decimal("-" + "9" * 38), "s": long, "m": -62_135_596_800_000_000},
        {"id": 3, "f": -math.inf, "d": Decimal(0), "s": long + "a", "m": 1},
        {"id": 4, "f": -0.0, "d": Decimal(1), "s": "", "m": 1_001},
        {"id": 5, "f": None, "d": None, "s": None, "m": None},
    ]
    schema = pa.schema(
        [("id", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(38, 0)), ("s", pa.string()),
         ("m", pa.timestamp("us", "UTC"))]
    )  # fmt: skip
    for row in rows:
        table.append(pa.Table.from_pylist([row], schema))
    table.append(pa.Table.from_pylist(rows, schema))
    expected = {
        "f > 100": [1, 2],
        "f = double('NaN')": [1],
        "f >= double('Infinity')": [1, 2],
        "f < 0": [3],
        "f = 0": [4],
        f"d = {'9' * 38}": [1],
        f"d < -{'9' * 37}": [2],
        f"s > '{long}a'": [1],
        f"s = concat('{long}', '\U0010ffff', '\U0010ffff')": [1],
        f"s = '{long}'": [2],
        "s = ''": [4],
        "s IS NULL": [5],
        "m < timestamp_micros(0)": [1, 2],
        "m = timestamp_micros(-1)": [1],
        "m = timestamp_micros(1001)": [4],
        "m > timestamp_micros(1000)": [4],
        "m = timestamp_micros(-62135596800000000)": [2],
    }
    for condition, ids in expected.items():
        found = sorted(row.id for row in table.read().where(condition).select("id").collect())
        assert found == sorted(ids * 2), condition


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {
            "delta.enableDeletionVectors": "true",
            "delta.enableChangeDataFeed": "true",
            "delta.checkpointPolicy": "v2",
            "delta.checkpointInterval": "2",
        },
    ],
    ids=["plain", "deletion_vectors_feed_and_v2_checkpoint"],
)
def test_rows_survive_optimize_delete_merge_and_vacuum_by_both_engines(
    spark: SparkSession, lake: Lake, properties: dict[str, str]
) -> None:
    table = lake.table("t")
    schema = EVERYTHING.append(pa.field("p", pa.string()))
    rows = {number: everything(number) | {"p": "ab"[number % 2]} for number in range(12)}
    table.create(schema, partition_by=["p"])
    for key, value in properties.items():
        spark.sql(f"ALTER TABLE delta.`{table.location.uri}` SET TBLPROPERTIES ('{key}' = '{value}')")

    def append(*numbers: int) -> None:
        assert table.append(pa.Table.from_pylist([rows[n] for n in numbers], schema)).engine is Engine.ARROW

    append(0, 1, 2, 3)
    append(4, 5, 6, 7)
    assert table.delete("id IN (1, 6)").rows == 2
    append(8, 9)
    merged = {4: rows[4] | {"text": "changed"}, 10: rows[10], 3: rows[3] | {"double": math.nan}}
    report = table.merge(
        pa.Table.from_pylist(list(merged.values()), schema),
        keys=["id", "p"],
        delete_when="source.double = double('NaN')",
    )
    assert (report.engine, report.rows) == (Engine.SPARK, 3)
    maintained = table.maintain(MaintenancePolicy(zorder=("id",)))
    assert maintained.engine is Engine.SPARK
    append(11)
    expected = [merged.get(number, row) for number, row in rows.items() if number not in {1, 3, 6}]
    found = by_spark(table)
    assert found == sorted((row | {"tags": dict(row["tags"])} for row in expected), key=repr)
    assert [row | {"tags": dict(row["tags"])} for row in by_deltalake(table)] == found


def test_a_frame_and_its_table_have_the_same_rows(spark: SparkSession, lake: Lake) -> None:
    frame = spark.range(1_000).selectExpr(
        "id", "IF(id % 7 = 0, NULL, CAST(id AS STRING)) AS s", "CAST(id AS DECIMAL(20, 3)) AS d",
        "timestamp_micros(id * 1000001) AS m", "CAST(id AS FLOAT) AS f", "array(id, NULL) AS a", "id % 3 AS p",
    )  # fmt: skip
    report = lake.table("t").append(frame, partition_by=["p"])
    assert (report.engine, report.rows) == (Engine.ARROW, 1_000)
    found = lake.table("t").read().select(frame.columns)
    assert found.exceptAll(frame).count() == frame.exceptAll(found).count() == 0


def test_each_task_reads_its_own_payload_and_all_files_are_one_commit(lake: Lake) -> None:
    def read(start: int) -> Iterator[pa.RecordBatch]:
        for number in range(start, start + 4, 2):
            yield pa.record_batch({"id": pa.array([number, number + 1], pa.uint16())})

    tasks = ArrowTasks(pa.schema([("id", pa.uint16())]), [0, 4, 8], read)
    report = lake.table("t").append(tasks, positions={"source": 12})
    assert (report.rows, report.files, report.version) == (12, 3, 1)
    assert [row["id"] for row in by_spark(lake.table("t"))] == sorted(range(12), key=lambda n: repr({"id": n}))
    nothing = lake.table("t").append(ArrowTasks(pa.schema([("id", pa.uint16())]), [], read), positions={"source": 13})
    assert nothing.rows == 0
    assert lake.table("t").snapshot().position("source") == 13


def failing_tasks(error: Exception) -> ArrowTasks:
    def read(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [number + 1], "v": ["x"]})
        if number == 1:
            raise error

    return ArrowTasks(ROWS.schema, [0, 1, 2], read)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (UserError("the password is wrong."), UserError),
        (TransientError("the server is away."), TransientError),
        (ValueError("no such thing"), TaskFailedError),
    ],
)
def test_an_error_in_a_task_is_the_same_error_here_and_leaves_no_file(
    lake: Lake, raised: Exception, expected: type[Exception]
) -> None:
    table = lake.table("t")
    table.append(ROWS)
    with pytest.raises(expected, match=str(raised)):
        table.append(failing_tasks(raised))
    assert data_files(table) == referenced(table)
    assert table.snapshot().row_count == 2


def test_a_null_that_a_task_finds_is_refused_by_its_own_type(lake: Lake) -> None:
    table = lake.table("t")
    table.create(pa.schema([pa.field("id", pa.int64(), nullable=False)]))

    def read(_: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array([None], pa.int64())})

    with pytest.raises(NullInRequiredColumnError):
        table.append(ArrowTasks(pa.schema([("id", pa.int64())]), [0], read))
    assert data_files(table) == set()


@pytest.fixture
def checked(spark: SparkSession, lake: Lake) -> LakeTable:
    """A table that only Spark's writer may fill."""
    table = lake.table("checked")
    table.create(ROWS.schema)
    spark.sql(f"ALTER TABLE delta.`{table.location.uri}` ADD CONSTRAINT positive CHECK (id > 0)")
    return table


def test_tasks_feed_sparks_writer_too_and_their_errors_arrive_whole(checked: LakeTable) -> None:
    def read(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [number], "v": ["x"]})

    report = checked.append(ArrowTasks(ROWS.schema, [1, 2, 3], read))
    assert (report.engine, report.rows) == (Engine.SPARK, 3)
    with pytest.raises(UserError, match="the password is wrong"):
        checked.append(failing_tasks(UserError("the password is wrong.")))
    with pytest.raises(CommitRefusedError, match="positive"):
        checked.append(ArrowTasks(ROWS.schema, [0], read))
    assert [row["id"] for row in by_spark(checked)] == [1, 2, 3]


def test_sparks_writer_commits_many_positions_at_once_and_refuses_stale_ones(checked: LakeTable) -> None:
    checked.append(ROWS, positions={"a": 5, "b": 6})
    planned = checked.snapshot()
    with pytest.raises(StalePositionError):
        checked.append(ROWS, positions={"a": 5})
    checked.append(ROWS, positions={"a": 7}, snapshot=planned)
    with pytest.raises(PositionConflictError):
        checked.append(ROWS, positions={"a": 9, "b": 9}, snapshot=planned)
    assert [checked.snapshot().position(name) for name in "ab"] == [7, 6]
    assert len(by_spark(checked)) == 4


class LockWithAnIntruder(FileTableLock):
    """Lets another writer commit after the files are written and before the lock is held."""

    def __init__(self, folder: Path, intrude: Any) -> None:
        super().__init__(folder)
        self._intrude = intrude

    @contextmanager
    def exclusive(self, timeout_s: float = COMMIT_TIMEOUT_S) -> Iterator[None]:
        self._intrude()
        with super().exclusive(timeout_s):
            yield


def test_a_position_that_moves_during_sparks_write_is_a_conflict(lake: Lake, checked: LakeTable) -> None:
    def intrude() -> None:
        lake.table("checked").append(ROWS, positions={"a": 10})

    slow = LakeTable(
        "checked", checked.location, lock=LockWithAnIntruder(checked.location.local, intrude), spark=lake.spark
    )
    with pytest.raises(PositionConflictError) as caught:
        slow.append(ROWS, positions={"a": 11})
    assert caught.value.app_ids == ("a",)
    assert len(by_spark(checked)) == 2


def test_an_append_of_another_writer_during_sparks_write_is_no_conflict(lake: Lake, checked: LakeTable) -> None:
    def intrude() -> None:
        lake.table("checked").append(ROWS, positions={"b": 1})

    slow = LakeTable(
        "checked", checked.location, lock=LockWithAnIntruder(checked.location.local, intrude), spark=lake.spark
    )
    report = slow.append(ROWS, positions={"a": 1})
    assert report.version == checked.snapshot().version
    assert len(by_spark(checked)) == 4


def test_a_delete_that_finds_nothing_reports_nothing(lake: Lake) -> None:
    table = lake.table("t")
    version = table.append(ROWS).version
    report = table.delete("id = 99")
    assert (report.rows, report.version) == (0, version)
    assert table.delete("id = 1").version == version + 1


def test_a_merge_refuses_two_rows_with_one_key_and_wrong_keys(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    with pytest.raises(PermanentError):
        table.merge(pa.table({"id": [1, 1], "v": ["x", "y"]}), keys=["id"])
    with pytest.raises(UserError, match="one of id, v"):
        table.merge(ROWS, keys=["nope"])
    with pytest.raises(UserError, match="at least one column"):
        table.merge(ROWS, keys=[])
    assert by_spark(table) == ROWS.to_pylist()


def test_a_merge_takes_in_new_columns(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    report = table.merge(pa.table({"id": [2, 3], "v": ["new", "c"], "extra": [1, 2]}), keys=["id"])
    assert report.rows == 2
    assert by_spark(table) == [
        {"id": 1, "v": "a", "extra": None},
        {"id": 2, "v": "new", "extra": 1},
        {"id": 3, "v": "c", "extra": 2},
    ]


def test_an_overwrite_that_changes_the_partitioning_goes_through_spark(lake: Lake) -> None:
    table = lake.table("t")
    table.append(ROWS)
    report = table.overwrite(ROWS, partition_by=["v"])
    assert (report.engine, report.reason) == (Engine.SPARK, "the table's partitioning changes")
    assert table.snapshot().partition_by == ("v",)
    table.append(pa.table({"id": [3], "v": [""]}))
    assert by_spark(table)[-1] == {"id": 3, "v": None}


def test_an_older_version_can_be_read(lake: Lake) -> None:
    table = lake.table("t")
    first = table.append(ROWS).version
    table.append(ROWS)
    assert (table.read(first).count(), table.read().count()) == (2, 4)


def test_files_joined_without_a_jvm_still_give_spark_every_row(lake: Lake) -> None:
    table = lake.table("t")
    long = "z" * 32
    for tail in ("", "a", "\U0010ffff", "\U0010ffff\U0010ffff"):
        table.append(pa.table({"s": [long + tail], "m": pa.array([-1_500], pa.timestamp("us", "UTC"))}))
    assert table.maintain().engine is Engine.ARROW
    for tail in ("", "a", "\U0010ffff", "\U0010ffff\U0010ffff"):
        assert table.read().where(f"s = '{long}{tail}'").count() == 1
    assert table.read().where("m = timestamp_micros(-1500)").count() == 4
