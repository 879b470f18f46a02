import os
import threading
from collections.abc import Callable

import pytest

from dw_platform.fileio import polite_thread
from dw_platform.fileio.polite import POLITE_NICE
from dw_platform.fileio.syscalls import LOWEST_BEST_EFFORT, io_priority, set_io_priority


def on_a_thread(work: Callable[[], object]) -> None:
    """Run `work` on a thread that ends with it, because manners may stay."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised on the test's thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_polite_thread_makes_way_and_others_do_not_notice() -> None:
    before = nice()

    def work() -> None:
        with polite_thread():
            assert nice() == max(before, POLITE_NICE)
            assert io_priority(threading.get_native_id()) == LOWEST_BEST_EFFORT

    on_a_thread(work)
    assert nice() == before


def test_a_thread_that_is_more_polite_already_stays_so() -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 15)
        with polite_thread():
            assert nice() == 15
        assert nice() == 15

    on_a_thread(work)


def test_at_the_end_manners_go_back_as_far_as_the_system_allows() -> None:
    def work() -> None:
        before = nice(), io_priority(threading.get_native_id())
        with polite_thread():
            pass
        allowed = os.geteuid() == 0
        assert nice() == before[0] or not allowed
        assert io_priority(threading.get_native_id()) == before[1]

    on_a_thread(work)


def test_what_the_system_refuses_is_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("dw_platform.fileio.polite.os.setpriority", refuse)
    monkeypatch.setattr("dw_platform.fileio.polite.set_io_priority", refuse)
    done = []
    with caplog.at_level("DEBUG", logger="dw_platform.fileio.polite"):

        def work() -> None:
            with polite_thread():
                done.append(True)

        on_a_thread(work)
    assert done == [True]
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert "Operation not permitted" in {vars(record)["reason"] for record in caplog.records}


def test_the_kernel_refuses_a_priority_that_does_not_exist() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        set_io_priority(threading.get_native_id(), 7 << 13)
