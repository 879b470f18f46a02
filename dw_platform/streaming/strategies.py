"""The five answers to records that arrive faster than they leave: pure functions of a gauge reading and limits.

| | Warning | Critical | Shedding |
|---|---|---|---|
| block | header | header | waits until depth falls |
| drop_oldest | header | header | the oldest unread records go |
| shed_load | header | waits 10 ms to 1 s | refused; critical streams wait the longest delay |
| degrade | header, first directive | full directive | full directive, and waits the longest delay |
| adaptive | header, first directive | full directive, waits 10 ms to 1 s | as shed_load |

At Normal every one of them accepts. The header is the bus's `X-Backpressure`, its value the level.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from dw_platform.bus import HEADER, BusLimits, decide_publish
from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import GaugeReading, PressureLevel
from dw_platform.streaming.publishing import DegradationDirective


class BackpressureStrategy(StrEnum):
    """The names that `backpressure` of a stream takes."""

    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"
    SHED_LOAD = "shed_load"
    DEGRADE = "degrade"
    ADAPTIVE = "adaptive"

    @classmethod
    def named(cls, name: str) -> "BackpressureStrategy":
        """Return the strategy of that name; raise InvalidValueError if there is none."""
        try:
            return cls(name)
        except ValueError:
            raise InvalidValueError("strategy", name, f"one of {', '.join(cls)}") from None


class Action(StrEnum):
    """What happens to a publish."""

    ACCEPT = "accept"
    WAIT = "wait"
    """Wait until depth falls, and decide again."""

    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDecision:
    """What happens to one publish."""

    action: Action
    level: PressureLevel
    delay_s: float = 0.0
    """How long an accepted publisher waits before its records are taken."""

    retry_after_s: float = 0.0
    """When a refused one may try again."""

    headers: Mapping[str, str] = field(default_factory=dict)
    directive: DegradationDirective | None = None
    drops: bool = False
    """Whether the oldest unread records have to make room."""


class Strategy(Protocol):
    """Decides about one publish at a time; without state of its own."""

    def decide(self, reading: GaugeReading, limits: BusLimits, *, critical: bool, durable: bool) -> StreamDecision:
        """Return what a publisher gets at this reading."""


class BlockProducer:
    """Takes everything until the stream is full, then lets publishers wait until depth falls."""

    def decide(self, reading: GaugeReading, limits: BusLimits, *, critical: bool, durable: bool) -> StreamDecision:
        del limits, critical, durable
        full = reading.level is PressureLevel.SHEDDING
        return _accepted(reading, action=Action.WAIT if full else Action.ACCEPT)


class DropOldest:
    """Takes everything; the oldest unread records of a full stream make room."""

    def decide(self, reading: GaugeReading, limits: BusLimits, *, critical: bool, durable: bool) -> StreamDecision:
        del limits, critical, durable
        return replace(_accepted(reading), drops=reading.level is PressureLevel.SHEDDING)


class ShedLoad:
    """Slows publishers down, and refuses what can be refused; the bus's own decision."""

    def decide(self, reading: GaugeReading, limits: BusLimits, *, critical: bool, durable: bool) -> StreamDecision:
        del durable
        decided = decide_publish(reading, limits, critical=critical)
        return StreamDecision(
            action=Action.ACCEPT if decided.accepted else Action.REJECT,
            level=reading.level,
            delay_s=decided.delay.total_seconds(),
            retry_after_s=decided.retry_after.total_seconds() if decided.retry_after else 0.0,
            headers=decided.headers,
        )


class DegradeQuality:
    """Takes everything, and tells the pipeline to do less for each record."""

    def decide(self, reading: GaugeReading, limits: BusLimits, *, critical: bool, durable: bool) -> StreamDecision:
        del critical
        full = reading.level is PressureLevel.SHEDDING
        decision = replace(_accepted(reading), directive=directive_at(reading.level, durable=durable))
        return replace(decision, delay_s=limits.longest_delay.total_seconds()) if full else decision


class Adaptive:
    """Does more the higher the level: tell, degrade, slow down, refuse."""

    def decide(self, reading: GaugeReading, limits: BusLimits, *, critical: bool, durable: bool) -> StreamDecision:
        decision = ShedLoad().decide(reading, limits, critical=critical, durable=durable)
        return replace(decision, directive=directive_at(reading.level, durable=durable))


def directive_at(level: PressureLevel, *, durable: bool) -> DegradationDirective | None:
    """Return what the pipeline leaves out at `level`; nothing at Normal.

    Larger batches come first, because they cost nobody anything but a little time. A durable stream is never
    acknowledged before its fsync.
    """
    if level is PressureLevel.NORMAL:
        return None
    if level is PressureLevel.WARNING:
        return DegradationDirective(batch_factor=2)
    return DegradationDirective(skip_enrichment=True, batch_factor=4, relaxed_acknowledgement=not durable)


STRATEGIES: Mapping[BackpressureStrategy, Strategy] = {
    BackpressureStrategy.BLOCK: BlockProducer(),
    BackpressureStrategy.DROP_OLDEST: DropOldest(),
    BackpressureStrategy.SHED_LOAD: ShedLoad(),
    BackpressureStrategy.DEGRADE: DegradeQuality(),
    BackpressureStrategy.ADAPTIVE: Adaptive(),
}

# Most publishes by far are decided by these, so they are built once.
_BY_LEVEL = {
    level: StreamDecision(
        action=Action.ACCEPT,
        level=level,
        headers={} if level is PressureLevel.NORMAL else {HEADER: level.label},
    )
    for level in PressureLevel
}


def _accepted(reading: GaugeReading, *, action: Action = Action.ACCEPT) -> StreamDecision:
    decision = _BY_LEVEL[reading.level]
    return decision if action is Action.ACCEPT else replace(decision, action=action)
