"""The same tables on an S3 server; the lock is a lease in the control store."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest

from dw_platform.lake.commit import PositionConflictError
from dw_platform.lake.features import Engine
from dw_platform.lake.lake import Lake
from dw_platform.lake.lock import LeaseTableLock
from dw_platform.lake.opening import StorageUnreachableError, TableMissingError
from dw_platform.lake.parquet import NullInRequiredColumnError
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings, S3Settings
from dw_platform.store import open_store
from tests.lake.workers import REPOSITORY
from tests.servers import start_s3

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [1, 2], "v": ["a", None]})


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        with urlopen(Request(f"{endpoint}/bucket", method="PUT"), timeout=10):
            pass
        yield endpoint


def lake_on(endpoint: str, store: str, spark: SparkProvider, root: str = "s3://bucket/lake") -> Lake:
    settings = LakeSettings(root=root, s3=S3Settings(endpoint=endpoint, access_key="key", secret_key="secret"))
    return Lake(settings, store=open_store(store), spark=spark)


@pytest.fixture
def s3_lake(s3: str, tmp_path: Path, spark_provider: SparkProvider) -> Lake:
    return lake_on(s3, f"sqlite:///{tmp_path}/control.db", spark_provider, f"s3://bucket/{tmp_path.name}")


def ids(lake: Lake, table: str) -> list[int]:
    return sorted(lake.table(table).snapshot().read_arrow(["id"])["id"].to_pylist())


def test_rows_and_positions_are_committed_and_read_back(s3_lake: Lake) -> None:
    table = s3_lake.table("shop.orders")
    report = table.append(ROWS, positions={"p": 5}, partition_by=["v"])
    assert (report.engine, report.rows, report.files) == (Engine.ARROW, 2, 2)
    table.append(pa.table({"id": [3], "v": ["ü/%"], "extra": [1.5]}))
    assert ids(s3_lake, "shop.orders") == [1, 2, 3]
    assert table.snapshot().position("p") == 5
    assert s3_lake.table_names() == ["shop.orders"]
    assert isinstance(table._lock, LeaseTableLock)


def test_overwrite_and_upkeep_work_without_a_local_file(s3_lake: Lake) -> None:
    table = s3_lake.table("t")
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    assert table.maintain().files_after == 1
    table.overwrite(pa.table({"id": [9]}))
    assert ids(s3_lake, "t") == [9]


def test_the_second_of_two_plans_conflicts_and_leaves_no_object(s3_lake: Lake) -> None:
    table = s3_lake.table("t")
    table.append(ROWS, positions={"p": 1})
    mine, theirs = table.snapshot(), table.snapshot()
    table.append(ROWS, positions={"p": 2}, snapshot=theirs)
    with pytest.raises(PositionConflictError):
        table.append(ROWS, positions={"p": 3}, snapshot=mine)
    system, root = table.location.filesystem()
    objects = [info for info in system.get_file_info(pa.fs.FileSelector(root)) if info.extension == "parquet"]
    assert len(objects) == table.snapshot().file_count == 2


def test_a_refused_row_leaves_no_object(s3_lake: Lake) -> None:
    table = s3_lake.table("t")
    table.create(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pytest.raises(NullInRequiredColumnError):
        table.append(pa.table({"id": pa.array([None], pa.int64())}))
    system, root = table.location.filesystem()
    assert [info.base_name for info in system.get_file_info(pa.fs.FileSelector(root))] == ["_delta_log"]


def test_writers_with_stores_of_their_own_share_one_lock_and_lose_nothing(
    s3: str, tmp_path: Path, spark_provider: SparkProvider
) -> None:
    store, root = f"sqlite:///{tmp_path}/control.db", f"s3://bucket/{tmp_path.name}"
    lake_on(s3, store, spark_provider, root).table("t").create(pa.schema([("id", pa.int64())]))

    def append(writer: int) -> None:
        table = lake_on(s3, store, spark_provider, root).table("t")
        for number in range(5):
            table.append(pa.table({"id": [writer * 100 + number]}), positions={f"w{writer}": number + 1})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    found = ids(lake_on(s3, store, spark_provider, root), "t")
    assert found == sorted(writer * 100 + number for writer in range(4) for number in range(5))


def test_a_missing_bucket_and_a_server_that_is_away_are_told_apart_from_a_missing_table(
    s3: str, tmp_path: Path, s3_lake: Lake
) -> None:
    store = f"sqlite:///{tmp_path}/control.db"
    with pytest.raises(TableMissingError):
        s3_lake.table("nope").snapshot()
    with pytest.raises((StorageUnreachableError, TableMissingError)):
        lake_on(s3, store, s3_lake.spark, "s3://no-such-bucket/x").table("t").snapshot()
    with pytest.raises(StorageUnreachableError, match="try again"):
        lake_on("http://127.0.0.1:9", store, s3_lake.spark).table("t").snapshot()


@pytest.mark.spark
def test_spark_and_the_arrow_writer_share_a_table_on_s3(s3: str, tmp_path: Path, spark_provider: SparkProvider) -> None:
    store = f"sqlite:///{tmp_path}/control.db"
    lake = lake_on(s3, store, spark_provider)
    lake.table("shop.orders").append(ROWS)
    command = [sys.executable, "-m", "tests.lake.s3_spark", s3, store, str(tmp_path / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["engines"] == ["arrow", "spark", "spark", "spark"]
    assert found["changed"] == [3, 1, 1, 1]
    assert found["rows"] == [[2, "merged"], [10, "spark"], [11, "spark"], [12, "spark"], [20, "checked"]]
    assert ids(lake, "shop.orders") == [2, 10, 11, 12, 20]
    assert [lake.table("shop.orders").snapshot().position(name) for name in "ab"] == [1, 2]
