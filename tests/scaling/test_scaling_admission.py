from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.scaling import MetricsSnapshot, PressureLevel
from dw_platform.scaling.admission import AdmissionPolicy, WorkClass, decide_admission
from dw_platform.scaling.held_runs import HeldRun, HeldRuns, held_key, in_order, runs_to_release
from dw_platform.scaling.platform_pressure import (
    PLATFORM_PRESSURE,
    PlatformPressure,
    PlatformPressurePolicy,
    next_platform_level,
)
from dw_platform.store import Entry, MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY, PRESSURE = AdmissionPolicy(), PlatformPressurePolicy()
NORMAL, WARNING, CRITICAL, SHEDDING = PressureLevel
LEVELS, CLASSES = st.sampled_from(PressureLevel), st.sampled_from(WorkClass)


def snapshot(
    occupancy: float,
    at: datetime = NOW,
    *,
    level: PressureLevel | None = None,
    node: str = "gateway@a",
    subsystem: str = "bus",
) -> MetricsSnapshot:
    entered = [own for own, bound in zip(PressureLevel, (0, 0.7, 0.85, 0.95), strict=True) if occupancy >= bound]
    return MetricsSnapshot(
        node=node, subsystem=subsystem, at=at, values={}, level=level or max(entered), occupancy=occupancy
    )


def platform(level: PressureLevel) -> PlatformPressure:
    return PlatformPressure(level=level, since=NOW - timedelta(hours=1))


@pytest.mark.parametrize(
    ("level", "waiting"),
    [
        (NORMAL, set()),
        (WARNING, {WorkClass.BACKUP, WorkClass.FULL_REFRESH, WorkClass.MAINTENANCE}),
        (CRITICAL, set(WorkClass) - {WorkClass.INGEST, WorkClass.RESTORE}),
        (SHEDDING, set(WorkClass) - {WorkClass.INGEST, WorkClass.RESTORE}),
    ],
)
def test_what_waits_at_each_level(level: PressureLevel, waiting: set[WorkClass]) -> None:
    refused = {each for each in WorkClass if not decide_admission(each, level, None, POLICY, NOW).start}
    assert refused == waiting


def test_only_shedding_tells_the_gateway_and_every_decision_says_so() -> None:
    for level in PressureLevel:
        for work_class in WorkClass:
            assert decide_admission(work_class, level, None, POLICY, NOW).shed is (level is SHEDDING)


def test_the_reason_names_the_level_that_is_waited_for_and_how_long_it_was() -> None:
    decision = decide_admission(WorkClass.BACKUP, WARNING, NOW - timedelta(minutes=90), POLICY, NOW)
    assert not decision.start
    assert "pressure is warning, backup starts at normal or below; it has waited for 1h30m" in decision.reason


def test_at_warning_the_wait_ends_and_at_critical_it_does_not() -> None:
    long_ago = NOW - POLICY.longest_wait
    assert decide_admission(WorkClass.BACKUP, WARNING, long_ago, POLICY, NOW).start
    assert not decide_admission(WorkClass.BACKUP, CRITICAL, long_ago, POLICY, NOW).start
    almost = long_ago + timedelta(seconds=1)
    assert not decide_admission(WorkClass.BACKUP, WARNING, almost, POLICY, NOW).start


@given(work_class=CLASSES, levels=st.tuples(LEVELS, LEVELS), waited=st.none() | st.integers(-100, 10**6))
def test_what_starts_under_more_pressure_also_starts_under_less(
    work_class: WorkClass, levels: tuple[PressureLevel, PressureLevel], waited: int | None
) -> None:
    since = None if waited is None else NOW - timedelta(seconds=waited)
    lower, higher = sorted(levels)
    if decide_admission(work_class, higher, since, POLICY, NOW).start:
        assert decide_admission(work_class, lower, since, POLICY, NOW).start


def test_the_worst_gauge_of_any_live_process_is_the_platforms_level_at_once() -> None:
    readings = [snapshot(0.2), snapshot(0.9, node="ingest@b", subsystem="streaming"), snapshot(0.72, node="c")]
    pressure = next_platform_level(None, readings, PRESSURE, NOW)
    assert (pressure.level, pressure.source) == (CRITICAL, "streaming on ingest@b")
    assert pressure.since == NOW


def test_a_subsystem_with_thresholds_of_its_own_counts_by_its_level() -> None:
    pressure = next_platform_level(None, [snapshot(0.4, level=SHEDDING)], PRESSURE, NOW)
    assert pressure.level is SHEDDING


def test_a_level_is_left_after_a_whole_dwell_below_its_exit_threshold() -> None:
    state = platform(WARNING)
    for second in range(0, 120, 10):
        now = NOW + timedelta(seconds=second)
        state = next_platform_level(state, [snapshot(0.5, now)], PRESSURE, now)
        assert state.level is WARNING
    now = NOW + PRESSURE.dwell
    assert next_platform_level(state, [snapshot(0.5, now)], PRESSURE, now).level is NORMAL


def test_between_exit_and_entry_the_level_stays_however_long_it_takes() -> None:
    state = platform(WARNING)
    for minute in range(60):
        now = NOW + timedelta(minutes=minute)
        state = next_platform_level(state, [snapshot(0.65, now, level=NORMAL)], PRESSURE, now)
        assert state.level is WARNING


def test_one_reading_above_begins_the_dwell_anew() -> None:
    state = platform(WARNING)
    for second, occupancy in ((0, 0.5), (60, 0.5), (110, 0.75), (120, 0.5), (200, 0.5)):
        now = NOW + timedelta(seconds=second)
        state = next_platform_level(state, [snapshot(occupancy, now)], PRESSURE, now)
    assert state.level is WARNING


def test_after_the_dwell_the_level_is_the_worst_that_was_seen_in_it() -> None:
    state = platform(SHEDDING)
    for second, occupancy in ((0, 0.5), (60, 0.86), (120, 0.5)):
        now = NOW + timedelta(seconds=second)
        state = next_platform_level(state, [snapshot(occupancy, now)], PRESSURE, now)
    assert state.level is CRITICAL


def test_a_dead_process_counts_neither_for_rising_nor_for_staying() -> None:
    old = snapshot(0.99, NOW - PRESSURE.stale_after - timedelta(seconds=1))
    assert next_platform_level(None, [old], PRESSURE, NOW).level is NORMAL
    state = next_platform_level(platform(SHEDDING), [old], PRESSURE, NOW)
    later = NOW + PRESSURE.dwell
    assert next_platform_level(state, [old], PRESSURE, later).level is NORMAL


@given(level=LEVELS, hours=st.integers(0, 1_000))
def test_without_readings_the_level_stays(level: PressureLevel, hours: int) -> None:
    state = platform(level)
    assert next_platform_level(state, None, PRESSURE, NOW + timedelta(hours=hours)) == state


@settings(deadline=None)
@given(
    looks=st.lists(
        st.tuples(st.integers(1, 90), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40)), max_size=3)),
        max_size=30,
    )
)
def test_no_level_is_left_within_the_dwell_and_every_rise_is_asked_for(
    looks: list[tuple[int, list[tuple[float, int]]]],
) -> None:
    state, now = None, NOW
    for seconds, gauges in looks:
        now += timedelta(seconds=seconds)
        readings = [snapshot(occupancy, now - timedelta(seconds=age)) for occupancy, age in gauges]
        after = next_platform_level(state, readings, PRESSURE, now)
        live = [each.level for each in readings if each.age(now) <= PRESSURE.stale_after]
        assert after.level >= max(live, default=NORMAL)
        if state is not None and after.level < state.level:
            assert state.calm_since is not None
            assert now - state.calm_since >= PRESSURE.dwell
        if state is not None and after.level > state.level:
            assert after.level in live
        state = after


@given(
    state=st.builds(
        PlatformPressure,
        level=LEVELS,
        since=st.just(NOW),
        occupancy=st.floats(0, 1),
        source=st.text(max_size=5),
        calm_since=st.none() | st.just(NOW),
        calm_level=LEVELS,
    )
)
def test_the_platforms_pressure_comes_back_from_the_store(state: PlatformPressure) -> None:
    assert PlatformPressure.decode(Entry(PLATFORM_PRESSURE, state.encode(), 1)) == state


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def held(store: MemoryStore, clock: FakeClock) -> HeldRuns:
    return HeldRuns(store, clock=clock)


def test_a_run_that_is_held_again_keeps_its_place_and_learns_the_new_reason(held: HeldRuns, clock: FakeClock) -> None:
    held.hold("backup/orders/2026-01-01", WorkClass.BACKUP, "warning", {"asset": "orders_backup"})
    clock.advance(600)
    held.hold("backup/orders/2026-01-01", WorkClass.BACKUP, "critical", {"asset": "orders_backup"})
    (run,) = held.waiting()
    assert (run.id, run.since, run.reason) == ("backup/orders/2026-01-01", NOW, "critical")
    assert run.request == {"asset": "orders_backup"}
    assert held.forget(run)
    assert not held.forget(run)
    assert held.waiting() == []


def test_a_record_that_cannot_be_read_is_replaced_when_its_run_comes_again(held: HeldRuns, store: MemoryStore) -> None:
    store.put(held_key(WorkClass.BACKUP, "b"), b"half a rec")
    assert held.waiting() == []
    held.hold("b", WorkClass.BACKUP, "warning", {})
    assert [run.id for run in held.waiting()] == ["b"]


def test_a_run_without_an_id_is_refused(held: HeldRuns) -> None:
    with pytest.raises(InvalidValueError):
        held.hold(" ", WorkClass.BACKUP, "warning", {})


RUNS = st.lists(
    st.builds(
        HeldRun,
        id=st.integers(0, 99).map(str),
        work_class=CLASSES,
        since=st.integers(0, 100_000).map(lambda seconds: NOW - timedelta(seconds=seconds)),
        reason=st.just("warning"),
    ),
    max_size=20,
)


@given(runs=RUNS, level=LEVELS, at_once=st.integers(1, 5))
def test_runs_are_released_by_class_then_age_a_few_at_once_and_only_if_they_may_start(
    runs: list[HeldRun], level: PressureLevel, at_once: int
) -> None:
    policy = replace(POLICY, release_at_once=at_once)
    released = runs_to_release(runs, level, policy, NOW)
    assert len(released) <= at_once

    def allowed(run: HeldRun) -> bool:
        return decide_admission(run.work_class, level, run.since, policy, NOW).start

    assert all(allowed(run) for run in released)
    assert released == [run for run in in_order(runs) if allowed(run)][:at_once]
    keys = [(run.work_class.rank, run.since) for run in released]
    assert keys == sorted(keys)


def test_the_order_of_release_is_the_order_of_urgency() -> None:
    runs = [HeldRun(id=each, work_class=each, since=NOW, reason="x") for each in reversed(WorkClass)]
    assert [run.work_class for run in in_order(runs)] == list(WorkClass)
    assert WorkClass.RESTORE.rank < WorkClass.BACKUP.rank < WorkClass.MAINTENANCE.rank
