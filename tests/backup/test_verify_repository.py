"""Verification: damage anywhere is found, named with what it breaks, and healed by the next backup."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.backup import (
    BackupRef,
    BackupRepository,
    Finding,
    FindingKind,
    RepositoryDamagedError,
    RepositoryUnavailableError,
    SweptMeanwhileError,
    VerifyScope,
    verify,
)
from dw_platform.backup.findings import select_objects
from dw_platform.backup.layout import DESCRIPTION, QUARANTINE, object_name, twin_of
from dw_platform.backup.storage import Listed
from dw_platform.foundation import InvalidValueError
from dw_platform.store import MemoryStore
from tests.backup.repository_kit import (
    PLATFORM,
    SECRET,
    back_up,
    files_of,
    new_repository,
    now_clock,
    restored,
    write_table,
)

CONTENTS = {
    "big.parquet": os.urandom(300_000),
    "text.parquet": os.urandom(200_000).hex().encode(),
    "_delta_log/0.json": b"{}",
    "_delta_log/1.json": b"[1]",
}


class Shop:
    """A table with two backups."""

    def __init__(self, folder: Path, secret: str | None = None) -> None:
        self.clock = now_clock()
        self.repository = new_repository(folder / "repo", secret=secret, clock=self.clock)
        self.table = folder / "t"
        self.first = self.back_up()
        self.second = self.back_up(full=True)
        self.clock.advance(timedelta(hours=2).total_seconds())  # no backup is being published any more

    @property
    def root(self) -> Path:
        return self.repository.place.local

    def back_up(self, *, full: bool = False) -> BackupRef:
        return back_up(self.repository, self.table, write_table(self.table, CONTENTS), full=full)

    def object_of(self, path: str, ref: BackupRef | None = None) -> str:
        manifest = self.repository.manifests.read(ref or self.first)
        return next(stored.object_name for stored in manifest.files if stored.source.path == path)

    def damage(self, path: str) -> str:
        name = self.object_of(path)
        flip(self.root / "objects" / name)
        return name


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.parametrize("secret", [None, SECRET], ids=["plain", "encrypted"])
def test_a_healthy_repository_has_no_findings(tmp_path: Path, secret: str | None) -> None:
    shop = Shop(tmp_path, secret)
    report = verify(shop.repository)
    assert report.healthy
    assert report.objects_read == report.objects_present == 3
    assert report.bytes_read == sum(shop.repository.objects.index().values())


@pytest.mark.parametrize("secret", [None, SECRET], ids=["plain", "encrypted"])
@pytest.mark.parametrize("harm", ["flip", "delete", "truncate"])
def test_harm_to_any_single_file_is_found_and_never_gives_wrong_bytes(
    tmp_path: Path, secret: str | None, harm: str
) -> None:
    shop = Shop(tmp_path, secret)
    shop.repository.pin(shop.first.backup_id, reason="audit", by="operator")
    shop.repository.journal("other").add(shop.repository.manifests.read(shop.first).files)
    assert verify(shop.repository).healthy
    for file in files_of(shop.root):
        relative = str(file.relative_to(shop.root))
        good = file.read_bytes()
        match harm:
            case "flip":
                flip(file)
            case "delete" if not relative.startswith(("pins/", "notes/", "health/")):
                file.unlink()
            case "truncate":
                file.write_bytes(good[:-1])
            case _:
                continue  # removing a pin or a note is how it is let go
        if relative == DESCRIPTION:
            with pytest.raises(RepositoryDamagedError):
                BackupRepository.open(shop.repository.place, platform=PLATFORM, store=MemoryStore(), secret=secret)
        else:
            report = verify(shop.repository)
            assert relative.removeprefix("objects/").removeprefix("copies/") in {each.file for each in report.findings}
            for ref in shop.repository.manifests.refs():
                if ref.backup_id not in report.broken:
                    assert restored(shop.repository, ref) == CONTENTS
        file.write_bytes(good)
    assert verify(shop.repository).broken == {}


def test_a_bad_object_names_every_backup_and_file_that_it_breaks(shop: Shop) -> None:
    name = shop.damage("big.parquet")
    report = verify(shop.repository)
    (finding,) = report.findings
    assert (finding.kind, finding.file) == (FindingKind.DAMAGED, name)
    assert finding.breaks == {ref.backup_id: ("big.parquet",) for ref in (shop.first, shop.second)}
    assert shop.repository.health.broken_ids() == {shop.first.backup_id, shop.second.backup_id}
    record = shop.repository.health.broken(shop.first.backup_id)
    assert record is not None
    assert (record.table, record.problems[0].file) == ("shop.orders", name)
    assert (shop.root / QUARANTINE / "objects" / name).exists()
    assert name not in shop.repository.objects.index()


def test_a_bad_pack_names_all_files_in_it(shop: Shop) -> None:
    name = shop.damage("_delta_log/0.json")
    (finding,) = verify(shop.repository).findings
    assert finding.file == name
    assert finding.breaks[shop.first.backup_id] == ("_delta_log/0.json", "_delta_log/1.json")


@pytest.mark.parametrize("path", sorted(CONTENTS))
@pytest.mark.parametrize("full", [True, False])
def test_the_next_backup_heals_all_that_broke(shop: Shop, path: str, *, full: bool) -> None:
    shop.damage(path)
    assert len(verify(shop.repository).broken) == 2
    third = shop.back_up(full=full)
    report = verify(shop.repository)
    assert report.broken == {}
    assert set(report.healed) == {shop.first.backup_id, shop.second.backup_id}
    assert shop.repository.health.broken_ids() == frozenset()
    assert all(restored(shop.repository, ref) == CONTENTS for ref in (shop.first, shop.second, third))


def test_missing_objects_stay_known_until_they_are_back(shop: Shop) -> None:
    (shop.root / "objects" / shop.object_of("big.parquet")).unlink()
    for scope in (VerifyScope(), VerifyScope(only_new=True), VerifyScope(share=0.001)):
        report = verify(shop.repository, scope)
        assert [finding.kind for finding in report.findings] == [FindingKind.MISSING]
        assert len(report.broken) == 2


def test_a_manifest_is_mended_from_its_twin_and_the_other_way_round(shop: Shop) -> None:
    for path in (shop.first.path, twin_of(shop.first.path)):
        flip(shop.root / path)
        report = verify(shop.repository)
        assert [finding.kind for finding in report.findings] == [FindingKind.MENDED]
        assert report.broken == {}
        assert verify(shop.repository).healthy


def test_a_backup_whose_manifest_is_lost_twice_is_broken_as_a_whole(shop: Shop) -> None:
    for path in (shop.first.path, twin_of(shop.first.path)):
        flip(shop.root / path)
    report = verify(shop.repository)
    assert set(report.broken) == {shop.first.backup_id}
    assert report.findings[0].breaks == {shop.first.backup_id: ("every file",)}
    shop.repository.manifests.set_aside(shop.first)
    after = verify(shop.repository)
    assert (after.broken, after.healed) == ({}, ())
    assert shop.repository.health.broken_ids() == {shop.first.backup_id}


def test_damage_that_is_gone_at_the_second_look_moves_nothing(shop: Shop) -> None:
    name = shop.damage("big.parquet")
    file = shop.root / "objects" / name

    def mended(check: Any, items: Any) -> list[Finding | None]:
        found = list(map(check, items))
        flip(file)
        return found

    report = verify(shop.repository, each=mended)
    assert [finding.kind for finding in report.findings] == [FindingKind.UNREADABLE]
    assert report.broken == {}
    assert file.exists()
    assert shop.repository.health.verified_at() is None


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, FindingKind.DAMAGED), (errno.ESTALE, FindingKind.UNREADABLE)])
def test_a_sector_that_cannot_be_read_is_damage_and_a_server_that_is_away_is_not(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, number: int, kind: FindingKind
) -> None:
    name = shop.object_of("big.parquet")
    real = Path.open

    class Failing:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def seek(self, *position: int) -> int:
            return int(self.file.seek(*position))

        def read(self, _size: int) -> bytes:
            raise OSError(number, os.strerror(number))

    def open_failing(path: Path, *arguments: Any, **named: Any) -> Any:
        file = real(path, *arguments, **named)
        return Failing(file) if path.name == Path(name).name else file

    monkeypatch.setattr(Path, "open", open_failing)
    report = verify(shop.repository)
    assert [finding.kind for finding in report.findings] == [kind]
    assert set(report.findings[0].breaks) == {shop.first.backup_id, shop.second.backup_id}
    assert len(report.broken) == (2 if kind is FindingKind.DAMAGED else 0)


def test_threads_may_do_the_reading(shop: Shop) -> None:
    name = shop.damage("big.parquet")
    with ThreadPoolExecutor(2) as pool:
        assert [finding.file for finding in verify(shop.repository, each=pool.map).findings] == [name]


def test_only_new_reads_what_was_stored_since_the_last_complete_verification(shop: Shop) -> None:
    new = VerifyScope(only_new=True)
    assert verify(shop.repository, VerifyScope(share=0.5, only_new=True)).objects_present == 3
    assert verify(shop.repository, new).objects_read == 3
    assert verify(shop.repository, new).objects_read == 0
    assert verify(shop.repository).objects_read == 3


def test_what_was_stored_shortly_before_a_verification_is_new_to_the_next_because_clocks_differ() -> None:
    began = now_clock().now()
    listing = {object_name(f"{minutes:064x}"): Listed(1, began - timedelta(minutes=minutes)) for minutes in (0, 59, 61)}
    assert len(select_objects(listing, VerifyScope(only_new=True), began)) == 2
    assert len(select_objects(listing, VerifyScope(), began)) == 3


def test_a_backup_that_is_just_being_published_gets_no_twin_from_a_verification(shop: Shop) -> None:
    third = shop.back_up()
    shop.repository.storage.remove(twin_of(third.path))
    early = BackupRepository.open(shop.repository.place, platform=PLATFORM, store=MemoryStore(), clock=now_clock())
    assert verify(early).healthy
    assert early.storage.find(twin_of(third.path)) is None
    assert [finding.kind for finding in verify(shop.repository).findings] == [FindingKind.MENDED]


def test_a_disk_that_is_not_mounted_is_not_an_empty_repository(shop: Shop) -> None:
    away = shop.root.rename(shop.root.parent / "away")
    shop.root.mkdir()
    stored = object_name("0" * 64)
    for look in (
        lambda: verify(shop.repository),
        shop.repository.manifests.headers,
        shop.repository.objects.index,
        lambda: shop.repository.manifests.read(shop.first),
        lambda: shop.repository.objects.check(stored, 1),
        shop.repository.pins.ids,
    ):
        with pytest.raises(RepositoryUnavailableError, match="mounted"):
            look()
    assert list(shop.root.iterdir()) == []
    shop.root.rmdir()
    away.rename(shop.root)
    assert verify(shop.repository).healthy


def test_an_object_set_aside_while_a_backup_counts_on_it_stops_that_backup(shop: Shop) -> None:
    manifest = shop.repository.manifests.read(shop.second)
    with shop.repository.shared() as hold:
        shop.damage("big.parquet")
        verify(shop.repository)
        with pytest.raises(SweptMeanwhileError):
            shop.repository.publish(manifest, hold)


names = st.binary(min_size=32, max_size=32).map(lambda digest: object_name(digest.hex()))


@given(found=st.sets(names, max_size=50), seed=st.integers(), share=st.floats(0.01, 1))
def test_a_sample_is_the_same_for_the_same_seed_and_grows_with_its_share(
    found: set[str], seed: int, share: float
) -> None:
    listing = {name: Listed(1, now_clock().now()) for name in found}
    chosen = select_objects(listing, VerifyScope(share=share, seed=seed), None)
    assert chosen == select_objects(listing, VerifyScope(share=share, seed=seed), None)
    assert set(chosen) <= set(select_objects(listing, VerifyScope(share=min(1, share * 2), seed=seed), None)) <= found
    assert set(select_objects(listing, VerifyScope(), None)) == found


def test_seeds_together_cover_everything() -> None:
    listing = {object_name(f"{number:064x}"): Listed(1, now_clock().now()) for number in range(200)}
    covered = {name for seed in range(60) for name in select_objects(listing, VerifyScope(share=0.1, seed=seed), None)}
    assert len(covered) > 190


@pytest.mark.parametrize("share", [0, -0.1, 1.01])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(InvalidValueError):
        VerifyScope(share=share)
