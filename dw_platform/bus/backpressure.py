"""How the bus answers a publisher when it fills up: say so, slow down, refuse.

| Level | what a publisher gets |
|---|---|
| Normal | accepted |
| Warning | accepted, with the header `X-Backpressure: warning` |
| Critical | accepted after a delay that grows with occupancy |
| Shedding | critical topics: accepted after the longest delay; others: refused, with the time to try again |

The decision is a pure function of a gauge reading and limits. The delay is returned, so a gateway can pass it on.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from dw_platform.bus.limits import BusLimits
from dw_platform.foundation import Clock
from dw_platform.scaling import GaugeReading, PressureChanged, PressureGauge, PressureLevel

HEADER = "X-Backpressure"

# The gauge averages samples, so they should come at a steady pace; 10 ms is the shortest delay it can cause.
SAMPLE_PERIOD_S = 0.01
# A burst within one period is seen after this part of the capacity, well inside the 5 % that Shedding leaves.
SAMPLE_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishDecision:
    """What happens to one publish, and why."""

    accepted: bool
    level: PressureLevel
    delay: timedelta = timedelta(0)
    """How long the publisher waits before its messages are taken; the bus does the waiting."""

    retry_after: timedelta | None = None
    """When to try again; only if refused."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to the messages, and meant for the response of a gateway."""

    reason: str = ""


def decide_publish(reading: GaugeReading, limits: BusLimits, *, critical: bool) -> PublishDecision:
    """Return what a publisher gets at this reading; a `critical` topic is never refused."""
    level, filled = reading.level, f"the bus is {reading.occupancy:.0%} full"
    if level is PressureLevel.NORMAL:
        return PublishDecision(accepted=True, level=level)
    headers = {HEADER: level.label}
    if level is PressureLevel.WARNING:
        return PublishDecision(accepted=True, level=level, headers=headers, reason=filled)
    if level is PressureLevel.CRITICAL:
        delay = critical_delay(reading.occupancy, limits)
        return PublishDecision(accepted=True, level=level, delay=delay, headers=headers, reason=filled)
    if critical:
        reason = f"{filled}, the topic is critical"
        return PublishDecision(accepted=True, level=level, delay=limits.longest_delay, headers=headers, reason=reason)
    return PublishDecision(
        accepted=False, level=level, retry_after=limits.longest_delay, headers=headers, reason=f"{filled} and sheds"
    )


def critical_delay(occupancy: float, limits: BusLimits) -> timedelta:
    """Return the delay between the shortest, where Critical begins, and the longest, where Shedding does.

    It grows by the same factor with every percent, so publishers feel the beginning little and the end strongly.
    """
    first, last = limits.thresholds.critical, limits.thresholds.shedding
    share = min(max((occupancy - first) / (last - first), 0.0), 1.0)
    growth: float = (limits.longest_delay / limits.shortest_delay) ** share
    return limits.shortest_delay * growth


class MessageBusBackpressure:
    """Watches the bus's depth through a gauge and decides for each publisher; any thread may use it.

    `measure` counts the messages that wait in all partitions. It is called at most every 10 ms, or when 1 % of the
    capacity was published since.
    """

    def __init__(self, measure: Callable[[], int], limits: BusLimits, *, clock: Clock, name: str = "bus") -> None:
        self._measure, self._limits, self._clock = measure, limits, clock
        self._gauge = PressureGauge(name, limits.thresholds, clock=clock)
        self._lock = threading.Lock()
        self._since_sample = 0
        self._next_sample_s = clock.monotonic()

    def decide(self, *, critical: bool, messages: int = 1) -> PublishDecision:
        """Return what happens to a publish of that many messages."""
        self.note(messages)
        return decide_publish(self._gauge.reading(), self._limits, critical=critical)

    def note(self, messages: int = 0) -> None:
        """Take a sample if it is time, or if `messages` and those before them may have changed the picture."""
        now = self._clock.monotonic()
        with self._lock:
            self._since_sample += messages
            burst = self._since_sample >= self._limits.max_message_queue_size * SAMPLE_SHARE
            if now < self._next_sample_s and not (burst and messages):
                return
            self._since_sample, self._next_sample_s = 0, now + SAMPLE_PERIOD_S
        self._gauge.observe(self._measure() / self._limits.max_message_queue_size)

    def batching(self) -> bool:
        """Return whether consumers may take several messages at once."""
        return self._gauge.reading().level < PressureLevel.CRITICAL

    def reading(self) -> GaugeReading:
        """Return the current reading; an idle bus is sampled here, so its pressure falls without traffic."""
        self.note()
        return self._gauge.reading()

    def reconfigure(self, limits: BusLimits) -> None:
        """Judge by other thresholds, delays and capacity from now on."""
        self._limits = limits
        self._gauge.reconfigure(limits.thresholds)

    def on_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        """Call `listener` at each change of level; return a function that ends this."""
        return self._gauge.on_change(listener)
