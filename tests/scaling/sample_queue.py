"""A small subsystem the way the real ones are written, for the tests of the contracts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from dw_platform.foundation import Clock, InvalidValueError
from dw_platform.scaling import (
    DEFAULT_THRESHOLDS,
    GaugeReading,
    PressureChanged,
    PressureGauge,
    PressureThresholds,
    bounded,
    check_limits,
)


class Sync(StrEnum):
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    partitions: int = field(default=8, metadata=bounded(at_least=1, unit="partitions", reason="one for each core"))
    max_bytes: int = field(default=65_536, metadata=bounded(at_least=1, unit="bytes", reason="one read"))
    linger: timedelta = field(default=timedelta(milliseconds=5), metadata=bounded(above=timedelta(0)))
    sample_rate: float = field(default=0.5, metadata=bounded(at_least=0, at_most=1))
    max_items: int | None = None
    paused: bool = False
    owner: str = "nobody"
    sync: Sync = Sync.ALWAYS
    critical_topics: tuple[str, ...] = ()
    thresholds: PressureThresholds = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        check_limits(self)


class SampleQueue:
    """Holds nothing but a fill level; refuses fewer partitions than are in use."""

    def __init__(self, *, clock: Clock, limits: QueueLimits | None = None, name: str = "queue") -> None:
        self.name = name
        self.partitions_in_use = 1
        self.metrics: Mapping[str, float] = {"items": 0}
        self._limits = limits or QueueLimits()
        self.gauge = PressureGauge(name, self._limits.thresholds, clock=clock)

    def scaling_metrics(self) -> Mapping[str, float]:
        return self.metrics

    def current_limits(self) -> QueueLimits:
        return self._limits

    def reconfigure_limits(self, limits: QueueLimits) -> None:
        if limits.partitions < self.partitions_in_use:
            raise InvalidValueError("partitions", limits.partitions, f"at least {self.partitions_in_use} hold data")
        self.gauge.reconfigure(limits.thresholds)
        self._limits = limits

    def backpressure_state(self) -> GaugeReading:
        return self.gauge.reading()

    def on_pressure_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        return self.gauge.on_change(listener)
