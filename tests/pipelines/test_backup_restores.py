"""Restores: row for row and position for position what was backed up, where it was asked for, and nowhere else."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dw_platform.backup import BackupNotFoundError, ObjectMissingError
from dw_platform.backup.restore_errors import TargetNestedError, TargetNotEmptyError
from dw_platform.foundation import TransientError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup_jobs import recorded_jobs
from dw_platform.pipelines.backup_report import BackupProgress
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.backup_restore import NoSuchBackupError, restore_policy, restore_table
from dw_platform.pipelines.ingest import ingest_stream
from tests.pipelines.backups import (
    ITEMS,
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
from tests.pipelines.conftest import MakePlatform
from tests.pipelines.streams import expected, numbered, offsets_of, publish


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Platform]:
    """A shop whose orders were backed up at versions 1, 2 and 3."""
    with open_shop(tmp_path) as platform:
        for _ in range(3):
            grow(platform)
            back_up(platform)
        yield platform


def same(platform: Platform, target: str | Path, version: int) -> bool:
    rows, position = held(platform, target)
    wanted, wanted_position = held(platform, ORDERS, version)
    return bool(rows.equals(wanted)) and position == wanted_position == version


def test_the_newest_backup_is_restored_with_its_rows_positions_and_history(shop: Platform, tmp_path: Path) -> None:
    grow(shop)
    report = restore_table(shop, ORDERS, str(tmp_path / "put" / "back"))
    assert (report.version, report.rows, report.replaced) == (3, 3, False)
    assert (report.files, report.written_files) == (7, 7)
    assert same(shop, tmp_path / "put" / "back", 3)
    original = DeltaTable(str(shop.lake.table(ORDERS).location.local))
    restored = DeltaTable(str(tmp_path / "put" / "back"))
    assert restored.history() == original.history()[1:]
    assert restored.metadata().id == original.metadata().id
    assert recorded_jobs(shop) == []
    assert not list((tmp_path / "put" / "back").glob("_dw_restore*"))


def test_a_backup_is_chosen_by_its_id_its_version_or_a_time(shop: Platform, tmp_path: Path) -> None:
    first, second, third = headers(shop)
    assert restore_table(shop, ORDERS, str(tmp_path / "a"), backup_id=first.backup_id).version == 1
    assert restore_table(shop, ORDERS, str(tmp_path / "b"), version=2).backup_id == second.backup_id
    at = datetime.fromtimestamp(third.committed_at_ms / 1000, UTC)
    assert restore_table(shop, ORDERS, str(tmp_path / "c"), at=at).version == 3
    before = at - timedelta(milliseconds=1)
    assert restore_table(shop, ORDERS, str(tmp_path / "d"), at=before).version == 2
    for folder, version in (("a", 1), ("b", 2), ("c", 3), ("d", 2)):
        assert same(shop, tmp_path / folder, version)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"at": datetime(2001, 1, 1, tzinfo=UTC)}, "as of 2001-01-01 00:00:00 UTC; its backups hold it as of"),
        ({"version": 77}, "of version 77"),
        ({"backup_id": "20010101T000000.000Z-00000000"}, "20010101T000000.000Z-00000000"),
    ],
)
def test_a_backup_that_is_not_there_is_refused_with_what_is(
    shop: Platform, tmp_path: Path, wish: dict[str, object], words: str
) -> None:
    with pytest.raises(NoSuchBackupError, match="version 1") as missing:
        restore_table(shop, ORDERS, str(tmp_path / "back"), **wish)  # type: ignore[arg-type]
    assert words in str(missing.value)
    assert not (tmp_path / "back").exists()


def test_a_table_without_backups_says_so(shop: Platform, tmp_path: Path) -> None:
    with pytest.raises(NoSuchBackupError, match="it has no backup here"):
        restore_table(shop, ITEMS, str(tmp_path / "back"))
    with pytest.raises(BackupNotFoundError):
        open_repository(shop).find("20010101T000000.000Z-00000000")


def test_a_table_is_restored_under_another_name_of_the_lake_and_goes_on_there(shop: Platform) -> None:
    restore_table(shop, ORDERS, "shop.old_orders", version=2)
    assert "shop.old_orders" in shop.table_names()
    assert same(shop, "shop.old_orders", 2)
    shop.lake.table("shop.old_orders").append(pa.table({"id": [99], "noise": [b"x"]}))
    assert held(shop, "shop.old_orders")[0]["id"].to_pylist() == [0, 1, 99]


def test_something_in_the_way_is_refused_and_left_as_it_was(shop: Platform, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    for target in (tmp_path / "full", shop.lake.table(ORDERS).location.local):
        before = table_files(target)
        with pytest.raises(TargetNotEmptyError):
            restore_table(shop, ORDERS, str(target))
        assert table_files(target) == before
    with pytest.raises(TargetNestedError):
        restore_table(shop, ORDERS, str(shop.lake.table(ORDERS).location.local / "inside"))
    assert recorded_jobs(shop) == [], "nobody goes on with what was refused"


def test_overwriting_puts_the_table_back_as_it_was_and_writes_only_what_differs(shop: Platform) -> None:
    folder = shop.lake.table(ORDERS).location.local
    grow(shop)
    kept, harmed, lost = sorted(Path(uri) for uri in DeltaTable(str(folder), version=3).file_uris())
    flip(harmed)
    lost.unlink()
    inode = kept.stat().st_ino
    report = restore_table(shop, ORDERS, ORDERS, version=3, overwrite=True)
    assert report.replaced
    assert kept.stat().st_ino == inode, "it had the right bytes"
    log = sum(path.suffix == ".json" for path in (folder / "_delta_log").iterdir())
    assert report.written_files == log + 2
    assert len(list(folder.glob("*.parquet"))) == 4, "the file of the version that is no more stays until VACUUM"
    rows, position = held(shop)
    assert (rows["id"].to_pylist(), position) == ([0, 1, 2], 3)
    grow(shop)
    assert back_up(shop).version == 4
    assert held(shop)[0]["id"].to_pylist() == [0, 1, 2, 3]


def test_a_restore_that_was_interrupted_goes_on_and_shows_nothing_before(shop: Platform, tmp_path: Path) -> None:
    target = tmp_path / "back"

    def interrupt(_: BackupProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_table(shop, ORDERS, str(target), on_progress=interrupt)
    assert not DeltaTable.is_deltatable(str(target))
    (job,) = recorded_jobs(shop)
    assert (job.kind, job.subject) == ("restore", str(target))
    report = restore_table(shop, ORDERS, str(target))
    assert (report.files, report.written_files) == (7, 0), "everything was there"
    assert same(shop, target, 3)
    assert recorded_jobs(shop) == []


def test_another_backup_may_take_the_place_of_an_interrupted_restore(shop: Platform, tmp_path: Path) -> None:
    target = tmp_path / "back"

    def interrupt(_: BackupProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_table(shop, ORDERS, str(target), on_progress=interrupt)
    with pytest.raises(TargetNotEmptyError):
        restore_table(shop, ORDERS, str(target), version=2)
    restore_table(shop, ORDERS, str(target), version=2, overwrite=True)
    assert same(shop, target, 2)
    assert recorded_jobs(shop) == []


def test_every_table_of_a_policy_is_restored_below_a_folder(shop: Platform, tmp_path: Path) -> None:
    grow(shop, ITEMS)
    back_up(shop, ITEMS)
    reports = restore_policy(shop, "nightly", str(tmp_path / "all"))
    assert [(report.table, report.target) for report in reports] == [
        (ITEMS, str(tmp_path / "all/shop/items")), (ORDERS, str(tmp_path / "all/shop/orders"))
    ]  # fmt: skip
    assert same(shop, tmp_path / "all/shop/orders", 3)
    text = shop_text().replace("policies:", "policies:\n    - {name: idle, tables: [shop.items]}")
    with open_shop(tmp_path, text) as platform, pytest.raises(NoSuchBackupError, match="by this policy"):
        restore_policy(platform, "idle", str(tmp_path / "none"))


def test_a_damaged_object_fails_the_restore_by_name_and_nothing_becomes_visible(shop: Platform, tmp_path: Path) -> None:
    repository = open_repository(shop)
    newest = headers(shop)[-1].backup_id
    name = objects_of(repository, newest, only=True)[0]
    object_file(repository, name).unlink()
    with pytest.raises(ObjectMissingError) as missing:
        restore_table(shop, ORDERS, str(tmp_path / "back"))
    assert missing.value.name == name
    assert not DeltaTable.is_deltatable(str(tmp_path / "back"))
    before = table_files(shop.lake.table(ORDERS).location.local)
    for path in shop.lake.table(ORDERS).location.local.glob("*.parquet"):
        path.unlink()
    with pytest.raises(ObjectMissingError):
        restore_table(shop, ORDERS, ORDERS, overwrite=True)
    after = table_files(shop.lake.table(ORDERS).location.local)
    logs = {path for path in before if path.startswith("_delta_log/")}
    assert {path: after[path] for path in logs} == {path: before[path] for path in logs}


STREAM = """
name: tested
home: home
streams:
  - name: clicks
    table: web.clicks
    partitions: 2
    format: json
    columns: {n: bigint}
    max_rejected: 100%
backups:
  policies:
    - {name: nightly, tables: ["web.*"]}
"""


def test_a_stream_goes_on_from_a_restored_table_and_has_every_record_once(make_platform: MakePlatform) -> None:
    platform = make_platform(STREAM)
    publish(platform, [b'{"n": 1}', b"bad", b'{"n": 2}'], 0)
    ingest_stream(platform, "clicks")
    back_up(platform, "web.clicks")
    publish(platform, [b'{"n": 3}', b"worse"], 0)
    publish(platform, [b'{"n": 4}'], 1)
    ingest_stream(platform, "clicks")
    everything = [(0, 0), (0, 2), (0, 3), (1, 0)]
    assert offsets_of(platform, "web.clicks") == everything
    restore_table(platform, "web.clicks", "web.clicks", overwrite=True)
    assert offsets_of(platform, "web.clicks") == [(0, 0), (0, 2)]
    publish(platform, [b'{"n": 5}'], 1)
    ingest_stream(platform, "clicks")
    assert offsets_of(platform, "web.clicks") == [*everything, (1, 1)]
    # The table beside it was not restored and remembers by itself what it has.
    assert offsets_of(platform, "web.clicks_rejected") == [(0, 1), (0, 4)]


def test_a_stream_without_columns_goes_on_as_well(make_platform: MakePlatform) -> None:
    raw = STREAM.replace("    format: json\n    columns: {n: bigint}\n    max_rejected: 100%\n", "")
    platform = make_platform(raw)
    publish(platform, numbered(0, 10))
    ingest_stream(platform, "clicks")
    back_up(platform, "web.clicks")
    publish(platform, numbered(10, 25))
    ingest_stream(platform, "clicks")
    restore_table(platform, "web.clicks", "web.clicks", overwrite=True)
    ingest_stream(platform, "clicks")
    assert offsets_of(platform) == expected(25)


def test_a_write_that_was_planned_before_a_restore_is_not_committed_behind_it(shop: Platform) -> None:
    table, source = shop.lake.table(ORDERS), f"source of {ORDERS}"
    grow(shop)
    planned = table.snapshot()
    late = pa.table({"id": [99], "noise": [b"x"]})
    restore_table(shop, ORDERS, ORDERS, version=2, overwrite=True)
    with pytest.raises(TransientError):
        table.append(late, snapshot=planned, positions={source: 100})
    # The restored table comes to the same version again, by commits that the write was not planned from.
    while table.snapshot().version < planned.version:
        table.append(pa.table({"id": [7], "noise": [b"other"]}))
    before = table.snapshot()
    with pytest.raises(TransientError):
        table.append(late, snapshot=planned, positions={source: 100})
    assert (table.snapshot().version, table.snapshot().position(source)) == (before.version, before.position(source))
