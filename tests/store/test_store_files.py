import fcntl
import os
from pathlib import Path

import pytest

from dw_platform.store import FileStore, StoreUnavailableError, StoreUnusableError, entry_file
from dw_platform.store.entry_file import file_name


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def file_of(tmp_path: Path, key: str) -> Path:
    return tmp_path / "store" / "entries" / file_name(key)


@pytest.mark.parametrize("position", [0, 5, 12, 20, 24, 27, -1])
def test_a_damaged_file_is_named_and_not_taken_for_a_missing_key(
    store: FileStore, tmp_path: Path, position: int
) -> None:
    store.put("key", b"value")
    path = file_of(tmp_path, "key")
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)
    for fresh in (store, FileStore(tmp_path / "store")):
        with pytest.raises(StoreUnusableError) as caught:
            fresh.get("key")
        assert str(path) in caught.value.reason
        with pytest.raises(StoreUnusableError):
            fresh.list("")


@pytest.mark.parametrize("length", [0, 3, 20, 27, 30])
def test_a_file_that_was_cut_off_is_damaged(store: FileStore, tmp_path: Path, length: int) -> None:
    store.put("key", b"value")
    os.truncate(file_of(tmp_path, "key"), length)
    with pytest.raises(StoreUnusableError):
        store.get("key")


def test_a_file_under_the_wrong_name_is_damaged(store: FileStore, tmp_path: Path) -> None:
    store.put("key", b"value")
    file_of(tmp_path, "key").rename(file_of(tmp_path, "other"))
    with pytest.raises(StoreUnusableError, match="belongs in"):
        store.get("other")


def test_a_damaged_floor_stops_creation_instead_of_reusing_versions(store: FileStore, tmp_path: Path) -> None:
    store.put("key", b"value")
    store.delete("key")
    (tmp_path / "store" / "floor").write_text("?")
    with pytest.raises(StoreUnusableError, match="floor"):
        store.put("key", b"value")


def test_opening_removes_what_a_dead_writer_left(store: FileStore, tmp_path: Path) -> None:
    entry = store.put("key", b"value")
    leftovers = [tmp_path / "store" / ".0123.tmp", tmp_path / "store" / "entries" / ".4567.tmp"]
    for leftover in leftovers:
        leftover.write_bytes(b"half")
    assert store.list("") == [entry]
    assert FileStore(tmp_path / "store").list("") == [entry]
    assert not any(leftover.exists() for leftover in leftovers)


def test_files_of_others_are_left_alone(store: FileStore, tmp_path: Path) -> None:
    stranger = tmp_path / "store" / "entries" / "README"
    stranger.write_text("not an entry")
    assert store.list("") == []
    assert stranger.exists()


def test_a_write_returns_after_file_and_directory_are_on_disk(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path / "store")))

    monkeypatch.setattr(os, "fsync", record)
    store.put("key", b"value")
    assert [Path(name).suffix for name in synced] == [".tmp", ""]
    assert synced[1] == "entries"
    synced.clear()
    store.delete("key")
    # The floor is safe before the entry goes, or a crash in between could bring its version back.
    assert [Path(name).suffix for name in synced] == [".tmp", "", ""]
    assert synced[1:] == [".", "entries"]


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", lock_timeout_s=0.05)
    entry = store.put("key", b"value")
    with (tmp_path / "store" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for call in (lambda: store.put("key", b"other"), lambda: store.list(""), lambda: store.delete("key")):
            with pytest.raises(StoreUnavailableError, match="stayed locked"):
                call()
        assert store.get("key") == entry
    assert store.put("key", b"other").version == 2


def test_listing_versions_reads_no_values(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("key", b"value")

    def refuse(path: Path) -> None:
        raise AssertionError(path)

    monkeypatch.setattr("dw_platform.store.files.read_entry", refuse)
    assert store.list_versions("") == store.versions_of(["key"]) == {"key": 1}


def test_a_page_reads_only_its_own_values(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        store.put(f"key {number}", b"value")
    read: list[Path] = []

    def watch(path: Path) -> object:
        read.append(path)
        return entry_file.read_entry(path)

    monkeypatch.setattr("dw_platform.store.files.read_entry", watch)
    assert len(store.list("key", after="key 3", limit=2)) == 2
    assert len(read) == 2


def test_a_deletion_by_another_process_disappears_from_the_listing(store: FileStore, tmp_path: Path) -> None:
    store.put("a", b"value")
    store.put("b", b"value")
    assert list(store.list_versions("")) == ["a", "b"]
    FileStore(tmp_path / "store").delete("a")
    assert list(store.list_versions("")) == ["b"]
    assert len(store._keys) == 1
