"""Writing files back: whole or not at all, whatever happens on the way."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dw_platform.backup.contents import FileKind, SourceFile, StoredFile
from dw_platform.backup.delta_errors import TableForbiddenError, TableStorageError
from dw_platform.backup.place import Place
from dw_platform.backup.restore_errors import RestoredBytesDifferError
from dw_platform.backup.restore_files import holds, restore_file
from dw_platform.backup.restore_plan import plan_restore
from dw_platform.backup.restore_target import existing_files
from tests.backup.delta_tables import bucket

CONTENT = bytes(range(256)) * 20
LOG_TIME_NS = 1_600_000_000_123_456_789


def entry(path: str, content: bytes = CONTENT) -> StoredFile:
    kind = FileKind.LOG if path.startswith("_delta_log/") else FileKind.DATA
    digest = hashlib.sha256(content).hexdigest()
    source = SourceFile(path=path, kind=kind, size=len(content), mtime_ns=LOG_TIME_NS)
    return StoredFile(source=source, sha256=digest, object_name=digest, object_size=len(content))


def pieces(content: bytes = CONTENT) -> Iterator[bytes]:
    yield from (content[start : start + 700] for start in range(0, len(content), 700))


@pytest.fixture(params=["disk", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place.at(tmp_path / "target") if request.param == "disk" else bucket(tmp_path)[0]


def everything(target: Place) -> dict[str, int]:
    return dict(existing_files(target))


def test_a_file_is_there_with_its_bytes(target: Place) -> None:
    made = entry("p=a b%20/ü.parquet")
    assert not holds(made, target, job="j")
    restore_file(made, pieces(), target, job="j")
    assert everything(target) == {"p=a b%20/ü.parquet": len(CONTENT)}
    assert holds(made, target, job="j")


def test_an_empty_file_is_a_file(target: Place) -> None:
    restore_file(entry("x", b""), iter(()), target, job="j")
    assert everything(target) == {"x": 0}


@pytest.mark.parametrize("wrong", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x", b""])
def test_nothing_stays_of_bytes_that_are_not_those_of_the_backup(target: Place, wrong: bytes) -> None:
    with pytest.raises(RestoredBytesDifferError) as caught:
        restore_file(entry("d/x"), pieces(wrong), target, job="j")
    assert caught.value.path == "d/x"
    assert everything(target) == {}


def test_nothing_stays_when_the_backup_cannot_be_read_to_the_end(target: Place) -> None:
    def torn() -> Iterator[bytes]:
        yield CONTENT[:2000]
        raise RuntimeError("the object is gone")

    with pytest.raises(RuntimeError, match="the object is gone"):
        restore_file(entry("d/x"), torn(), target, job="j")
    assert everything(target) == {}


def test_wrong_bytes_leave_what_was_there_before_on_a_disk(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(RestoredBytesDifferError):
        restore_file(entry("x"), pieces(b"wrong"), Place.at(tmp_path), job="j")
    assert (tmp_path / "x").read_bytes() == b"old"


def test_files_of_the_log_keep_their_time_and_data_files_do_not(tmp_path: Path) -> None:
    target = Place.at(tmp_path)
    log, data = entry("_delta_log/0.json"), entry("x.parquet")
    for each in (log, data):
        restore_file(each, pieces(), target, job="j")
    waiting = tmp_path / "_delta_log.dw-j/0.json"
    assert waiting.stat().st_mtime_ns == LOG_TIME_NS
    assert (tmp_path / "x.parquet").stat().st_mtime_ns > LOG_TIME_NS
    waiting.touch()
    assert holds(log, target, job="j")
    assert waiting.stat().st_mtime_ns == LOG_TIME_NS


def test_a_file_of_the_right_size_is_kept_only_if_its_bytes_are_right(target: Place) -> None:
    same, other, absent = entry("same"), entry("other"), entry("absent")
    restore_file(same, pieces(), target, job="j")
    swapped = entry("other", CONTENT[::-1])
    restore_file(swapped, pieces(CONTENT[::-1]), target, job="j")
    plan = plan_restore([same, other, absent], existing_files(target), job="j")
    assert [each.source.path for each in plan.write] == ["absent"]
    kept = {each.source.path: holds(each, target, job="j") for each in plan.check}
    assert kept == {"same": True, "other": False}


def test_every_write_and_every_comparison_passes_the_gate(target: Place) -> None:
    admitted = []

    @contextmanager
    def gate(size: int) -> Iterator[None]:
        admitted.append(size)
        yield

    restore_file(entry("x"), pieces(), target, job="j", gate=gate)
    assert sum(admitted) == len(CONTENT)
    admitted.clear()
    holds(entry("x"), target, job="j", gate=gate)
    assert len(admitted) == 2


def test_a_disk_that_refuses_says_so_as_the_storage_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"a file where a folder has to be")
    with pytest.raises(TableStorageError, match="cannot be read or written"):
        restore_file(entry("d/x"), pieces(), Place.at(tmp_path), job="j")


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dw_platform.backup.restore_files.os.fsync", full)
    with pytest.raises(TableStorageError, match="No space left"):
        restore_file(entry("d/x"), pieces(), Place.at(tmp_path), job="j")
    assert everything(Place.at(tmp_path)) == {}

    def refused(_descriptor: int) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr("dw_platform.backup.restore_files.os.fsync", refused)
    with pytest.raises(TableForbiddenError):
        restore_file(entry("d/x"), pieces(), Place.at(tmp_path), job="j")
