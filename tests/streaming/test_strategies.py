from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.scaling import GaugeReading, PressureLevel
from dw_platform.streaming import BackpressureStrategy, DegradationDirective, StreamingLimits
from dw_platform.streaming.depth import Positions
from dw_platform.streaming.dropping import plan_drop
from dw_platform.streaming.strategies import STRATEGIES, Action, StreamDecision

OCCUPANCY = {
    PressureLevel.NORMAL: 0.3,
    PressureLevel.WARNING: 0.75,
    PressureLevel.CRITICAL: 0.9,
    PressureLevel.SHEDDING: 0.97,
}
FIRST = DegradationDirective(batch_factor=2)
FULL = DegradationDirective(skip_enrichment=True, batch_factor=4)


def decide(
    name: str, level: PressureLevel, *, critical: bool = False, durable: bool = True, occupancy: float | None = None
) -> StreamDecision:
    filled = OCCUPANCY[level] if occupancy is None else occupancy
    reading = GaugeReading(
        subsystem="streaming.t", level=level, occupancy=filled, latest=filled, at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    strategy = STRATEGIES[BackpressureStrategy(name)]
    return strategy.decide(reading, StreamingLimits().answers(), critical=critical, durable=durable)


@pytest.mark.parametrize("name", list(BackpressureStrategy))
def test_at_normal_everything_passes_without_a_word(name: str) -> None:
    assert decide(name, PressureLevel.NORMAL) == StreamDecision(action=Action.ACCEPT, level=PressureLevel.NORMAL)


@pytest.mark.parametrize("name", list(BackpressureStrategy))
def test_at_warning_everything_passes_with_a_header(name: str) -> None:
    decision = decide(name, PressureLevel.WARNING)
    assert (decision.action, decision.delay_s) == (Action.ACCEPT, 0.0)
    assert decision.headers == {"X-Backpressure": "warning"}


def test_block_waits_only_when_the_stream_is_full() -> None:
    assert decide("block", PressureLevel.CRITICAL).action is Action.ACCEPT
    assert decide("block", PressureLevel.SHEDDING).action is Action.WAIT


def test_shed_load_delays_then_refuses_with_the_time_to_try_again() -> None:
    assert decide("shed_load", PressureLevel.CRITICAL, occupancy=0.85).delay_s == pytest.approx(0.01)
    assert decide("shed_load", PressureLevel.CRITICAL, occupancy=0.90).delay_s == pytest.approx(0.1, rel=0.01)
    assert decide("shed_load", PressureLevel.CRITICAL, occupancy=0.95).delay_s == pytest.approx(1.0)
    refused = decide("shed_load", PressureLevel.SHEDDING)
    assert (refused.action, refused.retry_after_s) == (Action.REJECT, 1.0)


def test_a_critical_stream_is_never_refused_but_waits_the_longest_delay() -> None:
    for name in ("shed_load", "adaptive"):
        decision = decide(name, PressureLevel.SHEDDING, critical=True)
        assert (decision.action, decision.delay_s) == (Action.ACCEPT, 1.0)


def test_degrade_tells_the_pipeline_to_do_less_and_slows_down_when_that_is_not_enough() -> None:
    assert decide("degrade", PressureLevel.WARNING).directive == FIRST
    critical, full = decide("degrade", PressureLevel.CRITICAL), decide("degrade", PressureLevel.SHEDDING)
    assert (critical.directive, critical.delay_s) == (FULL, 0.0)
    assert (full.action, full.directive, full.delay_s) == (Action.ACCEPT, FULL, 1.0)


def test_acknowledgement_is_relaxed_only_where_the_stream_is_not_durable() -> None:
    relaxed = decide("degrade", PressureLevel.CRITICAL, durable=False).directive
    assert relaxed is not None
    assert relaxed.relaxed_acknowledgement


def test_adaptive_does_more_the_higher_the_level() -> None:
    warning, critical = decide("adaptive", PressureLevel.WARNING), decide("adaptive", PressureLevel.CRITICAL)
    assert (warning.directive, warning.delay_s) == (FIRST, 0.0)
    assert critical.directive == FULL
    assert critical.delay_s > 0
    assert decide("adaptive", PressureLevel.SHEDDING).action is Action.REJECT


def test_drop_oldest_takes_everything_and_drops_only_when_full() -> None:
    assert not decide("drop_oldest", PressureLevel.CRITICAL).drops
    full = decide("drop_oldest", PressureLevel.SHEDDING)
    assert (full.action, full.drops, full.delay_s) == (Action.ACCEPT, True, 0.0)


def test_delays_follow_the_limits() -> None:
    limits = StreamingLimits(shortest_delay=timedelta(milliseconds=1), longest_delay=timedelta(milliseconds=5))
    assert limits.answers().longest_delay == timedelta(milliseconds=5)


PARTITIONS = st.dictionaries(
    st.integers(0, 8), st.tuples(st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 1_000)), max_size=6
)


@given(partitions=PARTITIONS, keep=st.integers(0, 3_000))
def test_a_drop_leaves_at_most_what_may_wait_and_touches_only_unread_records(
    partitions: dict[int, tuple[int, int, int]], keep: int
) -> None:
    ordered = {number: sorted(offsets) for number, offsets in partitions.items()}
    positions = Positions(
        {number: start for number, (start, _, _) in ordered.items()},
        {number: end for number, (_, _, end) in ordered.items()},
        {"g": {number: read for number, (_, read, _) in ordered.items()}},
    )
    plan = plan_drop(positions, keep)
    left = positions.depth - plan.records
    assert left <= keep or not plan.ranges
    assert positions.depth <= keep or left <= keep
    for number, (first, end) in plan.ranges.items():
        assert first == ordered[number][1]
        assert first < end <= ordered[number][2]


def test_a_group_that_never_committed_has_everything_that_is_kept_before_it() -> None:
    positions = Positions({0: 10, 1: 0}, {0: 30, 1: 5}, {"slow": {}, "quick": {0: 30, 1: 5}})
    assert (positions.lag("slow"), positions.lag("quick"), positions.depth) == (25, 0, 25)
    assert plan_drop(positions, 0).ranges == {0: (10, 30), 1: (0, 5)}
