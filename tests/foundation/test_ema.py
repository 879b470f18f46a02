import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.foundation import Ema, InvalidValueError

SAMPLES = st.floats(0, 1)


def test_the_first_sample_is_taken_as_it_is() -> None:
    assert Ema().update(0.8) == 0.8


def test_a_later_sample_moves_the_value_by_alpha_of_the_difference() -> None:
    ema = Ema(alpha=0.3)
    ema.update(0.0)
    assert ema.update(1.0) == pytest.approx(0.3)
    assert ema.update(1.0) == pytest.approx(0.51)


@given(samples=st.lists(SAMPLES, min_size=1), alpha=st.floats(0.01, 1))
def test_the_average_of_fractions_is_a_fraction(samples: list[float], alpha: float) -> None:
    ema = Ema(alpha=alpha)
    assert all(0 <= ema.update(sample) <= 1 for sample in samples)


@given(sample=SAMPLES, alpha=st.floats(0.01, 1))
def test_a_constant_reading_stays_exactly_what_it_is(sample: float, alpha: float) -> None:
    ema = Ema(alpha=alpha)
    assert {ema.update(sample) for _ in range(20)} == {sample}


@pytest.mark.parametrize("alpha", [0, -0.1, 1.01, math.nan])
def test_an_alpha_that_would_not_average_is_refused(alpha: float) -> None:
    with pytest.raises(InvalidValueError) as caught:
        Ema(alpha=alpha)
    assert caught.value.field == "alpha"


@pytest.mark.parametrize("sample", [math.nan, math.inf, -math.inf])
def test_a_sample_that_would_poison_the_average_is_refused_and_forgotten(sample: float) -> None:
    ema = Ema()
    ema.update(0.5)
    with pytest.raises(InvalidValueError):
        ema.update(sample)
    assert ema.value == 0.5
