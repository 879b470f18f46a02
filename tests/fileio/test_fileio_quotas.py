import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.fileio import IoLimits, QuotaExceededError, QuotaLedger
from dw_platform.foundation import FakeClock, InvalidValueError, TransientError

HOUR_S = 3_600.0


def ledger(clock: FakeClock, **limits: object) -> QuotaLedger:
    values = {"quota_longest_wait": timedelta(hours=1)} | limits
    return QuotaLedger(IoLimits(**values), clock=clock)  # type: ignore[arg-type]


def test_below_the_soft_share_nobody_waits() -> None:
    quotas = ledger(FakeClock(), quota_bytes_per_hour=1_000)
    assert quotas.admit("backup", 800).wait_s == 0
    assert quotas.used("backup") == (800, 1)


def test_above_the_soft_share_what_is_left_is_spread_over_the_rest_of_the_window() -> None:
    clock = FakeClock()
    quotas = ledger(clock, quota_bytes_per_hour=1_000)
    quotas.admit("backup", 800)
    clock.advance(HOUR_S / 2)
    # A tenth of the 200 that are left waits a tenth of the 30 minutes that are left.
    assert quotas.admit("backup", 20).wait_s == pytest.approx(HOUR_S / 20)


def test_a_caller_that_keeps_its_waits_ends_its_quota_with_its_window() -> None:
    clock = FakeClock()
    quotas = ledger(clock, quota_bytes_per_hour=1_000)
    quotas.admit("backup", 800)
    for _ in range(20):
        clock.advance(quotas.admit("backup", 10).wait_s)
    assert quotas.used("backup") == (0, 0), "the last byte was due when the window ended"
    assert clock.monotonic() == pytest.approx(HOUR_S)


def test_many_threads_of_one_caller_wait_one_behind_the_other() -> None:
    quotas = ledger(FakeClock(), quota_bytes_per_hour=1_000)
    quotas.admit("backup", 800)
    waits = [quotas.admit("backup", 50).wait_s for _ in range(4)]
    assert waits == pytest.approx([900.0, 1800.0, 2700.0, 3600.0])


def test_no_wait_is_longer_than_allowed() -> None:
    quotas = ledger(FakeClock(), quota_bytes_per_hour=1_000, quota_longest_wait=timedelta(seconds=5))
    quotas.admit("backup", 800)
    assert [quotas.admit("backup", 100).wait_s for _ in range(2)] == [5.0, 5.0]


def test_what_does_not_fit_is_refused_with_all_the_facts_and_costs_nothing() -> None:
    clock = FakeClock()
    quotas = ledger(clock, quota_bytes_per_hour=1 << 20)
    quotas.admit("backup", 1 << 19)
    clock.advance(600)
    with pytest.raises(QuotaExceededError) as error:
        quotas.admit("backup", (1 << 19) + 1)
    assert isinstance(error.value, TransientError)
    facts = error.value
    assert (facts.caller, facts.unit, facts.used, facts.limit) == ("backup", "bytes", 1 << 19, 1 << 20)
    assert facts.window_ends == clock.now() + timedelta(minutes=50)
    assert "backup has used 512.0 KiB of 1.0 MiB" in str(facts)
    assert "Try again after 2026-01-01 01:00:00 UTC" in str(facts)
    assert quotas.used("backup") == (1 << 19, 1)


def test_a_new_window_begins_with_the_first_request_after_the_last_one_ended() -> None:
    clock = FakeClock()
    quotas = ledger(clock, quota_requests_per_hour=1, quota_soft_share=1.0)
    quotas.admit("backup", 1)
    clock.advance(HOUR_S - 1)
    with pytest.raises(QuotaExceededError):
        quotas.admit("backup", 1)
    clock.advance(1_000)
    quotas.admit("backup", 1)
    clock.advance(HOUR_S - 1)
    with pytest.raises(QuotaExceededError) as error:
        quotas.admit("backup", 1)
    assert "has used 1 of 1 requests in this hour and asked for 1 more" in str(error.value)
    assert error.value.window_ends == clock.now() + timedelta(seconds=1)


def test_a_request_larger_than_a_whole_quota_is_a_mistake_that_waiting_cannot_cure() -> None:
    quotas = ledger(FakeClock(), quota_bytes_per_hour=1_000)
    with pytest.raises(InvalidValueError) as error:
        quotas.admit("backup", 1_001)
    assert error.value.field == "nbytes"


def test_callers_have_accounts_of_their_own() -> None:
    quotas = ledger(FakeClock(), quota_bytes_per_hour=100)
    quotas.admit("backup", 100)
    quotas.admit("restore", 100)
    assert quotas.used("backup") == quotas.used("restore") == (100, 1)


def test_without_a_quota_everything_fits() -> None:
    quotas = ledger(FakeClock())
    assert quotas.admit("backup", 1 << 60).wait_s == 0


def test_the_tighter_of_two_quotas_decides() -> None:
    quotas = ledger(FakeClock(), quota_bytes_per_hour=1_000_000, quota_requests_per_hour=2, quota_soft_share=1.0)
    quotas.admit("backup", 1)
    quotas.admit("backup", 1)
    with pytest.raises(QuotaExceededError) as error:
        quotas.admit("backup", 1)
    assert error.value.unit == "requests"


def test_a_lowered_quota_counts_at_once_and_what_was_used_stays_used() -> None:
    quotas = ledger(FakeClock(), quota_bytes_per_hour=1_000)
    quotas.admit("backup", 600)
    quotas.reconfigure(IoLimits(quota_bytes_per_hour=500))
    with pytest.raises(QuotaExceededError) as error:
        quotas.admit("backup", 1)
    assert (error.value.used, error.value.limit) == (600, 500)


def test_a_request_that_was_never_begun_is_given_back_unless_its_window_is_over() -> None:
    clock = FakeClock()
    quotas = ledger(clock, quota_bytes_per_hour=100)
    first = quotas.admit("backup", 60)
    quotas.refund(first)
    assert quotas.used("backup") == (0, 0)
    old = quotas.admit("backup", 60)
    clock.advance(HOUR_S)
    quotas.admit("backup", 70)
    quotas.refund(old)
    assert quotas.used("backup") == (70, 1)


def test_callers_whose_hour_is_over_are_forgotten_when_there_are_many() -> None:
    clock = FakeClock()
    quotas = ledger(clock)
    for number in range(2_000):
        quotas.admit(f"old {number}", 1)
    clock.advance(HOUR_S)
    quotas.admit("new", 1)
    assert list(quotas._windows) == ["new"]


@given(
    steps=st.lists(st.tuples(st.integers(0, 300), st.floats(0, 900)), max_size=60),
    soft=st.floats(0.1, 1.0),
)
def test_no_window_ever_holds_more_than_the_quota_and_waits_are_never_negative(
    steps: list[tuple[int, float]], soft: float
) -> None:
    clock = FakeClock()
    quotas = ledger(clock, quota_bytes_per_hour=1_000, quota_soft_share=soft)
    windows = dict[float, int]()
    for nbytes, pause_s in steps:
        clock.advance(pause_s)
        if quotas.used("backup")[0] + nbytes > 1_000:
            with pytest.raises(QuotaExceededError):
                quotas.admit("backup", nbytes)
            continue
        charge = quotas.admit("backup", nbytes)
        windows[charge.window_ends_s] = windows.get(charge.window_ends_s, 0) + nbytes
        assert 0 <= charge.wait_s <= charge.window_ends_s - clock.monotonic() + 1e-6
    assert all(used <= 1_000 for used in windows.values())


def test_threads_together_never_get_more_than_the_quota() -> None:
    quotas, refused = ledger(FakeClock(), quota_requests_per_hour=500), list[int]()

    def spend() -> None:
        for number in range(200):
            try:
                quotas.admit("backup", 1)
            except QuotaExceededError:
                refused.append(number)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert quotas.used("backup") == (500, 500)
    assert len(refused) == 300
