"""Tables on an S3 server: captured there, restored there, published where there is no rename."""

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from dw_platform.backup.capture import capture_table
from dw_platform.backup.contents import FileKind
from dw_platform.backup.delta_errors import NotADeltaTableError, TableStorageError
from dw_platform.backup.log_publish import finish_publish, publish_log, undo_publish
from dw_platform.backup.place import Place
from dw_platform.backup.restore_errors import ReplaceNeedsRenameError, TargetNestedError, TargetNotEmptyError
from dw_platform.backup.restore_target import claim_target, existing_files
from tests.backup.delta_tables import HandTable, copy_table, paths, stored, write_staged
from tests.servers import start_s3

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [1, 2, 3], "p": ["a b", None, "ü/%"]})


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        with urlopen(Request(f"{endpoint}/bucket", method="PUT"), timeout=10):
            pass
        yield endpoint


def system(endpoint: str) -> pafs.FileSystem:
    return pafs.S3FileSystem(
        endpoint_override=endpoint.removeprefix("http://"), scheme="http", region="us-east-1", access_key="key",
        secret_key="secret",
    )  # fmt: skip


@pytest.fixture
def place(s3: str, tmp_path: Path) -> Place:
    return Place(system(s3), f"bucket/{tmp_path.name}")


def options(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "aws_conditional_put": "etag",
    }  # fmt: skip


def ids(endpoint: str, place: Place) -> list[int] | None:
    try:
        return sorted(DeltaTable(place.shown, storage_options=options(endpoint)).to_pyarrow_table()["id"].to_pylist())
    except DeltaError:
        return None


@pytest.fixture
def source(s3: str, place: Place) -> Place:
    table = place.child("shop/orders")
    for _ in range(3):
        write_deltalake(table.shown, ROWS, mode="append", partition_by=["p"], storage_options=options(s3))
    DeltaTable(table.shown, storage_options=options(s3)).create_checkpoint()
    write_deltalake(table.shown, ROWS, mode="append", storage_options=options(s3))
    return table


def test_a_table_goes_from_bucket_to_bucket_and_to_a_disk_and_back(s3: str, source: Place, tmp_path: Path) -> None:
    expected = sorted(ROWS["id"].to_pylist() * 4)
    copy_table(source, Place(source.system, f"{source.root}_copy"))
    assert ids(s3, Place(source.system, f"{source.root}_copy")) == expected
    local = Place.at(tmp_path / "local")
    capture = copy_table(source, local, history=True)
    assert sorted(DeltaTable(local.root).to_pyarrow_table()["id"].to_pylist()) == expected
    assert DeltaTable(local.root, version=0).to_pyarrow_table().num_rows == 3
    assert capture_table(local).state.rows == capture.state.rows == 12
    back = Place(source.system, f"{source.root}_back")
    copy_table(local, back, history=True)
    assert ids(s3, back) == expected
    write_deltalake(back.shown, ROWS, mode="append", storage_options=options(s3))
    assert DeltaTable(back.shown, storage_options=options(s3)).version() == capture.state.version + 1
    assert not [path for path in existing_files(back) if path.startswith(("_dw_", "_delta_log.dw"))]


def test_an_older_version_of_a_bucket_is_captured_by_number_and_by_time(source: Place) -> None:
    first = capture_table(source, version=0)
    assert (first.state.rows, len(paths(first, FileKind.DATA))) == (3, 3)
    assert capture_table(source, version=2).state.rows == 9


def test_while_a_log_is_published_readers_find_nothing_or_the_whole_table(s3: str, source: Place, place: Place) -> None:
    target, seen, stop = place.child("watched"), list[list[int] | None](), threading.Event()
    capture = capture_table(source, history=True)
    entries = stored(source, capture)
    write_staged(source, target, entries, job="job")

    def watch() -> None:
        while not stop.is_set():
            seen.append(ids(s3, target))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        publish_log(target, "job", entries)
        finish_publish(target, "job")
    finally:
        stop.set()
        watcher.join()
    seen.append(ids(s3, target))
    whole = sorted(ROWS["id"].to_pylist() * 4)
    assert all(rows in (None, whole) for rows in seen)
    assert seen[-1] == whole


def test_a_restore_in_a_bucket_is_taken_back_without_a_trace_in_the_log(s3: str, source: Place, place: Place) -> None:
    target = place.child("undone")
    entries = stored(source, capture_table(source))
    write_staged(source, target, entries, job="job")
    publish_log(target, "job", entries)
    assert ids(s3, target) is not None
    assert undo_publish(target, "job")
    assert ids(s3, target) is None
    assert all("_delta_log" not in path and "_dw_" not in path for path in existing_files(target))


def test_a_place_in_a_bucket_is_checked_like_a_folder(source: Place) -> None:
    with pytest.raises(TargetNotEmptyError):
        claim_target(source, "job")
    with pytest.raises(ReplaceNeedsRenameError):
        claim_target(source, "job", overwrite=True)
    with pytest.raises(TargetNestedError):
        claim_target(source.child("inside/deep"), "job")
    with pytest.raises(TargetNestedError):
        claim_target(Place(source.system, source.root.rpartition("/")[0]), "job", overwrite=True)


def test_a_server_that_is_away_is_told_apart_from_a_place_without_a_table(place: Place, tmp_path: Path) -> None:
    with pytest.raises(NotADeltaTableError):
        capture_table(place.child("nowhere"))
    away = pafs.S3FileSystem(
        endpoint_override="127.0.0.1:9", scheme="http", region="us-east-1", access_key="key", secret_key="secret",
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1), connect_timeout=1,
    )  # fmt: skip
    with pytest.raises(TableStorageError, match="try again"):
        capture_table(Place(away, "bucket/t"))
    table = HandTable(tmp_path / "t").begin().append(1)
    with pytest.raises(TableStorageError):
        copy_table(table.place, Place(place.system, "no-such-bucket/t"))
