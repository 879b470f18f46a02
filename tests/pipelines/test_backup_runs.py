"""Backups: what is copied and what is not, when a full one is made, and what happens beside one that runs."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from dw_platform.backup import (
    BackupKind,
    Gate,
    NotARepositoryError,
    ObjectStore,
    SourceFileGoneError,
    StoredFile,
    VerifyScope,
)
from dw_platform.backup.delta_errors import FilesMissingError
from dw_platform.foundation import FakeClock
from dw_platform.lake.opening import TableMissingError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup import NotesLostError, back_up_table, deleted_file_retention
from dw_platform.pipelines.backup_care import PruneReport, prune_backups, verify_backups
from dw_platform.pipelines.backup_catalogue import rebuild_catalogue
from dw_platform.pipelines.backup_copy import CopyWork
from dw_platform.pipelines.backup_jobs import JobBusyError, recorded_jobs
from dw_platform.pipelines.backup_manager import BackupScalingManager
from dw_platform.pipelines.backup_report import BackupProgress
from dw_platform.pipelines.backup_repository import TableNotInPolicyError, UnknownPolicyError, open_repository
from dw_platform.pipelines.limits import limit_control
from tests.pipelines.backups import (
    ITEMS,
    ORDERS,
    back_up,
    grow,
    headers,
    open_shop,
    shop_text,
    vanishing,
)

LITTLE = 1_000


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Platform]:
    """A shop whose orders have three large files."""
    with open_shop(tmp_path) as platform:
        for _ in range(3):
            grow(platform)
        yield platform


def data_of(platform: Platform, table: str = ORDERS) -> Path:
    return platform.lake.table(table).location.local


def test_the_first_backup_reads_everything_and_the_next_only_what_is_new(shop: Platform) -> None:
    first = back_up(shop)
    assert (first.kind, first.version, first.copied_files, first.files) == (BackupKind.FULL, 3, 7, 7)
    before = set(open_repository(shop).objects.index())
    grow(shop)
    second = back_up(shop)
    assert (second.kind, second.copied_files, second.files) == (BackupKind.INCREMENTAL, 2, 9)
    assert second.chain_id == first.backup_id
    new = set(open_repository(shop).objects.index()) - before
    assert len(new) == 2, "one data file, and one file of the log"
    assert not shop.spark.started, "no JVM for so little"


def test_without_a_change_there_is_no_new_backup(shop: Platform) -> None:
    first = back_up(shop)
    again = back_up(shop)
    assert (again.unchanged, again.backup_id, again.copied_files) == (True, first.backup_id, 0)
    assert [header.backup_id for header in headers(shop)] == [first.backup_id]
    assert recorded_jobs(shop) == []


@pytest.mark.parametrize(
    ("policy", "days", "reason"),
    [
        ("full_every: 2d", 2, "the chain began 2d ago or earlier"),
        ("max_chain: 2", 0, "the chain has 2 backups"),
        ("full_share: 10%", 0, "would be copied, more than 10%"),
    ],
)
def test_a_full_one_is_made_when_the_policy_asks_for_it(tmp_path: Path, policy: str, days: int, reason: str) -> None:
    clock = FakeClock()
    with open_shop(tmp_path, shop_text(policy=policy), clock) as platform:
        for _ in range(4):
            grow(platform)
        first = back_up(platform)
        grow(platform, size=LITTLE)
        assert back_up(platform).kind is BackupKind.INCREMENTAL
        clock.advance(timedelta(days=days).total_seconds())
        grow(platform)
        full = back_up(platform)
        assert (full.kind, full.chain_id, full.copied_files) == (BackupKind.FULL, full.backup_id, full.files)
        assert reason in full.reason
        assert full.chain_id != first.chain_id


def test_a_full_one_on_request_reads_everything_and_writes_nothing_twice(shop: Platform) -> None:
    back_up(shop)
    before = open_repository(shop).objects.index()
    full = back_up(shop, full=True)
    assert (full.kind, full.copied_files, full.unchanged) == (BackupKind.FULL, 7, False)
    assert open_repository(shop).objects.index() == before


def test_files_that_a_later_version_lacks_are_in_no_later_backup(shop: Platform) -> None:
    first = back_up(shop)
    shop.lake.table(ORDERS).overwrite(pa.table({"id": [0], "noise": [b"x"]}))
    second = back_up(shop)
    repository = open_repository(shop)
    data = [
        {stored.source.path for stored in repository.manifests.read(repository.find(each.backup_id)).files}
        for each in (first, second)
    ]
    assert {path for path in data[0] & data[1] if path.endswith(".parquet")} == set()


def test_older_versions_come_with_a_backup_only_if_the_policy_wants_them(tmp_path: Path) -> None:
    with open_shop(tmp_path, shop_text(policy="history: true")) as platform:
        grow(platform)
        platform.lake.table(ORDERS).overwrite(pa.table({"id": [0], "noise": [b"x"]}))
        report = back_up(platform)
        manifest = open_repository(platform).manifests.read(open_repository(platform).find(report.backup_id))
        assert sum(stored.source.path.endswith(".parquet") for stored in manifest.files) == 2


def test_progress_tells_bytes_and_files_up_to_the_end(shop: Platform) -> None:
    told: list[BackupProgress] = []
    report = back_up_table(shop, "nightly", ORDERS, on_progress=told.append)
    assert (told[-1].files, told[-1].of_files) == (report.copied_files, report.copied_files)
    assert told[-1].done_bytes == told[-1].total_bytes == report.copied_bytes


def test_what_cannot_be_backed_up_is_refused_by_name(shop: Platform) -> None:
    with pytest.raises(UnknownPolicyError) as policy:
        back_up_table(shop, "weekly", ORDERS)
    assert policy.value.known == ("nightly",)
    with pytest.raises(TableMissingError):
        back_up_table(shop, "nightly", "shop.never_built")
    with pytest.raises(TableNotInPolicyError) as strange:
        BackupScalingManager(shop).back_up("nightly", ["ops.backups"])
    assert strange.value.tables == (ITEMS, "shop.never_built", ORDERS)
    assert recorded_jobs(shop) == []


def test_a_policy_backs_up_what_exists_and_one_failure_does_not_stop_the_others(shop: Platform) -> None:
    grow(shop, ITEMS)
    next(data_of(shop, ITEMS).glob("*.parquet")).unlink()
    report = BackupScalingManager(shop).back_up("nightly")
    assert [backup.table for backup in report.backups] == [ORDERS]
    ((table, error),) = report.failed
    assert (table, type(error)) == (ITEMS, FilesMissingError)
    (job,) = recorded_jobs(shop)
    assert (job.kind, job.subject, job.error) == ("backup", ITEMS, str(error))


def test_as_many_tables_are_backed_up_at_once_as_the_limit_says(shop: Platform) -> None:
    grow(shop, ITEMS)
    limit_control(shop).set("backup", {"jobs": 2}, changed_by="test", reason="two disks")
    manager, together, came = BackupScalingManager(shop), threading.Barrier(2), set[str]()

    def tell(progress: BackupProgress) -> None:
        if progress.what not in came:
            came.add(progress.what)
            together.wait(60)  # nobody gets past this alone

    assert len(manager.back_up("nightly", on_progress=tell).backups) == 2
    assert manager.scaling_metrics()["done"] == 2
    assert manager.current_limits().jobs == 2


def test_of_two_backups_of_one_table_at_once_the_second_is_refused(shop: Platform) -> None:
    refused: list[JobBusyError] = []

    def second(_: BackupProgress) -> None:
        with pytest.raises(JobBusyError) as busy:
            back_up_table(shop, "nightly", ORDERS)
        refused.append(busy.value)

    back_up_table(shop, "nightly", ORDERS, on_progress=second)
    assert {(error.kind, error.subject) for error in refused} == {("backup", ORDERS)}
    assert len(headers(shop)) == 1
    assert recorded_jobs(shop) == []


def test_a_removal_waits_for_a_backup_and_counts_it(shop: Platform) -> None:
    first = back_up(shop)
    grow(shop)
    removals: list[PruneReport] = []
    removing = threading.Thread(target=lambda: removals.append(prune_backups(shop)))

    def sweep(_: BackupProgress) -> None:
        if removing.ident is None:
            removing.start()

    second = back_up_table(shop, "nightly", ORDERS, on_progress=sweep)
    removing.join(60)
    assert [header.backup_id for header in removals[0].plan.keep] == [first.backup_id, second.backup_id]
    assert verify_backups(shop).healthy


def before_copy(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]) -> list[int]:
    """Let something happen once between the capture and the copy; return the copies that were begun so far."""
    original, attempts = CopyWork.copy, list[int]()

    def copy(self: CopyWork, hand: int) -> int:
        attempts.append(hand)
        if len(attempts) == 1:
            step()
        return original(self, hand)

    monkeypatch.setattr(CopyWork, "copy", copy)
    return attempts


def test_a_file_that_vacuum_takes_meanwhile_moves_the_backup_to_the_newer_version(
    shop: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clean() -> None:
        shop.lake.table(ORDERS).overwrite(pa.table({"id": [7], "noise": [b"new"]}))
        for path in data_of(shop).glob("*.parquet"):
            if path.stat().st_size > LITTLE * 10:
                path.unlink()

    attempts = before_copy(monkeypatch, clean)
    report = back_up(shop)
    assert (report.version, len(attempts)) == (4, 2)
    assert verify_backups(shop).healthy


def test_an_older_file_that_vacuum_takes_without_a_new_version_costs_no_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_shop(tmp_path, shop_text(policy="history: true")) as platform:
        grow(platform)
        (old,) = data_of(platform).glob("*.parquet")
        platform.lake.table(ORDERS).overwrite(pa.table({"id": [7], "noise": [b"new"]}))
        before_copy(monkeypatch, old.unlink)
        report = back_up(platform)
        assert report.version == 2
        manifest = open_repository(platform).manifests.read(open_repository(platform).find(report.backup_id))
        assert old.name not in {stored.source.path for stored in manifest.files}


def test_a_table_that_is_always_faster_fails_by_the_name_of_the_file(
    shop: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = CopyWork.copy

    def copy(self: CopyWork, hand: int) -> int:
        with vanishing(data_of(shop), "*.parquet"):
            return original(self, hand)

    with monkeypatch.context() as patched:
        patched.setattr(CopyWork, "copy", copy)
        with pytest.raises(SourceFileGoneError) as gone:
            back_up(shop)
    assert gone.value.path.endswith(".parquet")
    assert headers(shop) == []
    (job,) = recorded_jobs(shop)
    assert job.error == str(gone.value)
    assert back_up(shop).files == 7
    assert recorded_jobs(shop) == []


def test_a_run_that_was_interrupted_goes_on_and_copies_nothing_twice(shop: Platform) -> None:
    def interrupt(progress: BackupProgress) -> None:
        if progress.files == progress.of_files:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up_table(shop, "nightly", ORDERS, on_progress=interrupt)
    assert headers(shop) == []
    (job,) = recorded_jobs(shop)
    grow(shop)
    report = back_up(shop)
    assert (report.version, report.files, report.resumed_files) == (4, 9, 7)
    repository = open_repository(shop)
    assert repository.manifests.read(repository.find(report.backup_id)).header.job_id == job.id
    assert not list(repository.storage.walk("notes"))


def test_an_interrupted_run_ends_although_much_is_left_to_copy(shop: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object, io: Gate, **__: object) -> StoredFile:
        while True:
            with io(1):
                pass

    def interrupt(_: BackupProgress) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "put_file", endless)
        with pytest.raises(KeyboardInterrupt):
            back_up_table(shop, "nightly", ORDERS, on_progress=interrupt)
    assert back_up(shop).files == 7


def test_no_backup_is_made_when_notes_of_what_was_copied_are_lost(shop: Platform) -> None:
    def lose(progress: BackupProgress) -> None:
        if progress.files == progress.of_files:
            for note in (open_repository(shop).place.local / "notes").rglob("*.note"):
                note.write_bytes(b"damaged")

    with pytest.raises(NotesLostError) as lost:
        back_up_table(shop, "nightly", ORDERS, on_progress=lose)
    assert len(lost.value.files) == 7
    assert headers(shop) == []
    assert back_up(shop).files == 7
    assert verify_backups(shop, VerifyScope()).broken == {}


def test_a_folder_that_is_no_repository_is_not_touched(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "photo.jpg").write_bytes(b"holiday")
    file = tmp_path / "file"
    file.write_bytes(b"")
    for place in (foreign, file):
        with open_shop(tmp_path, shop_text(backups=f"repository: {place}")) as platform:
            grow(platform)
            with pytest.raises(NotARepositoryError):
                back_up(platform)
    assert [path.name for path in foreign.iterdir()] == ["photo.jpg"]


def test_the_tables_of_operations_follow_the_repository_and_can_be_made_again(shop: Platform) -> None:
    back_up(shop)
    grow(shop)
    back_up(shop)
    grow(shop, ITEMS)
    back_up(shop, ITEMS)

    def catalogued() -> tuple[list[tuple[str, str, int]], int]:
        rows = shop.lake.table("ops.backups").snapshot().read_arrow().sort_by("backup_id").to_pylist()
        files = shop.lake.table("ops.backup_files").snapshot().read_arrow()
        assert {row["backup_id"] for row in rows} == set(files["backup_id"].to_pylist())
        return [(row["backup_id"], row["table_name"], row["files"]) for row in rows], files.num_rows

    listed, files = catalogued()
    assert listed == [(each.backup_id, each.table, each.totals.files) for each in headers(shop)]
    assert files == sum(count for _, _, count in listed)
    for name in ("ops.backups", "ops.backup_files"):
        shop.lake.table(name).overwrite(shop.lake.table(name).snapshot().read_arrow().slice(0, 1))
    assert rebuild_catalogue(shop, open_repository(shop)) == 3
    assert catalogued() == (listed, files)


def test_a_lake_that_cannot_be_written_keeps_no_backup_from_counting(shop: Platform) -> None:
    (data_of(shop).parents[1] / "ops").write_text("in the way")
    report = back_up(shop)
    assert [header.backup_id for header in headers(shop)] == [report.backup_id]


def test_what_took_long_beside_the_retention_of_the_table_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with open_shop(tmp_path, clock=clock) as platform:
        platform.lake.table(ORDERS).create(
            pa.schema([("id", pa.int64())]), properties={"delta.deletedFileRetentionDuration": "interval 2 hours"}
        )
        before_copy(monkeypatch, lambda: clock.advance(3_700))
        report = back_up(platform)
        (warning,) = report.warnings
        assert warning.startswith("the backup took 1h1m40s, but VACUUM may remove files after 2h: raise ")


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        (None, timedelta(days=7)),
        ("interval 30 days", timedelta(days=30)),
        ("INTERVAL 1 WEEK", timedelta(days=7)),
        ("calendar month", None),
    ],
)
def test_the_retention_of_a_table_is_read_as_delta_writes_it(text: str | None, retention: timedelta | None) -> None:
    assert deleted_file_retention(text) == retention
