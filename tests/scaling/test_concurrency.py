from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.concurrency import (
    ConcurrencyDecision,
    ConcurrencyPolicy,
    Follow,
    LatencyTrail,
    decide_concurrency,
)

FOUR_DISKS = ConcurrencyPolicy.for_disks(4)
BY_LATENCY = ConcurrencyPolicy.for_disks(4, follow=Follow.LATENCY)


def walk(
    policy: ConcurrencyPolicy, utilisation_at: Callable[[int], float], steps: int = 60, start: int = 1
) -> list[int]:
    """Return the limits that a device with that utilisation at each limit leads to."""
    limits = [start]
    for _ in range(steps):
        decision = decide_concurrency(limits[-1], utilisation=utilisation_at(limits[-1]), policy=policy)
        limits.append(decision.limit)
    return limits


def walk_by_latency(service_ms: float, lanes: int, steps: int = 200, start: int = 1) -> list[int]:
    """Return the limits on a device that serves `lanes` requests of 1 MB at once, each in `service_ms`."""
    limits, trail = [start], LatencyTrail()
    for _ in range(steps):
        limit = limits[-1]
        await_ms = service_ms * max(1.0, limit / lanes)
        trail = trail.after(limit, await_ms=await_ms, bytes_per_s=limit * 1e9 / await_ms)
        decision = decide_concurrency(limit, utilisation=1.0, policy=BY_LATENCY, latency=trail)
        limits.append(decision.limit)
    return limits


def test_an_idle_disk_gets_one_more_and_a_busy_one_loses_one() -> None:
    assert decide_concurrency(3, utilisation=0.59, policy=FOUR_DISKS) == ConcurrencyDecision(4, "59% busy, below 60%")
    assert decide_concurrency(3, utilisation=0.81, policy=FOUR_DISKS) == ConcurrencyDecision(2, "81% busy, above 80%")


@given(current=st.integers(1, 16), utilisation=st.floats(0.6, 0.8))
def test_nothing_changes_inside_the_band(current: int, utilisation: float) -> None:
    assert decide_concurrency(current, utilisation=utilisation, policy=FOUR_DISKS).limit == current


def test_the_bounds_are_one_and_four_times_the_disks_and_the_reason_says_so() -> None:
    assert decide_concurrency(16, utilisation=0.0, policy=FOUR_DISKS).limit == 16
    assert "16 is the most" in decide_concurrency(16, utilisation=0.0, policy=FOUR_DISKS).reason
    assert decide_concurrency(1, utilisation=1.0, policy=FOUR_DISKS).limit == 1
    assert "1 is the least" in decide_concurrency(1, utilisation=1.0, policy=FOUR_DISKS).reason


def test_a_machine_without_visible_disks_counts_as_one_with_one() -> None:
    assert ConcurrencyPolicy.for_disks(0).ceiling == ConcurrencyPolicy.for_disks(1).ceiling == 4


def test_a_limit_outside_the_bounds_comes_back_at_once() -> None:
    assert decide_concurrency(40, utilisation=0.7, policy=FOUR_DISKS).limit == 16
    assert decide_concurrency(0, utilisation=1.0, policy=FOUR_DISKS).limit == 1


def test_what_is_not_known_changes_nothing() -> None:
    decision = decide_concurrency(5, utilisation=None, policy=FOUR_DISKS)
    assert decision.limit == 5
    assert "not known" in decision.reason


def test_a_utilisation_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidValueError):
        decide_concurrency(5, utilisation=float("nan"), policy=FOUR_DISKS)


TRAILS = st.builds(
    LatencyTrail,
    limit=st.integers(1, 70),
    await_ms=st.floats(0.01, 1e4),
    bytes_per_s=st.floats(0, 1e10),
    best_await_ms=st.floats(0.01, 1e4),
    other_limit=st.integers(0, 70),
    other_bytes_per_s=st.floats(0, 1e10),
)


@given(
    current=st.integers(-5, 70),
    disks=st.integers(0, 16),
    utilisation=st.none() | st.floats(0, 2),
    follow=st.sampled_from(Follow),
    trail=st.none() | TRAILS,
)
def test_bounds_always_hold_every_step_is_one_and_every_decision_has_a_reason(
    current: int, disks: int, utilisation: float | None, follow: Follow, trail: LatencyTrail | None
) -> None:
    policy = ConcurrencyPolicy.for_disks(disks, follow=follow)
    decision = decide_concurrency(current, utilisation=utilisation, policy=policy, latency=trail)
    assert 1 <= decision.limit <= 4 * max(disks, 1)
    if policy.floor <= current <= policy.ceiling:
        assert abs(decision.limit - current) <= 1
    assert decision.reason


@given(share=st.floats(0.01, 1.0), start=st.integers(1, 16))
def test_utilisation_settles_on_a_device_that_each_copy_fills_by_a_share_and_moves_by_one_at_most(
    share: float, start: int
) -> None:
    settled = walk(FOUR_DISKS, lambda limit: min(1.0, limit * share), start=start)[-20:]
    assert max(settled) - min(settled) <= 1
    # One copy less would be below the band, or at the floor: the device is not left idle.
    assert min(settled) == 16 or min(1.0, (min(settled) + 1) * share) >= FOUR_DISKS.grow_below


@given(service_ms=st.floats(0.05, 20), lanes=st.integers(1, 16), start=st.integers(1, 16))
def test_latency_fills_the_lanes_of_a_parallel_device_and_then_rests(service_ms: float, lanes: int, start: int) -> None:
    limits = walk_by_latency(service_ms, lanes, start=1)
    assert max(limits[-40:]) - min(limits[-40:]) <= 1
    assert min(limits[-40:]) >= min(lanes, BY_LATENCY.ceiling)
    assert max(limits[-40:]) <= lanes + BY_LATENCY.queue_high + 1
    assert all(abs(after - before) <= 1 for before, after in pairwise(walk_by_latency(service_ms, lanes, start=start)))


def test_latency_goes_on_where_utilisation_turns_back() -> None:
    eight_lanes = walk_by_latency(0.13, 8)
    assert eight_lanes[-1] >= 8
    # The same device looks 72 % busy with one reader and 86 % with two.
    assert walk(FOUR_DISKS, lambda limit: 0.72 if limit == 1 else 0.86)[-1] <= 2


def test_latency_shrinks_when_others_load_the_device() -> None:
    trail = LatencyTrail().after(8, await_ms=0.2, bytes_per_s=9e8).after(8, await_ms=2.0, bytes_per_s=4e8)
    decision = decide_concurrency(8, utilisation=0.5, policy=BY_LATENCY, latency=trail)
    assert decision.limit == 7
    assert "2.00 ms against 0.20 ms at best" in decision.reason


def test_latency_stops_growing_when_the_last_growth_brought_nothing() -> None:
    trail = LatencyTrail().after(3, await_ms=0.2, bytes_per_s=5e8).after(4, await_ms=0.21, bytes_per_s=5.1e8)
    decision = decide_concurrency(4, utilisation=0.1, policy=BY_LATENCY, latency=trail)
    assert decision.limit == 4
    assert "brought no throughput" in decision.reason
    paid = trail.after(4, await_ms=0.21, bytes_per_s=6e8)
    assert decide_concurrency(4, utilisation=0.1, policy=BY_LATENCY, latency=paid).limit == 5


def test_without_a_reading_at_this_limit_latency_falls_back_to_utilisation() -> None:
    stale = LatencyTrail().after(3, await_ms=0.2, bytes_per_s=5e8)
    for trail in (None, LatencyTrail(), stale):
        assert decide_concurrency(4, utilisation=0.9, policy=BY_LATENCY, latency=trail).limit == 3


def test_a_quiet_device_teaches_nothing() -> None:
    trail = LatencyTrail().after(3, await_ms=0.2, bytes_per_s=5e8)
    assert trail.after(3, await_ms=0.0, bytes_per_s=0.0) == trail
    assert trail.after(4, await_ms=float("nan"), bytes_per_s=1.0) == trail


def test_a_device_that_became_slower_for_good_is_not_held_to_its_old_time_for_ever() -> None:
    trail = LatencyTrail().after(4, await_ms=1.0, bytes_per_s=4e8)
    for _ in range(400):
        trail = trail.after(4, await_ms=10.0, bytes_per_s=4e7)
    assert trail.best_await_ms == pytest.approx(10.0)


@given(trail=TRAILS)
def test_a_trail_survives_a_cursor(trail: LatencyTrail) -> None:
    assert LatencyTrail.from_json(trail.to_json()) == trail


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"limit": "x"}', '{"unknown": 1}', '{"await_ms": -1}'])
def test_a_damaged_trail_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        LatencyTrail.from_json(text)
    assert error.value.field == "trail"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"floor": 0}, "floor"),
        ({"ceiling": 0}, "ceiling"),
        ({"floor": 5}, "floor"),
        ({"grow_below": 0.8}, "grow_below"),
        ({"shrink_above": 1.1}, "shrink_above"),
        ({"queue_low": 3.5}, "queue_low"),
        ({"least_gain": -0.1}, "least_gain"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_built(wrong: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        ConcurrencyPolicy(**wrong)  # type: ignore[arg-type]
    assert error.value.field == field
