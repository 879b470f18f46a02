import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureChanged, PressureGauge, PressureLevel, PressureThresholds

NORMAL, WARNING, CRITICAL, SHEDDING = PressureLevel
SAMPLES = st.lists(st.floats(0, 1), min_size=1, max_size=40)
EARLY = PressureThresholds(
    warning=0.2, critical=0.4, shedding=0.95, warning_exit=0.1, critical_exit=0.3, shedding_exit=0.9
)


def gauge(clock: FakeClock | None = None, *, alpha: float = 0.3) -> PressureGauge:
    return PressureGauge("bus", clock=clock or FakeClock(), alpha=alpha)


def changes_of(observed: PressureGauge) -> list[PressureChanged]:
    heard: list[PressureChanged] = []
    observed.on_change(heard.append)
    return heard


def test_before_the_first_sample_the_gauge_reads_normal_and_empty() -> None:
    reading = gauge().reading()
    assert (reading.subsystem, reading.level, reading.occupancy) == ("bus", NORMAL, 0.0)


def test_a_change_of_level_is_announced_once_with_the_name_of_the_subsystem() -> None:
    clock = FakeClock()
    observed = gauge(clock)
    heard = changes_of(observed)
    observed.observe(0.5)
    clock.advance(5)
    observed.observe(0.96)
    observed.observe(0.96)
    assert heard == [
        PressureChanged(subsystem="bus", before=NORMAL, after=SHEDDING, occupancy=0.96, at=clock.now()),
    ]


def test_a_short_spike_below_shedding_is_smoothed_away() -> None:
    observed = gauge()
    heard = changes_of(observed)
    for sample in (0.5, 0.94, 0.5, 0.5):
        observed.observe(sample)
    assert heard == []


def test_a_full_queue_counts_at_once_and_is_left_step_by_step() -> None:
    observed = gauge()
    levels = [observed.observe(sample).level for sample in (0.1, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5)]
    assert levels == [NORMAL, SHEDDING, CRITICAL, WARNING, WARNING, WARNING, NORMAL]


def test_fuller_than_full_is_read_as_full() -> None:
    assert gauge().observe(30.0).occupancy == 1.0


@pytest.mark.parametrize("sample", [math.nan, math.inf, -0.1])
def test_a_sample_that_is_no_fraction_is_refused_and_forgotten(sample: float) -> None:
    observed = gauge()
    before = observed.observe(0.8)
    with pytest.raises(InvalidValueError):
        observed.observe(sample)
    assert observed.reading() == before


@given(start=st.sampled_from(PressureLevel), data=st.data())
def test_the_level_does_not_flap_while_samples_stay_inside_its_band(start: PressureLevel, data: st.DataObject) -> None:
    observed = gauge()
    first = {NORMAL: 0.5, WARNING: 0.75, CRITICAL: 0.9, SHEDDING: 1.0}[start]
    assert observed.observe(first).level is start
    heard = changes_of(observed)
    ceiling = {NORMAL: 0.69, WARNING: 0.84, CRITICAL: 0.94, SHEDDING: 1.0}[start]
    for sample in data.draw(st.lists(st.floats(DEFAULT_THRESHOLDS.leave(start) + 1e-9, ceiling), max_size=40)):
        observed.observe(sample)
    assert heard == []


@given(pairs=st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64)), max_size=40))
def test_a_gauge_that_always_sees_more_never_reads_less(pairs: list[tuple[int, int]]) -> None:
    # Halves of 64ths are exact in binary for 40 steps, so rounding has no say in this.
    low, high = gauge(alpha=0.5), gauge(alpha=0.5)
    for pair in pairs:
        one, other = low.observe(min(pair) / 64), high.observe(max(pair) / 64)
        assert one.occupancy <= other.occupancy
        assert one.level <= other.level


@given(samples=SAMPLES)
def test_the_announced_changes_form_one_chain_that_ends_at_the_reading(samples: list[float]) -> None:
    observed = gauge()
    heard = changes_of(observed)
    for sample in samples:
        observed.observe(sample)
    levels = [NORMAL, *(change.after for change in heard)]
    assert [change.before for change in heard] == levels[:-1]
    assert levels[-1] is observed.reading().level


def test_new_thresholds_judge_the_current_occupancy_at_once() -> None:
    observed = gauge()
    observed.observe(0.5)
    heard = changes_of(observed)
    assert observed.reconfigure(EARLY).level is CRITICAL
    assert [(change.before, change.after) for change in heard] == [(NORMAL, CRITICAL)]


def test_a_refused_alpha_leaves_thresholds_and_smoothing_as_they_were() -> None:
    observed = gauge()
    observed.observe(0.5)
    with pytest.raises(InvalidValueError):
        observed.reconfigure(EARLY, alpha=math.nan)
    assert observed.reading().level is NORMAL
    assert observed.observe(0.9).occupancy == pytest.approx(0.62)


def test_alpha_can_be_changed_without_losing_the_average() -> None:
    observed = gauge()
    observed.observe(0.2)
    observed.reconfigure(DEFAULT_THRESHOLDS, alpha=0.5)
    assert observed.observe(0.6).occupancy == pytest.approx(0.4)


def test_a_listener_may_use_the_gauge_and_hears_its_own_change_afterwards() -> None:
    observed = gauge()
    heard: list[PressureLevel] = []

    def drain_when_full(change: PressureChanged) -> None:
        heard.append(change.after)
        if change.after is SHEDDING:
            observed.reconfigure(DEFAULT_THRESHOLDS, alpha=1.0)
            observed.observe(0.0)

    observed.on_change(drain_when_full)
    observed.observe(1.0)
    assert heard == [SHEDDING, NORMAL]


def test_threads_that_observe_together_announce_one_unbroken_chain() -> None:
    observed = gauge(alpha=1.0)
    heard = changes_of(observed)
    together = threading.Barrier(4)

    def flip(_: int) -> None:
        together.wait()
        for turn in range(300):
            observed.observe(float(turn % 2))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(flip, range(4)))
    levels = [NORMAL, *(change.after for change in heard)]
    assert len(heard) > 1
    assert [change.before for change in heard] == levels[:-1]
    assert levels[-1] is observed.reading().level
