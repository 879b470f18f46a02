import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureLevel, PressureThresholds, next_level

NORMAL, WARNING, CRITICAL, SHEDDING = PressureLevel
LEVELS = st.sampled_from(PressureLevel)
OCCUPANCY = st.floats(0, 1)


@st.composite
def thresholds(draw: st.DrawFn) -> PressureThresholds:
    enter = sorted(draw(st.lists(st.floats(0.01, 1), min_size=3, max_size=3, unique=True)))
    leave = sorted(level * draw(st.floats(0.1, 0.999)) for level in enter)
    assume(leave[0] < leave[1] < leave[2])
    return PressureThresholds(
        warning=enter[0],
        critical=enter[1],
        shedding=enter[2],
        warning_exit=leave[0],
        critical_exit=leave[1],
        shedding_exit=leave[2],
    )


@pytest.mark.parametrize(
    ("occupancy", "expected"),
    [
        (0.0, NORMAL),
        (0.699, NORMAL),
        (0.70, WARNING),
        (0.849, WARNING),
        (0.85, CRITICAL),
        (0.949, CRITICAL),
        (0.95, SHEDDING),
        (1.0, SHEDDING),
        (17.0, SHEDDING),
    ],
)
def test_from_normal_the_enter_thresholds_decide_and_levels_may_be_jumped(
    occupancy: float, expected: PressureLevel
) -> None:
    assert next_level(NORMAL, occupancy, DEFAULT_THRESHOLDS) is expected


@pytest.mark.parametrize(
    ("occupancy", "expected"),
    [
        (0.90, SHEDDING),
        (0.899, CRITICAL),
        (0.75, CRITICAL),
        (0.749, WARNING),
        (0.60, WARNING),
        (0.599, NORMAL),
        (0.0, NORMAL),
    ],
)
def test_on_the_way_down_each_level_lasts_until_its_exit_threshold(occupancy: float, expected: PressureLevel) -> None:
    assert next_level(SHEDDING, occupancy, DEFAULT_THRESHOLDS) is expected


@given(start=LEVELS, limits=thresholds(), data=st.data())
def test_a_level_never_changes_while_occupancy_stays_between_its_exit_and_the_next_enter(
    start: PressureLevel, limits: PressureThresholds, data: st.DataObject
) -> None:
    ceiling = 1.0 if start is SHEDDING else limits.enter(PressureLevel(start + 1))
    band = st.floats(limits.leave(start), ceiling, exclude_max=start is not SHEDDING)
    for occupancy in data.draw(st.lists(band, max_size=20)):
        assert next_level(start, occupancy, limits) is start


@given(current=LEVELS, occupancy=OCCUPANCY, limits=thresholds())
def test_a_steady_occupancy_settles_after_one_step(
    current: PressureLevel, occupancy: float, limits: PressureThresholds
) -> None:
    settled = next_level(current, occupancy, limits)
    assert next_level(settled, occupancy, limits) is settled


@given(levels=st.tuples(LEVELS, LEVELS), occupancies=st.tuples(OCCUPANCY, OCCUPANCY), limits=thresholds())
def test_more_occupancy_or_a_higher_level_before_never_gives_a_lower_level(
    levels: tuple[PressureLevel, PressureLevel], occupancies: tuple[float, float], limits: PressureThresholds
) -> None:
    lower = next_level(min(levels), min(occupancies), limits)
    higher = next_level(max(levels), max(occupancies), limits)
    assert lower <= higher


@given(current=LEVELS, limits=thresholds())
def test_empty_is_always_normal_and_full_is_always_shedding(current: PressureLevel, limits: PressureThresholds) -> None:
    assert next_level(current, 0.0, limits) is NORMAL
    assert next_level(current, 1.0, limits) is SHEDDING


@pytest.mark.parametrize("occupancy", [math.nan, math.inf, -0.01])
def test_an_occupancy_that_is_no_fraction_is_refused(occupancy: float) -> None:
    with pytest.raises(InvalidValueError) as caught:
        next_level(NORMAL, occupancy, DEFAULT_THRESHOLDS)
    assert caught.value.field == "occupancy"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"warning": 0.9}, "critical"),
        ({"warning": 0.85}, "critical"),
        ({"critical": 0.97}, "shedding"),
        ({"shedding": 1.01}, "shedding"),
        ({"warning": 0.0}, "warning"),
        ({"warning": math.nan}, "warning"),
        ({"shedding": math.nan}, "shedding"),
        ({"critical_exit": math.nan}, "critical_exit"),
        ({"warning_exit": 0.0}, "warning_exit"),
        ({"warning_exit": 0.70}, "warning_exit"),
        ({"critical_exit": 0.86}, "critical_exit"),
        ({"critical_exit": 0.55}, "critical_exit"),
        ({"shedding_exit": math.inf}, "shedding_exit"),
    ],
)
def test_thresholds_out_of_order_are_refused_by_name(changes: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        replace(DEFAULT_THRESHOLDS, **changes)
    assert caught.value.field == field


def test_levels_are_ordered_and_named_as_in_headers() -> None:
    assert NORMAL < WARNING < CRITICAL < SHEDDING
    assert [level.label for level in PressureLevel] == ["normal", "warning", "critical", "shedding"]
    assert all(PressureLevel.from_label(level.label) is level for level in PressureLevel)
    with pytest.raises(InvalidValueError, match="one of normal, warning, critical, shedding"):
        PressureLevel.from_label("Severe")
