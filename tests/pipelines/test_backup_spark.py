"""Backups in Spark tasks: the same objects and the same table as with threads, and errors that arrive as they are."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dw_platform.backup import FindingKind, ObjectMissingError
from dw_platform.lake.jobs import UnderWay
from dw_platform.lake.session import SparkProvider
from dw_platform.pipelines import Platform, backup_tasks
from dw_platform.pipelines.backup_care import verify_backups
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.backup_restore import restore_table
from tests.pipelines.backups import (
    ORDERS,
    back_up,
    flip,
    grow,
    headers,
    held,
    object_file,
    objects_of,
    open_shop,
    shop_text,
    table_files,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each job in Spark had."""
    original: Callable[..., AbstractContextManager[UnderWay]] = backup_tasks.job_under_way
    seen: list[int] = []

    def count(session: Any, tasks: int, *rest: Any) -> AbstractContextManager[UnderWay]:
        seen.append(tasks)
        return original(session, tasks, *rest)

    monkeypatch.setattr(backup_tasks, "job_under_way", count)
    return seen


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Platform]:
    """A shop whose orders were backed up, and restored to `by_threads`, by threads."""
    with open_shop(tmp_path) as platform:
        for _ in range(5):
            grow(platform)
        back_up(platform)
        restore_table(platform, ORDERS, str(tmp_path / "by_threads"))
        yield platform


@pytest.fixture
def on_spark(
    shop: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_provider: SparkProvider
) -> Iterator[Platform]:
    """The same lake with a session that is open already, and another repository."""
    del shop
    spark_provider.get()
    monkeypatch.setattr(Platform, "spark", spark_provider)
    with open_shop(tmp_path, shop_text(backups=f"repository: {tmp_path / 'repository_by_spark'}")) as platform:
        yield platform


def test_tasks_store_and_restore_the_same_as_threads(
    shop: Platform, on_spark: Platform, tasks: list[int], tmp_path: Path
) -> None:
    report = back_up(on_spark)
    assert (report.files, report.copied_files) == (11, 11)
    assert open_repository(on_spark).objects.index() == open_repository(shop).objects.index()
    restored = restore_table(on_spark, ORDERS, str(tmp_path / "by_spark"))
    assert (restored.written_files, restored.written_bytes) == (11, report.bytes)
    assert table_files(tmp_path / "by_spark") == table_files(tmp_path / "by_threads")
    assert held(shop, tmp_path / "by_spark")[0].equals(held(shop)[0])
    assert verify_backups(on_spark).healthy
    assert tasks == [2, 2, 2]


def test_what_a_task_finds_or_fails_with_arrives_as_it_is(on_spark: Platform, tasks: list[int], tmp_path: Path) -> None:
    back_up(on_spark)
    repository = open_repository(on_spark)
    (backup_id,) = [header.backup_id for header in headers(on_spark)]
    flipped, deleted = objects_of(repository, backup_id)[:2]
    flip(object_file(repository, flipped))
    report = verify_backups(on_spark)
    (finding,) = report.findings
    assert (finding.kind, finding.file) == (FindingKind.DAMAGED, flipped)
    assert set(report.broken) == {backup_id}
    assert not object_file(repository, flipped).exists(), "it was set aside"
    object_file(repository, deleted).unlink()
    with pytest.raises(ObjectMissingError) as missing:
        restore_table(on_spark, ORDERS, str(tmp_path / "back"), backup_id=backup_id)
    assert missing.value.name in {flipped, deleted}
    assert back_up(on_spark).copied_files == 11
    assert verify_backups(on_spark).healthy
    assert set(tasks) == {2}
