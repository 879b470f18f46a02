"""Writers, checkpoints, log cleanup and VACUUM at work while a table is captured."""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable

from dw_platform.backup import capture as module
from dw_platform.backup.capture import capture_table
from dw_platform.backup.contents import FileKind
from dw_platform.backup.delta_errors import FilesMissingError, LogKeepsChangingError, TableForbiddenError
from dw_platform.backup.delta_listing import LogListing, list_log
from dw_platform.backup.place import Place
from tests.backup.delta_tables import HandTable, log_names, paths, removed

Listed = Callable[[Place], LogListing]


@pytest.fixture
def table(tmp_path: Path) -> HandTable:
    return HandTable(tmp_path / "table").begin().append(2)


def after_listing(monkeypatch: pytest.MonkeyPatch, *happens: Callable[[], object]) -> None:
    """Let something happen right after each of the first listings of the log."""
    left = list(happens)

    def listed(place: Place) -> LogListing:
        found = list_log(place)
        if left:
            left.pop(0)()
        return found

    monkeypatch.setattr(module, "list_log", listed)


def test_commits_and_checkpoints_after_the_listing_do_not_belong_to_the_version(
    table: HandTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        table.append()
        DeltaTable(str(table.root)).create_checkpoint()

    after_listing(monkeypatch, write)
    capture = capture_table(table.place)
    assert capture.state.version == 2
    assert log_names(capture) == [f"{version:020d}.json" for version in range(3)]


def test_log_cleanup_between_listing_and_reading_leads_to_a_newer_listing(
    table: HandTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clean() -> None:
        table.append()
        DeltaTable(str(table.root)).create_checkpoint()
        for version in range(3):
            (table.log / f"{version:020d}.json").unlink()

    after_listing(monkeypatch, clean)
    capture = capture_table(table.place)
    assert (capture.state.version, capture.state.rows) == (3, 3)
    assert log_names(capture) == [f"{3:020d}.checkpoint.parquet", f"{3:020d}.json"]


def test_a_log_that_changes_each_time_is_given_up_as_transient(
    table: HandTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = table.log / f"{1:020d}.json"
    content = hidden.read_bytes()

    def listed(place: Place) -> LogListing:
        hidden.write_bytes(content)
        found = list_log(place)
        hidden.unlink()
        return found

    monkeypatch.setattr(module, "list_log", listed)
    with pytest.raises(LogKeepsChangingError) as caught:
        capture_table(table.place)
    assert caught.value.attempts == 5


def test_a_gap_in_a_listing_that_the_next_one_does_not_have_is_no_damage(
    table: HandTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = table.log / f"{1:020d}.json"
    content = hidden.read_bytes()
    hidden.unlink()
    after_listing(monkeypatch, lambda: hidden.write_bytes(content))
    assert capture_table(table.place).state.rows == 2


def test_vacuum_of_what_was_just_removed_leads_to_the_newer_version(
    table: HandTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rewrite() -> None:
        old = {"add": {"path": "part-00001.parquet"}}
        table.commit(removed(old), table.add("merged.parquet"))
        (table.root / "part-00001.parquet").unlink()

    after_listing(monkeypatch, rewrite)
    capture = capture_table(table.place)
    assert capture.state.version == 3
    assert paths(capture, FileKind.DATA) == ["merged.parquet", "part-00002.parquet"]
    with pytest.raises(FilesMissingError, match="back up a newer version") as caught:
        capture_table(table.place, version=2)
    assert (caught.value.version, caught.value.missing) == (2, ("part-00001.parquet",))


def test_captures_beside_a_busy_writer_are_always_whole(table: HandTable) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            table.append()
            if table.version % 7 == 0:
                DeltaTable(str(table.root)).create_checkpoint()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        versions = []
        for _ in range(15):
            capture = capture_table(table.place)
            assert capture.state.rows == capture.state.files == capture.state.version
            assert len(paths(capture, FileKind.DATA)) == capture.state.version
            assert f"{capture.state.version:020d}.json" in log_names(capture)
            versions.append(capture.state.version)
    finally:
        stop.set()
        writer.join()
    assert versions == sorted(versions)


def test_a_log_that_may_not_be_read_is_the_users_to_open(table: HandTable) -> None:
    class Forbidding(pafs.LocalFileSystem):  # type: ignore[misc]
        def open_input_stream(self, *_: object, **__: object) -> object:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(TableForbiddenError, match="Grant this user"):
        capture_table(Place(Forbidding(), str(table.root)))
