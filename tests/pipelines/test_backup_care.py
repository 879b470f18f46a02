"""Looking after a repository: damage is found, named and healed; retention does what its plan says; keys must fit."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from dw_platform.backup import (
    BackupKind,
    BackupNotFoundError,
    KeyMissingError,
    KeyNotNeededError,
    ManifestDamagedError,
    NoRepositoryError,
    ObjectDamagedError,
    OtherPlatformError,
    RepositoryTooNewError,
    VerifyScope,
    WrongKeyError,
)
from dw_platform.foundation import FakeClock
from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup_care import prune_backups, verify_backups
from dw_platform.pipelines.backup_manager import BackupScalingManager
from dw_platform.pipelines.backup_overview import backup_details, backups_overview, table_backups
from dw_platform.pipelines.backup_report import BackupProgress
from dw_platform.pipelines.backup_repository import BackupKeyUnreadableError, open_repository
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

KEY = "correct horse battery staple"
ENCRYPTED = f"encryption: {{key: {KEY}}}"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Platform]:
    """A shop whose orders were backed up at versions 1, 2 and 3."""
    with open_shop(tmp_path) as platform:
        for _ in range(3):
            grow(platform)
            back_up(platform)
        yield platform


def ids(platform: Platform) -> list[str]:
    return [header.backup_id for header in headers(platform)]


# Damage


@pytest.mark.parametrize("harm", ["flipped", "deleted"])
def test_damage_is_named_by_backup_kept_from_restores_and_healed_by_the_next_backup(
    shop: Platform, tmp_path: Path, harm: str
) -> None:
    repository = open_repository(shop)
    first, second, third = ids(shop)
    name = next(each for each in objects_of(repository, second) if each not in objects_of(repository, first))
    file = object_file(repository, name)
    flip(file) if harm == "flipped" else file.unlink()
    report = verify_backups(shop)
    assert not report.healthy
    assert set(report.broken) == {second, third}, "both have the file that was new in the second"
    (finding,) = report.findings
    assert (finding.kind.value, finding.file) == ("damaged" if harm == "flipped" else "missing", name)
    assert backups_overview(shop).broken == {second, third}
    told = {each.table: each for each in table_backups(shop)}[ORDERS]
    assert (told.newest and told.newest.backup_id, told.backups, told.broken) == (first, 3, 2)
    assert backup_details(shop, third)["broken"][0]["file"] == name
    assert restore_table(shop, ORDERS, str(tmp_path / "whole")).backup_id == first
    assert held(shop, tmp_path / "whole")[0]["id"].to_pylist() == [0]
    healing = back_up(shop)
    assert (healing.kind, healing.reason) == (BackupKind.FULL, f"its parent {third} is broken")
    again = verify_backups(shop)
    assert (again.healthy, set(again.healed)) == (True, {second, third})
    restore_table(shop, ORDERS, str(tmp_path / "healed"), backup_id=second)
    assert held(shop, tmp_path / "healed")[0].equals(held(shop, ORDERS, 2)[0])


def test_a_backup_that_is_damaged_and_was_not_verified_fails_when_it_is_restored(
    shop: Platform, tmp_path: Path
) -> None:
    repository = open_repository(shop)
    (name, *_) = objects_of(repository, ids(shop)[2], only=True)
    flip(object_file(repository, name))
    with pytest.raises(ObjectDamagedError) as damaged:
        restore_table(shop, ORDERS, str(tmp_path / "back"))
    assert damaged.value.name == name
    assert not DeltaTable.is_deltatable(str(tmp_path / "back"))


def test_an_edited_manifest_is_mended_from_its_twin_and_refused_without_one(shop: Platform, tmp_path: Path) -> None:
    repository = open_repository(shop)
    newest = repository.find(ids(shop)[2])
    file = repository.place.local / newest.path
    twin = repository.place.local / "copies" / newest.path
    edited = file.read_bytes().replace(b'"table_version": 3', b'"table_version": 9')
    assert edited != file.read_bytes()
    file.write_bytes(edited)
    assert restore_table(shop, ORDERS, str(tmp_path / "a")).version == 3, "from the twin"
    (finding,) = verify_backups(shop).findings
    assert (finding.kind.value, finding.file) == ("mended", newest.path)
    assert verify_backups(shop).healthy
    for each in (file, twin):
        each.write_bytes(edited)
    with pytest.raises(ManifestDamagedError):
        open_repository(shop).manifests.read(newest)
    assert [str(error) for error in backups_overview(shop).damaged]
    assert set(verify_backups(shop).broken) == {newest.backup_id}
    assert restore_table(shop, ORDERS, str(tmp_path / "b")).version == 2
    with pytest.raises(ManifestDamagedError):
        prune_backups(shop)
    assert back_up(shop).version == 3, "a backup needs no parent"


def test_progress_of_a_verification_reaches_its_end(shop: Platform) -> None:
    told: list[BackupProgress] = []
    report = verify_backups(shop, VerifyScope(), on_progress=told.append)
    assert (told[-1].done_bytes, told[-1].files) == (report.bytes_read, report.objects_read)
    assert report.objects_read == report.objects_present > 0


# Retention


def test_a_removal_does_what_its_plan_said_and_everything_kept_restores(tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC))
    with open_shop(tmp_path, shop_text(policy="keep: {last: 2}"), clock) as platform:
        for _ in range(5):
            grow(platform)
            back_up(platform)
        manager = BackupScalingManager(platform)
        gone, pinned, also_gone, *newest = ids(platform)
        manager.pin(pinned, reason="the audit of May", by="ann")
        before = table_files(open_repository(platform).place.local)
        planned = manager.prune(dry_run=True)
        assert planned.swept is None
        assert table_files(open_repository(platform).place.local) == before
        removed = manager.prune()
        assert removed.plan.remove == planned.plan.remove
        assert [header.backup_id for header in removed.plan.remove] == [gone, also_gone]
        assert ids(platform) == [pinned, *newest]
        clock.advance(timedelta(days=2).total_seconds())
        manager.prune()
        repository = open_repository(platform)
        needed = {name for ref in repository.manifests.refs() for name in repository.manifests.needs(ref)[1]}
        assert set(repository.objects.index()) == needed, "what nobody needs is gone after the grace"
        for header in headers(platform):
            folder = tmp_path / header.backup_id
            restore_table(platform, ORDERS, str(folder), backup_id=header.backup_id)
            assert held(platform, folder)[0].equals(held(platform, ORDERS, header.table_version)[0])
        catalogued = platform.lake.table("ops.backups").snapshot().read_arrow()["backup_id"].to_pylist()
        assert sorted(catalogued) == ids(platform)
        manager.unpin(pinned)
        assert [header.backup_id for header in manager.prune().plan.remove] == [pinned]


def test_the_newest_backup_outlives_every_limit(tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC))
    with open_shop(tmp_path, shop_text(policy='keep: {for: 1d, max_size: "1KB"}'), clock) as platform:
        grow(platform)
        back_up(platform)
        grow(platform)
        newest = back_up(platform)
        clock.advance(timedelta(days=400).total_seconds())
        report = prune_backups(platform)
        assert ids(platform) == [newest.backup_id]
        assert list(report.plan.above_limit) == [(ORDERS, "nightly")]
        restore_table(platform, ORDERS, str(tmp_path / "back"))
        assert held(platform, tmp_path / "back")[0].equals(held(platform)[0])


def test_backups_of_a_policy_that_was_taken_out_of_the_file_stay(shop: Platform, tmp_path: Path) -> None:
    before = ids(shop)
    text = shop_text(policy="keep: {last: 1}").replace("name: nightly", "name: weekly")
    with open_shop(tmp_path, text) as platform:
        prune_backups(platform)
        assert ids(platform) == before


def test_what_is_not_there_cannot_be_pinned_or_unpinned(shop: Platform) -> None:
    manager, unknown = BackupScalingManager(shop), "20010101T000000.000Z-00000000"
    with pytest.raises(BackupNotFoundError):
        manager.pin(unknown, reason="", by="ann")
    with pytest.raises(BackupNotFoundError):
        manager.unpin(unknown)


# Keys, and whose repository it is


def test_an_encrypted_compressed_repository_gives_back_what_it_got_and_shows_none_of_it(tmp_path: Path) -> None:
    with open_shop(tmp_path, shop_text(backups=ENCRYPTED)) as platform:
        for size in (1_000, 300_000):
            grow(platform, size=size)
        back_up(platform)
        grow(platform)
        assert back_up(platform).kind is BackupKind.INCREMENTAL
        stored = table_files(open_repository(platform).place.local)
        objects = [path for path in stored if path.startswith("objects/")]
        assert objects
        assert all(path.endswith(".enc") for path in objects)
        assert any(path.endswith(".zst.enc") for path in objects), "the log shrinks"
        for secret in (b"numRecords", b"PAR1", b"noise", b"_delta_log"):
            assert not [path for path, content in stored.items() if secret in content]
        restore_table(platform, ORDERS, str(tmp_path / "back"))
        assert held(platform, tmp_path / "back")[0].equals(held(platform)[0])
        assert verify_backups(platform).healthy


@pytest.mark.parametrize(
    ("made", "opened", "error"),
    [
        (ENCRYPTED, "encryption: {key: another key of that length}", WrongKeyError),
        (ENCRYPTED, "", KeyMissingError),
        ("", ENCRYPTED, KeyNotNeededError),
        (ENCRYPTED, "encryption: {key_file: no_such_file}", BackupKeyUnreadableError),
    ],
)
def test_a_key_that_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, made: str, opened: str, error: type[Exception]
) -> None:
    with open_shop(tmp_path, shop_text(backups=made)) as platform:
        grow(platform)
        back_up(platform)
        folder = open_repository(platform).place.local
    before = table_files(folder)
    with open_shop(tmp_path, shop_text(backups=opened)) as platform:
        for work in (back_up, verify_backups, prune_backups, backups_overview):
            with pytest.raises(error):
                work(platform)
    assert table_files(folder) == before


def test_a_key_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    with open_shop(tmp_path, shop_text(backups="encryption: {key_file: key}")) as platform:
        grow(platform)
        back_up(platform)
    with open_shop(tmp_path, shop_text(backups=ENCRYPTED)) as platform:
        assert verify_backups(platform).healthy


def test_a_repository_of_another_platform_or_a_later_version_is_refused(shop: Platform, tmp_path: Path) -> None:
    repository = open_repository(shop)
    other = shop_text(backups=f"repository: {repository.place.local}").replace("name: shop\n", "name: store\n", 1)
    with open_shop(tmp_path, other) as platform, pytest.raises(OtherPlatformError) as foreign:
        back_up(platform)
    assert (foreign.value.owner, foreign.value.platform) == ("shop", "store")
    file = repository.place.local / "dw_repository.json"
    told = json.loads(file.read_bytes())
    told["document"]["format"] = 99
    file.write_text(json.dumps(told))
    with pytest.raises(RepositoryTooNewError):
        open_repository(shop)


def test_looking_at_a_repository_that_was_never_made_makes_none(tmp_path: Path) -> None:
    with open_shop(tmp_path) as platform:
        assert backups_overview(platform).chains == ()
        for work in (verify_backups, prune_backups):
            with pytest.raises(NoRepositoryError):
                work(platform)
        assert not (tmp_path / "home" / "backups").exists()
