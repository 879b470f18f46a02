import os
import stat
from pathlib import Path

import pytest

from dw_platform.foundation import fsync_directory, replace_file


def test_a_new_file_appears_with_its_content_and_nothing_else(tmp_path: Path) -> None:
    replace_file(tmp_path / "state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_an_existing_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "state"
    target.write_bytes(b"a longer old version")
    replace_file(target, b"new")
    assert target.read_bytes() == b"new"


def test_a_name_as_long_as_the_file_system_allows_works(tmp_path: Path) -> None:
    target = tmp_path / ("n" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    replace_file(target, b"new")
    assert target.read_bytes() == b"new"


def test_an_open_reader_keeps_the_old_version(tmp_path: Path) -> None:
    target = tmp_path / "state"
    target.write_bytes(b"old")
    with target.open("rb") as reader:
        replace_file(target, b"new")
        assert reader.read() == b"old"


def test_a_failed_sync_keeps_the_old_file_and_leaves_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "state"
    target.write_bytes(b"old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        replace_file(target, b"new")
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_the_bytes_are_synced_before_the_rename_and_the_directory_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, steps = tmp_path / "state", []
    real_fsync = os.fsync

    def watched_fsync(descriptor: int) -> None:
        steps.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), target.exists()))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    replace_file(target, b"new")
    assert steps == [(False, False), (True, True)]


def test_a_missing_parent_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "absent" / "state", b"new")


def test_only_a_directory_can_be_synced_as_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    fsync_directory(tmp_path)
    with pytest.raises(NotADirectoryError):
        fsync_directory(tmp_path / "file")
