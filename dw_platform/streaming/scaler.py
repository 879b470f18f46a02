"""Looks at throughput and lag now and then, and acts: partitions are grown, consumers are asked for.

The decisions themselves are in dw_platform/scaling: streams.py for partitions, stream_scale.py for consumers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dw_platform.foundation import Clock, EventHub
from dw_platform.scaling import (
    PartitionOffsets,
    StreamReading,
    StreamScaleDecision,
    StreamScalePolicy,
    StreamScaleState,
    decide_partitions,
    decide_stream_scale,
)
from dw_platform.store import PersistentStore
from dw_platform.streaming.depth import Positions, read_positions
from dw_platform.streaming.groups import live_groups
from dw_platform.streaming.growth import Growth, grow
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.stream import Stream

# A growth that was put off pauses publishers each time it is tried.
_TRY_AGAIN_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class ConsumersWanted:
    """A group should have another number of consumers."""

    topic: str
    group: str
    current: int
    wanted: int
    reason: str


class StreamScaler:
    """Evaluates one stream at a time; used by one thread at a time, except for `wanted`."""

    def __init__(self, store: PersistentStore, *, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._events: EventHub[ConsumersWanted] = EventHub()
        self._wanted: dict[tuple[str, str], StreamScaleDecision] = {}
        self._not_before: dict[str, float] = {}
        self._grown = self._put_off = 0

    def on_wanted(self, listener: Callable[[ConsumersWanted], None]) -> Callable[[], None]:
        """Call `listener` when a group should have more or fewer consumers; return a function that ends this."""
        return self._events.subscribe(listener)

    def wanted(self, topic: str, group: str) -> StreamScaleDecision | None:
        """Return how many consumers a group should have; None before the first look."""
        return self._wanted.get((topic, group))

    def metrics(self) -> dict[str, float]:
        """Return how many consumers groups should have, and how often topics have grown or could not."""
        wanted = {f"wanted_consumers.{topic}.{group}": d.consumers for (topic, group), d in self._wanted.copy().items()}
        return {"grown_total": self._grown, "growth_put_off_total": self._put_off, **wanted}

    def grow(self, stream: Stream, partitions: int, limits: StreamingLimits, *, why: str) -> Growth:
        """Grow a topic now, if its groups drain in time."""
        groups = self._groups(stream, self._members(stream, limits))
        growth = grow(stream, partitions, groups, wait=limits.growth_wait, clock=self._clock, why=why)
        self._grown += growth.grown
        self._put_off += not growth.grown
        return growth

    def evaluate(self, stream: Stream, limits: StreamingLimits) -> None:
        """Look at one stream and act."""
        members = self._members(stream, limits)
        groups = self._groups(stream, members)
        positions = read_positions(stream.broker, stream.topic, groups)
        for group in groups:
            # The ingest of a stream is a consumer that is in no group of subscribers.
            self._look_at_group(stream, group, max(members.get(group, 0), 1), positions)
        self._look_at_partitions(stream, limits)

    def _members(self, stream: Stream, limits: StreamingLimits) -> dict[str, int]:
        return live_groups(self._store, stream.topic, since=self._clock.now() - limits.session_timeout)

    @staticmethod
    def _groups(stream: Stream, members: Mapping[str, int]) -> list[str]:
        """Return the groups that count: those of the definition, and those that have members."""
        return list(dict.fromkeys([*stream.definition.groups, *members]))

    def _look_at_partitions(self, stream: Stream, limits: StreamingLimits) -> None:
        used, there = stream.gate.partitions, stream.broker.topic(stream.topic).partitions
        rate = stream.traffic.published.per_second()
        decision = decide_partitions(used, records_per_s=rate, config=stream.definition.scalability)
        wanted, why = decision.partitions, decision.reason
        if there > max(used, wanted):
            wanted, why = there, f"the topic has {there} partitions"
        if wanted <= used or (there < wanted and not stream.broker.capabilities.grows):
            return
        if self._clock.monotonic() < self._not_before.get(stream.topic, 0.0):
            return
        if not self.grow(stream, wanted, limits, why=why).grown:
            self._not_before[stream.topic] = self._clock.monotonic() + _TRY_AGAIN_AFTER_S

    def _look_at_group(self, stream: Stream, group: str, current: int, positions: Positions) -> None:
        key = (stream.topic, group)
        before = self._wanted.get(key)
        reading = StreamReading(
            at=self._clock.now(),
            partitions={
                number: PartitionOffsets(positions.next_of(group, number), end)
                for number, end in positions.ends.items()
            },
            consumers=current,
        )
        policy = StreamScalePolicy(scalability=stream.definition.scalability)
        decision = decide_stream_scale(reading, before.state if before else StreamScaleState(), policy)
        self._wanted[key] = decision
        if decision.consumers != (before.consumers if before else current):
            self._events.publish(ConsumersWanted(stream.topic, group, current, decision.consumers, decision.reason))
