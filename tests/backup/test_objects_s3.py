"""The same repository in a bucket."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pyarrow.fs as pafs
import pytest

from dw_platform.backup import (
    BackupRepository,
    FindingKind,
    NotARepositoryError,
    ObjectDamagedError,
    Place,
    RepositoryUnavailableError,
    RetentionPolicy,
    SourceFileGoneError,
    expiry,
    prune,
    verify,
)
from dw_platform.foundation import FakeClock
from dw_platform.store import MemoryStore
from tests.backup.repository_kit import PLATFORM, SECRET, back_up, new_repository, now_clock, restored, write_table
from tests.servers import start_s3

pytestmark = pytest.mark.server

CONTENTS = {
    "day=a%20b/random.parquet": os.urandom(12_000_000),
    "text.zst": os.urandom(300_000).hex().encode(),
    "_delta_log/0.json": b"{}",
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pafs.FileSystem]:
    with start_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        with urlopen(Request(f"{endpoint}/bucket", method="PUT"), timeout=10):
            pass
        yield pafs.S3FileSystem(
            endpoint_override=endpoint.removeprefix("http://"),
            scheme="http",
            region="us-east-1",
            access_key="key",
            secret_key="secret",
        )


@pytest.fixture
def place(s3: pafs.FileSystem, tmp_path: Path) -> Place:
    return Place(s3, f"bucket/{tmp_path.name}")


@pytest.mark.parametrize("secret", [None, SECRET], ids=["plain", "encrypted"])
def test_a_backup_goes_into_a_bucket_and_comes_back(place: Place, tmp_path: Path, secret: str | None) -> None:
    clock = now_clock()
    repository = new_repository(place, secret=secret, clock=clock)
    capture = write_table(tmp_path / "t", CONTENTS)
    first = back_up(repository, tmp_path / "t", capture)
    second = back_up(repository, tmp_path / "t", capture)
    third = back_up(repository, tmp_path / "t", write_table(tmp_path / "t", {"new.parquet": b"n" * 300_000}), full=True)
    assert restored(repository, first) == restored(repository, second) == CONTENTS
    headers = repository.manifests.headers().headers
    assert [header.totals.copied_files for header in headers] == [3, 0, 1]
    assert verify(repository).healthy
    with repository.exclusive() as hold:
        plan = expiry(repository, RetentionPolicy(max_count=1))
        clock.advance(timedelta(days=2).total_seconds())
        report = prune(repository, plan.remove, hold)
    assert len(report.backups) == 2
    assert report.files == 3
    assert repository.manifests.refs() == [third]
    assert restored(repository, third) == {"new.parquet": b"n" * 300_000}


def test_a_table_in_a_bucket_is_backed_up_from_there(place: Place, s3: pafs.FileSystem, tmp_path: Path) -> None:
    capture = write_table(tmp_path / "t", CONTENTS)
    source = place.child("source")
    pafs.copy_files(str(tmp_path / "t"), source.root, destination_filesystem=s3)
    repository = new_repository(tmp_path / "repo")
    assert restored(repository, back_up(repository, source, capture)) == CONTENTS
    s3.delete_file(source.path("text.zst"))
    with pytest.raises(SourceFileGoneError):
        repository.objects.put_file(source, capture.files[-1])


def test_damage_in_a_bucket_is_set_aside_and_healed(place: Place, tmp_path: Path) -> None:
    repository = new_repository(place)
    capture = write_table(tmp_path / "t", CONTENTS)
    ref = back_up(repository, tmp_path / "t", capture)
    stored = repository.manifests.read(ref).files[1]
    repository.storage.write(f"objects/{stored.object_name}", bytes(stored.object_size))
    with pytest.raises(ObjectDamagedError):
        list(repository.objects.read(stored))
    assert [finding.kind for finding in verify(repository).findings] == [FindingKind.DAMAGED]
    back_up(repository, tmp_path / "t", capture)
    assert verify(repository).healed == (ref.backup_id,)
    assert restored(repository, ref) == CONTENTS


def test_an_upload_that_fails_leaves_no_object_behind(place: Place, tmp_path: Path) -> None:
    repository = new_repository(place)
    (file,) = (each for each in write_table(tmp_path / "t", CONTENTS).files if each.size > 10_000_000)
    left = [8]

    class Gate:
        """Fails in the middle of the upload: writing aside and uploading each take a dozen steps."""

        def __init__(self, _size: int) -> None:
            left[0] -= 1

        def __enter__(self) -> None:
            if left[0] < -24:
                raise OSError(5, "the connection was reset")

        def __exit__(self, *_: object) -> None:
            return None

    with pytest.raises(RepositoryUnavailableError, match="reset"):
        repository.objects.put_file(Place.at(tmp_path / "t"), file, io=Gate)
    assert repository.objects.index() == {}
    stored = repository.objects.put_file(Place.at(tmp_path / "t"), file)
    assert repository.objects.index() == {stored.object_name: file.size}


def test_of_makers_at_once_in_a_bucket_one_wins(place: Place) -> None:
    store, start = MemoryStore(), threading.Barrier(4)

    def make(_number: int) -> str:
        start.wait()
        return new_repository(place, store=store).id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(make, range(4)))) == 1


def test_a_prefix_with_other_things_in_it_is_left_alone(place: Place, s3: pafs.FileSystem) -> None:
    with s3.open_output_stream(place.path("orders.parquet")) as stream:
        stream.write(b"x")
    with pytest.raises(NotARepositoryError):
        new_repository(place)
    assert [info.base_name for info in s3.get_file_info(pafs.FileSelector(place.root))] == ["orders.parquet"]


def test_a_server_that_is_away_is_told_as_such() -> None:
    away: Any = pafs.S3FileSystem(
        endpoint_override="127.0.0.1:9", scheme="http", region="us-east-1", access_key="k", secret_key="s",
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1), connect_timeout=1,
    )  # fmt: skip
    with pytest.raises(RepositoryUnavailableError):
        BackupRepository.open(Place(away, "bucket/x"), platform=PLATFORM, store=MemoryStore(), clock=FakeClock())
