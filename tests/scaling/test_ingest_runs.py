from datetime import timedelta

import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.runs import RunDecision, RunPolicy, decide_ingest_run

MINUTE = timedelta(minutes=1)


def decide(
    lag: int, *, oldest: timedelta | None = MINUTE, capacity: int = 1_000, under_way: int = 0, live: bool = False
) -> RunDecision:
    return decide_ingest_run(lag=lag, oldest=oldest, capacity=capacity, under_way=under_way, live=live)


def test_records_that_wait_get_a_run() -> None:
    assert decide(5) == RunDecision(request=True, priority=10, reason="5 records are waiting")


def test_nothing_that_waits_gets_none() -> None:
    assert not decide(0).request


def test_one_run_at_a_time_is_enough() -> None:
    decision = decide(500, under_way=1)
    assert not decision.request
    assert "a run is queued or running" in decision.reason


def test_a_live_ingest_is_left_alone_while_it_keeps_up() -> None:
    assert not decide(500, live=True, oldest=timedelta(seconds=2)).request
    assert not decide(500, live=True, oldest=None).request


def test_a_live_ingest_that_falls_behind_is_helped() -> None:
    decision = decide(500, live=True, oldest=MINUTE)
    assert decision.request
    assert "for more than 30s although a live ingest runs" in decision.reason


@pytest.mark.parametrize(("lag", "priority"), [(699, 10), (700, 100), (5_000, 100)])
def test_a_stream_whose_producers_are_warned_goes_first(lag: int, priority: int) -> None:
    assert decide(lag).priority == priority


def test_a_share_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="urgent_from"):
        RunPolicy(urgent_from=1.5)
