"""Sweeping: expired backups go, what others need stays, and a crash at any step costs nothing."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.backup import (
    BackupRef,
    BackupRepository,
    ManifestDamagedError,
    Place,
    RetentionPolicy,
    SweepPolicy,
    expiry,
    prune,
    verify,
)
from dw_platform.backup.layout import object_name, twin_of
from dw_platform.backup.storage import Listed
from dw_platform.backup.sweep import plan_sweep
from dw_platform.foundation import FakeClock
from dw_platform.store import MemoryStore
from tests.backup.repository_kit import PLATFORM, back_up, files_of, new_repository, now_clock, restored, write_table

NOW = datetime(2026, 11, 18, tzinfo=UTC)
LAST_TWO = RetentionPolicy(max_count=2)
DAY_S = timedelta(days=1).total_seconds()


def big(letter: str) -> bytes:
    return letter.encode() * 300_000


class Shop:
    """A table that loses its oldest file and gets a new one before each backup."""

    def __init__(self, folder: Path) -> None:
        self.clock: FakeClock = now_clock()
        self.repository = new_repository(folder / "repo", clock=self.clock)
        self.table = folder / "t"
        self.expected: dict[BackupRef, Mapping[str, bytes]] = {}

    def back_up(self, letters: str) -> BackupRef:
        contents = {f"{letter}.parquet": big(letter) for letter in letters}
        contents |= {f"_delta_log/{letter}.json": letter.encode() for letter in letters}
        ref = back_up(self.repository, self.table, write_table(self.table, contents))
        self.expected[ref] = contents
        self.clock.advance(60)
        return ref

    def prune(self, policy: RetentionPolicy = LAST_TWO) -> Any:
        plan = expiry(self.repository, policy)
        with self.repository.exclusive() as hold:
            return prune(self.repository, plan.remove, hold)

    def all_restore(self) -> bool:
        refs = self.repository.manifests.refs()
        return all(restored(self.repository, ref) == self.expected[ref] for ref in refs)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_expired_backups_go_at_once_and_their_objects_after_the_grace(shop: Shop) -> None:
    refs = [shop.back_up(letters) for letters in ("ab", "bc", "cd")]
    before = len(shop.repository.objects.index())
    report = shop.prune()
    assert report.backups == (refs[0].backup_id,)
    assert (report.files, len(shop.repository.objects.index())) == (0, before)
    assert report.spared_bytes > 0
    shop.clock.advance(DAY_S + 1)
    later = shop.prune()
    assert (later.backups, later.bytes) == ((), report.spared_bytes)
    assert shop.repository.manifests.refs() == refs[1:]
    assert shop.all_restore()
    assert verify(shop.repository).healthy


def test_the_plan_alone_changes_nothing(shop: Shop) -> None:
    for letters in ("ab", "bc", "cd"):
        shop.back_up(letters)
    before = {path: path.read_bytes() for path in files_of(shop.repository.place.local)}
    plan = expiry(shop.repository, LAST_TWO)
    assert len(plan.remove) == 1
    assert plan.bytes_after < plan.bytes_before
    assert {path: path.read_bytes() for path in files_of(shop.repository.place.local)} == before


def test_a_backup_pinned_after_the_plan_stays(shop: Shop) -> None:
    refs = [shop.back_up(letters) for letters in ("ab", "bc", "cd")]
    plan = expiry(shop.repository, LAST_TWO)
    shop.repository.pin(refs[0].backup_id, reason="audit", by="operator")
    with shop.repository.exclusive() as hold:
        assert prune(shop.repository, plan.remove, hold).backups == ()
    assert shop.repository.pins.get(refs[0].backup_id).reason == "audit"
    shop.repository.pins.remove(refs[0].backup_id)
    assert shop.prune().backups == (refs[0].backup_id,)


def test_a_backup_that_lacks_an_object_does_not_count_as_one_that_restores(shop: Shop) -> None:
    refs = [shop.back_up(letters) for letters in ("ab", "bc", "cd")]
    manifest = shop.repository.manifests.read(refs[2])
    (lost,) = {each.object_name for each in manifest.files if each.source.path == "d.parquet"}
    shop.repository.storage.remove(f"objects/{lost}")
    assert expiry(shop.repository, LAST_TWO).remove == ()


def test_notes_of_a_job_protect_its_objects_until_nobody_will_resume_it(shop: Shop) -> None:
    shop.back_up("ab")
    capture = write_table(shop.table, {"x.parquet": big("x")})
    stored = shop.repository.objects.put_file(Place.at(shop.table), capture.files[0])
    shop.repository.journal("nightly/1").add([stored])
    shop.clock.advance(6 * DAY_S)
    shop.prune()
    assert stored.object_name in shop.repository.objects.index()
    assert shop.repository.journal("nightly/1").entries() == (stored,)
    shop.clock.advance(2 * DAY_S)
    shop.prune()
    assert stored.object_name not in shop.repository.objects.index()
    assert shop.repository.journal("nightly/1").entries() == ()


def test_a_job_that_is_started_again_copies_nothing_twice(shop: Shop) -> None:
    capture = write_table(shop.table, {"x.parquet": big("x"), "y.parquet": big("y")})
    stored = shop.repository.objects.put_file(Place.at(shop.table), capture.files[0])
    shop.repository.journal("job").add([stored])
    (shop.table / "x.parquet").write_bytes(bytes(300_000))  # would be noticed if it were read again
    os.utime(shop.table / "x.parquet", ns=(0, capture.files[0].mtime_ns))
    ref = back_up(shop.repository, shop.table, capture)
    assert shop.repository.manifests.read(ref).header.totals.copied_files == 1
    assert restored(shop.repository, ref)["x.parquet"] == big("x")


def test_damaged_and_half_written_notes_are_passed_over(shop: Shop) -> None:
    journal = shop.repository.journal("job")
    capture = write_table(shop.table, {"x.parquet": big("x")})
    journal.add([shop.repository.objects.put_file(Place.at(shop.table), capture.files[0])])
    (note,) = files_of(shop.repository.place.local / journal.folder)
    (note.parent / ".0123.tmp").write_bytes(b"half")
    assert len(journal.entries()) == 1
    note.write_bytes(note.read_bytes()[:-3])
    assert journal.entries() == ()
    shop.clock.advance(2 * DAY_S)
    shop.prune()
    journal.clear()
    assert not (shop.repository.place.local / journal.folder).exists()


def test_nothing_goes_as_long_as_a_manifest_cannot_be_read(shop: Shop) -> None:
    refs = [shop.back_up(letters) for letters in ("ab", "bc", "cd")]
    plan = expiry(shop.repository, LAST_TWO)
    shop.clock.advance(DAY_S + 1)
    for path in (refs[2].path, twin_of(refs[2].path)):
        (shop.repository.place.local / path).write_bytes(b"damaged")
    before = shop.repository.manifests.refs(), shop.repository.objects.index()
    with shop.repository.exclusive() as hold, pytest.raises(ManifestDamagedError, match="set it aside"):
        prune(shop.repository, plan.remove, hold)
    assert (shop.repository.manifests.refs(), shop.repository.objects.index()) == before
    shop.repository.manifests.set_aside(refs[2])
    shop.prune(RetentionPolicy(max_count=1))
    assert shop.repository.manifests.refs() == [refs[1]]
    assert shop.all_restore()


def test_only_old_temporaries_go(shop: Shop) -> None:
    shop.back_up("ab")
    places = ("tmp/1.tmp", "pins/.2.tmp", "objects/ab/.3.tmp", ".4.tmp")
    for path in places:
        shop.repository.storage.write(path, b"half")
    shop.prune()
    assert all((shop.repository.place.local / path).exists() for path in places)
    shop.clock.advance(DAY_S + 1)
    assert shop.prune().files == len(places)
    assert not any((shop.repository.place.local / path).exists() for path in places)
    assert shop.all_restore()


class KilledError(BaseException):
    """Stands for SIGKILL: from here on the process does nothing more."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let the process end right before its `step`-th change to the disk."""
    done: list[str] = []

    def guarded(name: str, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            done.append(name)
            if len(done) > step:
                raise KilledError
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as dying:
        for owner, name in (
            (os, "write"),
            (os, "fsync"),
            (os, "link"),
            (Path, "replace"),
            (Path, "unlink"),
            (Path, "mkdir"),
        ):
            dying.setattr(owner, name, guarded(name, getattr(owner, name)))
        yield done


@pytest.mark.crash
def test_a_job_killed_before_any_of_its_writes_loses_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Shop(tmp_path / "base")
    for letters in ("ab", "bc"):
        base.back_up(letters)
    step = 0
    while True:
        folder = tmp_path / "round"
        shutil.copytree(base.repository.place.local, folder)
        shop = Shop.__new__(Shop)
        shop.clock, shop.table, shop.expected = now_clock(), base.table, dict(base.expected)
        shop.repository = BackupRepository.open(
            Place.at(folder), platform=PLATFORM, store=MemoryStore(), clock=shop.clock
        )
        before, died = set(shop.expected), False
        with killed_at(step, monkeypatch) as done:
            try:
                shop.back_up("cd")
                shop.clock.advance(DAY_S + 1)
                shop.prune()
            except KilledError:
                died = True
        if not died:
            break
        # Another process comes: whatever is published restores, and only what was expired is missing.
        shop.repository = BackupRepository.open(
            Place.at(folder), platform=PLATFORM, store=MemoryStore(), clock=shop.clock
        )
        published = shop.repository.manifests.refs()
        for ref in published:
            shop.expected.setdefault(
                ref, {**{f"{x}.parquet": big(x) for x in "cd"}, **{f"_delta_log/{x}.json": x.encode() for x in "cd"}}
            )
        assert shop.all_restore()
        assert len(before - set(published)) <= 1
        shop.back_up("cd")
        shop.clock.advance(10 * DAY_S)
        shop.prune()
        shop.prune()
        assert shop.all_restore()
        assert len(shop.repository.manifests.refs()) == 2
        needed = {
            name for ref in shop.repository.manifests.refs() for name in shop.repository.manifests.read(ref).objects()
        }
        assert shop.repository.objects.index().keys() == needed
        verify(shop.repository)  # mends the twin that the kill may have prevented
        assert verify(shop.repository).healthy
        leftover = {path.relative_to(folder).parts[0] for path in files_of(folder)}
        assert leftover <= {"dw_repository.json", "fence.json", "objects", "manifests", "copies", "health"}
        shutil.rmtree(folder)
        step += 1
    assert step > 30
    assert len(done) == step


names = st.integers(0, 30).map(lambda number: object_name(f"{number:064x}"))
listings = st.dictionaries(names, st.floats(0, 100).map(lambda hours: Listed(5, NOW - timedelta(hours=hours))))


@settings(deadline=None)
@given(listing=listings, needed=st.sets(names))
def test_a_sweep_never_takes_what_is_needed_or_young(listing: dict[str, Listed], needed: set[str]) -> None:
    files = {f"objects/{name}": listed for name, listed in listing.items()}
    policy = SweepPolicy()
    plan = plan_sweep(files, needed=needed, backups=(), now=NOW, policy=policy)
    gone = {path.removeprefix("objects/") for path in plan.remove}
    assert gone.isdisjoint(needed)
    assert gone == {
        name for name, listed in listing.items() if name not in needed and NOW - listed.modified > policy.grace
    }
    spared = [name for name in listing if name not in needed and name not in gone]
    assert (plan.bytes, plan.spared_bytes) == (5 * len(gone), 5 * len(spared))
    left = {path: listed for path, listed in files.items() if path not in plan.remove}
    assert plan_sweep(left, needed=needed, backups=(), now=NOW, policy=policy).remove == ()
