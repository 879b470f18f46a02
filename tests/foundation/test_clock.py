import threading
from datetime import UTC, datetime, timedelta

import pytest

from dw_platform.foundation import Clock, FakeClock, InvalidValueError, SystemClock


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()], ids=["system", "fake"])
def test_wall_time_is_aware_and_in_utc(clock: Clock) -> None:
    assert clock.now().utcoffset() == timedelta(0)


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()], ids=["system", "fake"])
def test_waiting_moves_monotonic_time_by_at_least_the_seconds_asked(clock: Clock) -> None:
    before = clock.monotonic()
    assert clock.wait(threading.Event(), 0.01) is False
    assert clock.monotonic() - before >= 0.01


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()], ids=["system", "fake"])
def test_a_set_stop_ends_the_wait_at_once(clock: Clock) -> None:
    stop = threading.Event()
    stop.set()
    before = clock.monotonic()
    assert clock.wait(stop, 3600) is True
    assert clock.monotonic() - before < 3600


def test_a_stop_set_by_another_thread_cuts_the_wait_short() -> None:
    clock, stop = SystemClock(), threading.Event()
    threading.Timer(0.01, stop.set).start()
    assert clock.wait(stop, 60) is True


def test_the_fake_clock_moves_both_times_together_and_only_when_told() -> None:
    start = datetime(2030, 5, 1, tzinfo=UTC)
    clock = FakeClock(start)
    assert (clock.now(), clock.monotonic()) == (start, 0.0)
    clock.advance(90)
    assert (clock.now(), clock.monotonic()) == (start + timedelta(seconds=90), 90.0)


def test_the_fake_clock_refuses_to_go_back() -> None:
    with pytest.raises(InvalidValueError):
        FakeClock().advance(-1)
