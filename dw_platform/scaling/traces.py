"""Loads to try a rule on, made up from a seed; for recorded ones see recorded_trace.py.

A trace is what comes in, second by second, and what is wrong with single partitions. It does not know who will read
it, so every rule meets exactly the same load.
"""

import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from dw_platform.foundation import InvalidValueError

MINUTE, HOUR = 60, 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSpell:
    """A partition that gets `extra` records a second on top of its share, for a while."""

    partition: int
    start: int
    end: int
    extra: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckSpell:
    """A partition whose next record no consumer gets past, for a while."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A load: `offered[t]` records come in the second `t`, dealt evenly to all partitions."""

    name: str
    offered: Sequence[float] = field(repr=False)
    partitions: int
    hot: tuple[HotSpell, ...] = ()
    stuck: tuple[StuckSpell, ...] = ()

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise InvalidValueError("partitions", self.partitions, "at least 1")
        if not self.offered or not all(math.isfinite(rate) and rate >= 0 for rate in self.offered):
            raise InvalidValueError("offered", f"{len(self.offered)} seconds", "at least one rate, none negative")
        for number in [spell.partition for spell in self.hot] + [spell.partition for spell in self.stuck]:
            if not 0 <= number < self.partitions:
                raise InvalidValueError("partition", number, f"one of the {self.partitions} partitions")

    @property
    def seconds(self) -> int:
        """How long it is."""
        return len(self.offered)

    def rate(self, second: int) -> float:
        """Return what comes in then, with what hot partitions get."""
        return self.offered[second] + sum(spell.extra for spell in self.hot if spell.start <= second < spell.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """Sizes of the made-up traces, in multiples of what one consumer reads."""

    capacity: float = 1_000.0
    """Records a second of one consumer."""

    partitions: int = 16
    jitter: float = 0.05
    """Spread of every second's load around its course, as a share of it."""


def made_up(shape: LoadShape, seed: int, only: Collection[str] | None = None) -> list[Trace]:
    """Return one trace of each kind, or of those named; a seed moves times and heights by up to 15 %."""
    return [
        build(shape, random.Random(f"{name}/{seed}"))  # noqa: S311 - nothing secret
        for name, build in _KINDS.items()
        if only is None or name in only
    ]


def kinds() -> tuple[str, ...]:
    """Return the names of the made-up traces."""
    return tuple(_KINDS)


def _course(shape: LoadShape, chance: random.Random, seconds: int, load: Callable[[float], float]) -> list[float]:
    spread = shape.jitter
    return [max(0.0, load(second) * shape.capacity * (1 + chance.gauss(0, spread))) for second in range(seconds)]


def _moved(chance: random.Random, value: float) -> float:
    return value * chance.uniform(0.85, 1.15)


def _step(shape: LoadShape, chance: random.Random) -> Trace:
    low, high = _moved(chance, 2), _moved(chance, 7)
    up, down = _moved(chance, 30 * MINUTE), _moved(chance, 90 * MINUTE)
    course = _course(shape, chance, 2 * HOUR, lambda t: high if up <= t < down else low)
    return Trace(name="step", offered=course, partitions=shape.partitions)


def _ramp(shape: LoadShape, chance: random.Random) -> Trace:
    low, high, climb = _moved(chance, 1), _moved(chance, 9), _moved(chance, HOUR)

    def load(second: float) -> float:
        share = min(second / climb, 1.0) if second < 2 * HOUR else max(0.0, 1 - (second - 2 * HOUR) / climb)
        return low + (high - low) * share

    return Trace(name="ramp", offered=_course(shape, chance, 3 * HOUR, load), partitions=shape.partitions)


def _daily(shape: LoadShape, chance: random.Random) -> Trace:
    low, high, peak = _moved(chance, 1), _moved(chance, 8), _moved(chance, 14 * HOUR)

    def load(second: float) -> float:
        return low + (high - low) * (1 + math.cos(2 * math.pi * (second - peak) / (24 * HOUR))) / 2

    return Trace(name="daily", offered=_course(shape, chance, 24 * HOUR, load), partitions=shape.partitions)


def _spikes(shape: LoadShape, chance: random.Random) -> Trace:
    base, spells, second = _moved(chance, 2), list[tuple[float, float, float]](), 0.0
    while second < 3 * HOUR:
        second += chance.uniform(8, 25) * MINUTE
        spells.append((second, second + chance.uniform(60, 180), chance.uniform(5, 9)))

    def load(at: float) -> float:
        return max((height for start, end, height in spells if start <= at < end), default=base)

    return Trace(name="spikes", offered=_course(shape, chance, 3 * HOUR, load), partitions=shape.partitions)


def _sawtooth(shape: LoadShape, chance: random.Random) -> Trace:
    low, high, period = _moved(chance, 2), _moved(chance, 8), _moved(chance, 20 * MINUTE)
    course = _course(shape, chance, 3 * HOUR, lambda t: low + (high - low) * (t % period) / period)
    return Trace(name="sawtooth", offered=course, partitions=shape.partitions)


def _noise(shape: LoadShape, chance: random.Random) -> Trace:
    # An hour's memory of a minute: bursts that last long enough to build a lag, around a steady mean.
    mean, drift, levels = _moved(chance, 4), 0.0, list[float]()
    for _ in range(3 * HOUR):
        drift = drift * (1 - 1 / MINUTE) + chance.gauss(0, 0.25 * math.sqrt(2 / MINUTE))
        levels.append(max(0.1, mean * (1 + drift)))
    return Trace(
        name="noise",
        offered=_course(shape, chance, 3 * HOUR, lambda t: levels[int(t)]),
        partitions=shape.partitions,
    )


def _poisoned(shape: LoadShape, chance: random.Random) -> Trace:
    mean, start = _moved(chance, 3), int(_moved(chance, 20 * MINUTE))
    stuck = StuckSpell(partition=chance.randrange(shape.partitions), start=start, end=start + 100 * MINUTE)
    course = _course(shape, chance, 3 * HOUR, lambda _: mean)
    return Trace(name="poisoned partition", offered=course, partitions=shape.partitions, stuck=(stuck,))


def _hot(shape: LoadShape, chance: random.Random) -> Trace:
    mean, start = _moved(chance, 3), int(_moved(chance, 20 * MINUTE))
    extra = shape.capacity * _moved(chance, 1.4)
    partition = chance.randrange(shape.partitions)
    hot = HotSpell(partition=partition, start=start, end=start + 50 * MINUTE, extra=extra)
    course = _course(shape, chance, 3 * HOUR, lambda _: mean)
    return Trace(name="hot partition", offered=course, partitions=shape.partitions, hot=(hot,))


_KINDS: dict[str, Callable[[LoadShape, random.Random], Trace]] = {
    "step": _step,
    "ramp": _ramp,
    "daily": _daily,
    "spikes": _spikes,
    "sawtooth": _sawtooth,
    "noise": _noise,
    "poisoned partition": _poisoned,
    "hot partition": _hot,
}
