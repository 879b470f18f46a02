from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.fabric.damping import Flaps, Telling
from dw_platform.fabric.limits import FabricLimits

LIMITS = FabricLimits()


def tell(moments: list[float]) -> list[Telling]:
    flaps, told = Flaps(), []
    for now in moments:
        flaps, telling = flaps.noted(now, LIMITS)
        told.append(telling)
    return told


def test_a_node_that_flaps_every_20_s_is_told_six_times_then_once_as_flapping_and_then_held() -> None:
    told = tell([20.0 * number for number in range(180)])  # an hour
    assert told[:7] == [Telling.TELL] * 6 + [Telling.FLAPPING]
    assert set(told[7:]) == {Telling.HOLD}


def test_a_node_that_changes_every_few_minutes_is_always_told() -> None:
    assert set(tell([120.0 * number for number in range(100)])) == {Telling.TELL}


def test_a_flapping_node_has_settled_after_a_whole_window_without_a_change() -> None:
    flaps = Flaps()
    for now in range(0, 200, 20):
        flaps, _ = flaps.noted(float(now), LIMITS)
    assert not flaps.has_settled(180 + 599, LIMITS)
    assert flaps.has_settled(180 + 600, LIMITS)


@settings(deadline=None)
@given(st.lists(st.floats(0, 200), max_size=200))
def test_however_a_node_changes_few_events_are_told_in_any_window(gaps: list[float]) -> None:
    now, moments = 0.0, list[float]()
    for gap in gaps:
        now += gap
        moments.append(now)
    loud = [at for at, told in zip(moments, tell(moments), strict=True) if told is not Telling.HOLD]
    for start in loud:
        assert sum(start <= at < start + 600 for at in loud) <= 7
