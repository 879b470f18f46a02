import os
import time
from datetime import timedelta

import pyarrow as pa
import pytest

from dw_platform.lake.features import Engine
from dw_platform.lake.lake import Lake
from dw_platform.lake.maintenance import RetentionGuardError, table_retention, upkeep_engine
from dw_platform.lake.settings import MaintenancePolicy


def test_small_files_are_joined_and_every_row_stays(lake: Lake) -> None:
    table = lake.table("t")
    for number in range(5):
        table.append(pa.table({"id": [number], "v": ["x" * 40]}))
    report = table.maintain()
    assert (report.engine, report.files_before, report.files_after) == (Engine.ARROW, 5, 1)
    assert sorted(table.snapshot().read_arrow(["id"])["id"].to_pylist()) == list(range(5))
    assert table.history(1)[0].engine == "arrow"


def test_leftovers_of_crashed_jobs_go_after_the_retention_and_not_before(lake: Lake) -> None:
    table = lake.table("t")
    table.append(pa.table({"id": [1]}))
    old, young = (table.location.local / f"part-{name}-0.zstd.parquet" for name in ("dead", "running"))
    for path in (old, young):
        path.write_bytes(b"PAR1")
    eight_days_ago = time.time() - timedelta(days=8).total_seconds()
    os.utime(old, (eight_days_ago, eight_days_ago))
    assert table.maintain().files_removed == 1
    assert (old.exists(), young.exists()) == (False, True)
    locks = [path.name for path in table.location.local.iterdir() if path.name.startswith("_dw")]
    assert sorted(locks) == ["_dw_commit.gate", "_dw_commit.lock", "_dw_commit.next"]


def test_a_retention_below_the_tables_promise_is_refused_before_anything_happens(lake: Lake) -> None:
    table = lake.table("t")
    table.append(pa.table({"id": [1]}))
    with pytest.raises(RetentionGuardError) as caught:
        table.maintain(MaintenancePolicy(retention=timedelta(days=1)))
    assert caught.value.promised == timedelta(days=7)
    assert len(table.history()) == 2


@pytest.mark.parametrize(
    ("text", "promised"),
    [("interval 1 week", timedelta(days=7)), ("interval 36 hours", timedelta(hours=36)), ("2 days", timedelta(days=2))],
)
def test_the_tables_own_promise_is_read_as_delta_writes_it(lake: Lake, text: str, promised: timedelta) -> None:
    snapshot = lake.table("t").create(
        pa.schema([("id", pa.int64())]), properties={"delta.deletedFileRetentionDuration": text}
    )
    assert table_retention(snapshot) == promised


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (pa.float64(), "column c holds floats, whose NaN deltalake's statistics leave out"),
        (pa.decimal128(38, 2), "column c holds decimals that deltalake's statistics round"),
        (
            pa.struct([("x", pa.list_(pa.float32()))]),
            "column c holds floats, whose NaN deltalake's statistics leave out",
        ),
    ],
)
def test_columns_whose_bounds_deltalake_gets_wrong_are_joined_by_spark(
    lake: Lake, kind: pa.DataType, reason: str
) -> None:
    choice = upkeep_engine(lake.table("t").create(pa.schema([("c", kind)])))
    assert (choice.engine, choice.reason) == (Engine.SPARK, reason)


def test_exact_columns_are_joined_without_a_jvm(lake: Lake) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.decimal128(15, 2)), ("c", pa.timestamp("us", "UTC"))])
    assert upkeep_engine(lake.table("t").create(schema)).engine is Engine.ARROW
