"""Publishing beside a sweep that should not be running: whatever the order of events, what is published restores."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dw_platform.backup import (
    BackupRef,
    BackupRepository,
    Hold,
    Manifest,
    RepositoryBusyError,
    RepositoryUnavailableError,
    SweepPolicy,
    SweptMeanwhileError,
    TableCapture,
    TakenOverError,
    prune,
)
from dw_platform.backup.layout import FENCE
from dw_platform.backup.manifests import ManifestStore
from dw_platform.backup.storage import Storage
from dw_platform.backup.sweep import _Sweep
from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.store import LeaseLock, LeaseLostError, LeaseMode, MemoryStore
from tests.backup.repository_kit import back_up, new_repository, restored, write_table

CONTENTS = {"a.parquet": b"a" * 300_000, "b.parquet": b"b" * 300_000}


def hold_of(repository: BackupRepository, mode: LeaseMode, clock: FakeClock | None = None) -> Hold:
    """A right of its own, as that of a process that was paused and does not know what happened since."""
    lock = LeaseLock(
        MemoryStore(), "k", owner="paused", ttl=timedelta(seconds=30), renew=False, clock=clock or FakeClock()
    )
    return Hold(lock.acquire(mode, timeout_s=0), repository.fence.current())


@pytest.fixture
def repository(tmp_path: Path) -> BackupRepository:
    return new_repository(tmp_path / "repo")


@pytest.fixture
def capture(tmp_path: Path) -> TableCapture:
    return write_table(tmp_path / "t", CONTENTS)


@contextmanager
def before(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, act: Callable[[], None]) -> Iterator[None]:
    """Let `act` happen once, right before a method does its work."""
    real, todo = getattr(owner, name), [act]

    def interrupted(*arguments: Any, **named: Any) -> Any:
        if todo:
            todo.pop()()
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted)
        yield


def remove_an_object(repository: BackupRepository) -> None:
    """What a sweep that did not know of the backup may do."""
    repository.fence.advance("other", repository.clock.now())
    for name in sorted(repository.objects.index())[:1]:
        repository.storage.remove(f"objects/{name}")


def test_a_backup_exists_in_two_copies_once_it_is_published(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path
) -> None:
    ref = back_up(repository, tmp_path / "t", capture)
    assert repository.manifests.refs() == [ref]
    assert repository.manifests.mend(ref) is None
    assert restored(repository, ref) == CONTENTS
    assert repository.journal("job").entries() == ()


def test_a_sweep_before_the_manifest_is_noticed_and_nothing_is_published(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        before(monkeypatch, ManifestStore, "write", lambda: pytest.fail("a manifest was written")),
        before(monkeypatch, BackupRepository, "publish", lambda: remove_an_object(repository)),
        pytest.raises(SweptMeanwhileError),
    ):
        back_up(repository, tmp_path / "t", capture)
    assert repository.manifests.refs() == []


def test_a_sweep_between_the_look_and_the_manifest_makes_the_backup_take_it_back(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        before(monkeypatch, ManifestStore, "write", lambda: remove_an_object(repository)),
        pytest.raises(SweptMeanwhileError) as swept,
    ):
        back_up(repository, tmp_path / "t", capture)
    assert "1 of its objects" in swept.value.reason
    assert repository.manifests.refs() == []
    assert restored(repository, back_up(repository, tmp_path / "t", capture)) == CONTENTS


def test_a_sweep_that_took_nothing_of_it_lets_the_backup_be(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with before(
        monkeypatch, ManifestStore, "write", lambda: repository.fence.advance("other", repository.clock.now()) and None
    ):
        ref = back_up(repository, tmp_path / "t", capture)
    assert restored(repository, ref) == CONTENTS


@pytest.mark.parametrize("damage", [b"", b"{}\n", None])
def test_without_a_readable_token_objects_are_looked_for(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, damage: bytes | None
) -> None:
    fence = repository.place.local / FENCE
    fence.unlink() if damage is None else fence.write_bytes(damage)
    assert restored(repository, back_up(repository, tmp_path / "t", capture)) == CONTENTS


def test_a_backup_whose_right_ended_publishes_nothing(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    late = hold_of(repository, LeaseMode.SHARED, clock)
    with (
        before(monkeypatch, ManifestStore, "write", lambda: clock.advance(31)),
        pytest.raises(SweptMeanwhileError, match="right"),
    ):
        back_up(repository, tmp_path / "t", capture, hold=late)
    with pytest.raises(LeaseLostError):
        back_up(repository, tmp_path / "t", capture, hold=late)
    assert repository.manifests.refs() == []


def test_a_manifest_whose_second_look_fails_is_taken_back(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RepositoryUnavailableError("repo", "the server is away")

    with (
        before(monkeypatch, BackupRepository, "_doubt", fail),
        pytest.raises(RepositoryUnavailableError),
    ):
        back_up(repository, tmp_path / "t", capture)
    assert repository.manifests.refs() == []


def test_a_backup_without_room_for_its_twin_exists_all_the_same(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RepositoryUnavailableError("repo", "no room")

    with before(monkeypatch, ManifestStore, "write_twin", fail):
        ref = back_up(repository, tmp_path / "t", capture)
    assert repository.manifests.mend(ref) is not None
    assert repository.manifests.mend(ref) is None


def old_garbage(repository: BackupRepository, capture: TableCapture, tmp_path: Path) -> FakeClock:
    """Objects of a backup that was removed, so long ago that no grace protects them."""
    ref = back_up(repository, tmp_path / "t", capture)
    repository.manifests.remove(ref)
    clock = repository.clock
    assert isinstance(clock, FakeClock)
    clock.advance(timedelta(days=9).total_seconds())
    return clock


def test_a_sweep_spares_what_a_backup_published_since_it_looked_needs(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep was paused after reading the manifests; a backup found its objects there, and published."""
    old_garbage(repository, capture, tmp_path)
    paused = hold_of(repository, LeaseMode.EXCLUSIVE)
    refs: list[BackupRef] = []
    with before(monkeypatch, _Sweep, "_read_notes", lambda: refs.append(back_up(repository, tmp_path / "t", capture))):
        prune(repository, [], paused)
    assert restored(repository, refs[0]) == CONTENTS


def test_a_sweep_whose_right_ended_removes_nothing_more(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_garbage(repository, capture, tmp_path)
    clock = FakeClock()
    paused = hold_of(repository, LeaseMode.EXCLUSIVE, clock)
    there = repository.objects.index()
    with before(monkeypatch, Storage, "remove", lambda: clock.advance(31)), pytest.raises(LeaseLostError):
        prune(repository, [], paused)
    assert len(repository.objects.index()) == len(there) - 1


def test_a_sweep_stops_when_another_has_begun(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_garbage(repository, capture, tmp_path)
    there = repository.objects.index()

    def begin() -> None:
        repository.fence.advance("other", repository.clock.now())

    with before(monkeypatch, Storage, "walk", begin), pytest.raises(TakenOverError):
        prune(repository, [], hold_of(repository, LeaseMode.EXCLUSIVE), SweepPolicy())
    assert repository.objects.index() == there


def test_backups_run_beside_each_other_and_a_sweep_alone(repository: BackupRepository) -> None:
    with repository.shared(), repository.shared(wait_s=0), pytest.raises(RepositoryBusyError) as busy:
        repository.exclusive(wait_s=0).__enter__()
    assert len(busy.value.holders) == 2
    with repository.exclusive(wait_s=0), pytest.raises(RepositoryBusyError):
        repository.shared(wait_s=0).__enter__()
    with repository.shared() as hold, pytest.raises(InvalidValueError, match="exclusive"):
        prune(repository, [], hold)


def test_the_manifest_is_the_last_thing_that_is_written(
    repository: BackupRepository, capture: TableCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    real = ManifestStore.write

    def looked(store: ManifestStore, manifest: Manifest) -> BackupRef:
        seen.append(manifest.objects().items() <= repository.objects.index().items())
        return real(store, manifest)

    monkeypatch.setattr(ManifestStore, "write", looked)
    back_up(repository, tmp_path / "t", capture)
    assert seen == [True]
