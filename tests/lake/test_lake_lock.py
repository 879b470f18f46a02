import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from dw_platform.lake.location import LakeNotWritableError, TableLocation
from dw_platform.lake.lock import FileTableLock, LeaseTableLock, TableBusyError, TableLock, table_lock
from dw_platform.lake.settings import S3Settings
from dw_platform.store import MemoryStore
from tests.lake.workers import answer, started, tell

LockMaker = Callable[[], TableLock]


@pytest.fixture(params=["file", "lease"])
def make_lock(request: pytest.FixtureRequest, tmp_path: Path) -> LockMaker:
    """Two locks from it guard the same table, as in two processes."""
    store = MemoryStore()
    if request.param == "file":
        return lambda: FileTableLock(tmp_path)
    return lambda: LeaseTableLock("s3://bucket/t", store, owner="test")


def test_shared_holders_stand_side_by_side(make_lock: LockMaker) -> None:
    with make_lock().shared(), make_lock().shared(timeout_s=0):
        pass


def test_an_exclusive_holder_keeps_everybody_out(make_lock: LockMaker) -> None:
    with make_lock().exclusive():
        for attempt in (make_lock().shared(timeout_s=0), make_lock().exclusive(timeout_s=0)):
            with pytest.raises(TableBusyError, match="Nothing was committed"), attempt:
                pass
    with make_lock().exclusive(timeout_s=0):
        pass


def test_a_shared_holder_keeps_an_exclusive_one_out(make_lock: LockMaker) -> None:
    with make_lock().shared(), pytest.raises(TableBusyError) as caught, make_lock().exclusive(timeout_s=0.05):
        pass
    assert caught.value.waited_s == 0.05


def test_an_error_inside_releases_the_lock(make_lock: LockMaker) -> None:
    for hold in (make_lock().shared, make_lock().exclusive):
        with pytest.raises(ZeroDivisionError), hold():
            raise ZeroDivisionError
    with make_lock().exclusive(timeout_s=0):
        pass


@pytest.mark.parametrize(("busy_mode", "waiting_mode"), [("shared", "exclusive"), ("exclusive", "shared")])
def test_a_waiter_gets_in_although_the_others_never_pause(
    make_lock: LockMaker, busy_mode: str, waiting_mode: str
) -> None:
    stop = threading.Event()

    def hold_again_and_again() -> None:
        while not stop.is_set():
            with getattr(make_lock(), busy_mode)():
                time.sleep(0.02)  # as long as a commit takes, so that shared holders always overlap

    threads = [threading.Thread(target=hold_again_and_again) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            with getattr(make_lock(), waiting_mode)(timeout_s=20):
                pass
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_increments_under_the_exclusive_lock_are_never_lost(make_lock: LockMaker) -> None:
    count = 0

    def increment() -> None:
        nonlocal count
        for _ in range(5):
            with make_lock().exclusive():
                seen = count
                time.sleep(0.001)
                count = seen + 1

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == 20


def busy(attempt: AbstractContextManager[None]) -> bool:
    try:
        with attempt:
            return False
    except TableBusyError:
        return True


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    lock = FileTableLock(tmp_path)
    for mode in ("exclusive", "shared"):
        with started("hold", mode, tmp_path) as holder:
            tell(holder)
            assert answer(holder) == "held"
            assert busy(lock.exclusive(timeout_s=0))
            holder.kill()
            holder.wait()
            assert not busy(lock.exclusive(timeout_s=5))


def test_a_killed_process_that_waited_for_the_lock_leaves_the_way_free(tmp_path: Path) -> None:
    lock = FileTableLock(tmp_path)
    with lock.shared(), started("hold", "exclusive", tmp_path) as waiter:
        tell(waiter)
        # The waiter closes the gate: from then on nobody new gets in.
        deadline = time.monotonic() + 30
        while not busy(lock.shared(timeout_s=0)):
            assert time.monotonic() < deadline
        waiter.kill()
        waiter.wait()
        assert not busy(lock.shared(timeout_s=5))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(LakeNotWritableError), FileTableLock(tmp_path / "missing").shared():
        pass


def test_local_tables_are_locked_by_files_and_shared_storage_by_leases(tmp_path: Path) -> None:
    local, remote = TableLocation(str(tmp_path), S3Settings()), TableLocation("s3://bucket/t", S3Settings())
    assert isinstance(table_lock(local, MemoryStore(), owner="me"), FileTableLock)
    assert isinstance(table_lock(remote, MemoryStore(), owner="me"), LeaseTableLock)
