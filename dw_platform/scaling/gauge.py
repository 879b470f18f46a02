"""The gauge that every subsystem reads its pressure from.

Up is fast, down is slow: a single sample at or above the shedding threshold counts at once, without smoothing,
because a queue that is full now cannot wait for an average. From there the average falls like any other.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from dw_platform.foundation import Clock, Ema, EventHub
from dw_platform.foundation.ema import DEFAULT_ALPHA
from dw_platform.scaling.pressure import (
    DEFAULT_THRESHOLDS,
    PressureLevel,
    PressureThresholds,
    filled_fraction,
    next_level,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeReading:
    """What a gauge says at one moment; decisions are pure functions of this and of limits."""

    subsystem: str
    level: PressureLevel
    occupancy: float
    """The smoothed value, which the level follows."""

    latest: float
    """The last sample as it came in."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureChanged:
    """A gauge moved from one level to another."""

    subsystem: str
    before: PressureLevel
    after: PressureLevel
    occupancy: float
    at: datetime


class PressureGauge:
    """The pressure of one subsystem; any thread may observe and read.

    Listeners hear level changes in the order in which they happened, on the thread of one of the observers and
    outside the gauge's lock, so a listener may use the gauge.
    """

    def __init__(
        self,
        subsystem: str,
        thresholds: PressureThresholds = DEFAULT_THRESHOLDS,
        *,
        clock: Clock,
        alpha: float = DEFAULT_ALPHA,
    ) -> None:
        self._clock = clock
        self._ema = Ema(alpha)
        self._thresholds = thresholds
        self._reading = GaugeReading(
            subsystem=subsystem, level=PressureLevel.NORMAL, occupancy=0.0, latest=0.0, at=clock.now()
        )
        self._changes = EventHub[PressureChanged]()
        self._pending: deque[PressureChanged] = deque()
        self._lock = threading.Lock()
        self._delivering = threading.Lock()

    def observe(self, occupancy: float) -> GaugeReading:
        """Take in one sample and return the reading after it; NaN or a negative sample is refused and forgotten."""
        sample = filled_fraction(occupancy)
        with self._lock:
            smoothed = self._ema.update(sample)
            if sample >= self._thresholds.shedding:
                smoothed = self._ema.value = max(sample, smoothed)
            reading = self._move(smoothed, sample)
        self._deliver()
        return reading

    def reading(self) -> GaugeReading:
        """Return the reading after the last sample; Normal and empty before the first."""
        return self._reading

    def reconfigure(self, thresholds: PressureThresholds, *, alpha: float | None = None) -> GaugeReading:
        """Judge the current occupancy by other thresholds, from now on and at once."""
        with self._lock:
            if alpha is not None:
                self._ema = Ema(alpha, self._ema.value)
            self._thresholds = thresholds
            reading = self._move(self._reading.occupancy, self._reading.latest)
        self._deliver()
        return reading

    def on_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        """Call `listener` for each change of level; return a function that ends this."""
        return self._changes.subscribe(listener)

    def _move(self, occupancy: float, latest: float) -> GaugeReading:
        before, now = self._reading, self._clock.now()
        after = next_level(before.level, occupancy, self._thresholds)
        self._reading = GaugeReading(
            subsystem=before.subsystem, level=after, occupancy=occupancy, latest=latest, at=now
        )
        if after is not before.level:
            change = PressureChanged(
                subsystem=before.subsystem, before=before.level, after=after, occupancy=occupancy, at=now
            )
            self._pending.append(change)
        return self._reading

    def _deliver(self) -> None:
        # One thread delivers at a time and takes along what others add, which keeps the order. The outer loop
        # looks again after the release, so a change added in between is not left behind.
        while self._pending and self._delivering.acquire(blocking=False):
            try:
                while self._pending:
                    self._changes.publish(self._pending.popleft())
            finally:
                self._delivering.release()
