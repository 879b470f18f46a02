"""Exponential moving average, the platform's one way of smoothing a reading."""

import math
from dataclasses import dataclass

from dw_platform.foundation.errors import InvalidValueError

# 0.3 remembers about three samples: quick enough for a gauge that is sampled every few seconds.
# It is not hysteresis by itself; whoever decides on it needs separate exit thresholds.
DEFAULT_ALPHA = 0.3


@dataclass(slots=True)
class Ema:
    """The first sample is taken as it is; later ones move the value by `alpha` of the difference."""

    alpha: float = DEFAULT_ALPHA
    value: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise InvalidValueError("alpha", self.alpha, "above 0 and at most 1")

    def update(self, sample: float) -> float:
        """Take in one sample and return the new average."""
        if not math.isfinite(sample):  # NaN and infinity would poison every later value
            raise InvalidValueError("sample", sample, "a finite number")
        self.value = sample if self.value is None else self.value + self.alpha * (sample - self.value)
        return self.value
