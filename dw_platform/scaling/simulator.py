"""Plays a load against rules that decide how many consumers read it, and counts what each of them cost.

Every rule meets the same load, the same start-up time and the same pauses, looks as often as it says it does, and
sees only what it could see in reality. Three things count: seconds in which a record was late, changes of the number
of consumers, and consumer-seconds, those of starting consumers among them.

A second in which some partition would also be late with one consumer a partition from the start is nobody's fault
(no rule can help a partition whose next record cannot be read), so that partition does not count in that second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dw_platform.scaling.simulated_stream import SimulatedStream, StreamSetup
from dw_platform.scaling.stream_reading import ReadOffsets
from dw_platform.scaling.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a rule may look at."""

    second: int
    partitions: Mapping[int, ReadOffsets]
    running: int
    """Consumers that read."""

    wanted: int
    """With those that are starting."""

    busy: float
    """Share of its capacity that the busiest consumer used, on average since the last look."""


class Rule(Protocol):
    """Decides how many consumers there should be; keeps what it remembers, so a run needs its own."""

    @property
    def every_s(self) -> int:
        """How often it looks."""

    def decide(self, view: View) -> int:
        """Return how many consumers there should be."""


RuleMaker = Callable[[Trace, StreamSetup], Rule]


@dataclass(frozen=True, slots=True)
class Moment:
    """One point of a plot."""

    second: int
    offered: float
    age_s: int
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one rule made of one trace."""

    rule: str
    trace: str
    late_s: int
    changes: int
    consumer_s: int
    moments: tuple[Moment, ...] = field(default=(), repr=False)

    @property
    def measures(self) -> tuple[int, int, int]:
        """The three that count; less is better in each."""
        return self.late_s, self.changes, self.consumer_s

    def better_than(self, other: "Outcome") -> bool:
        """Whether it is better in all three."""
        return all(mine < theirs for mine, theirs in zip(self.measures, other.measures, strict=True))


def simulate(
    trace: Trace, rules: Mapping[str, RuleMaker], setup: StreamSetup, *, plot_every_s: int = 0
) -> list[Outcome]:
    """Play `trace` against each rule; with `plot_every_s`, keep the course of it as well."""
    run = _Run(trace, setup, _late_anyway(trace, setup), plot_every_s)
    return [run.play(name, make(trace, setup)) for name, make in rules.items()]


def _late_anyway(trace: Trace, setup: StreamSetup) -> list[int]:
    ideal = SimulatedStream(trace, setup, consumers=trace.partitions)
    late = []
    for second in range(trace.seconds):
        ideal.step(second)
        late.append(ideal.late(second))
    return late


@dataclass(frozen=True, slots=True)
class _Run:
    """What all rules of one comparison share."""

    trace: Trace
    setup: StreamSetup
    excused: Sequence[int]
    plot_every_s: int

    def play(self, name: str, rule: Rule) -> Outcome:
        stream = SimulatedStream(self.trace, self.setup)
        late_s, busy, looked, moments = 0, 0.0, 0, list[Moment]()
        for second in range(self.trace.seconds):
            stream.step(second)
            busy += stream.busiest
            late_s += bool(stream.late(second) & ~self.excused[second])
            if self.plot_every_s and second % self.plot_every_s == 0:
                moments.append(self._moment(stream, second))
            if second and second % rule.every_s == 0:
                stream.scale_to(rule.decide(_view(stream, second, busy / (second - looked))), second)
                busy, looked = 0.0, second
        return Outcome(
            rule=name,
            trace=self.trace.name,
            late_s=late_s,
            changes=stream.changes,
            consumer_s=stream.consumer_seconds,
            moments=tuple(moments),
        )

    def _moment(self, stream: SimulatedStream, second: int) -> Moment:
        age = stream.oldest(second, without=self.excused[second])
        return Moment(second, self.trace.rate(second), age, stream.wanted)


def _view(stream: SimulatedStream, second: int, busy: float) -> View:
    return View(second=second, partitions=stream.offsets(), running=stream.running, wanted=stream.wanted, busy=busy)
