"""Leads the decision through readings of a stream that is described by rates, for the tests."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dw_platform.scaling import (
    PartitionOffsets,
    ScalabilityConfig,
    StreamReading,
    StreamScaleDecision,
    StreamScalePolicy,
    StreamScaleState,
    decide_stream_scale,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = StreamScalePolicy(scalability=ScalabilityConfig(max_consumers=16, max_partitions=64))


@dataclass
class Drive:
    """A topic whose partitions get and lose records as the test says, looked at every `sample_every`."""

    partitions: int = 8
    consumers: int = 2
    policy: StreamScalePolicy = POLICY
    now: datetime = START
    positions: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    state: StreamScaleState = field(default_factory=StreamScaleState)

    def reading(self) -> StreamReading:
        offsets = {n: PartitionOffsets(self.positions.get(n, 0), self.ends.get(n, 0)) for n in range(self.partitions)}
        return StreamReading(at=self.now, partitions=offsets, consumers=self.consumers)

    def pass_time(self, came: float, read: float, *, stuck: int = -1, only: int | None = None) -> None:
        """Let one interval pass; `came` and `read` are records a second of the whole topic, dealt evenly."""
        seconds = self.policy.sample_every.total_seconds()
        numbers = range(self.partitions) if only is None else [only]
        for number in numbers:
            self.ends[number] = self.ends.get(number, 0) + round(came * seconds / len(numbers))
            if number != stuck:
                wanted = self.positions.get(number, 0) + round(read * seconds / len(numbers))
                self.positions[number] = min(wanted, self.ends[number])
        self.now += self.policy.sample_every

    def look(self) -> StreamScaleDecision:
        decision = decide_stream_scale(self.reading(), self.state, self.policy)
        self.state = decision.state
        return decision

    def step(self, came: float, read: float, *, stuck: int = -1) -> StreamScaleDecision:
        self.pass_time(came, read, stuck=stuck)
        return self.look()

    def obey(self, came: float, capacity: float, looks: int = 1) -> StreamScaleDecision:
        """Let consumers of `capacity` read what they can, and have as many as was decided, at once."""
        for _ in range(looks):
            decision = self.step(came, capacity * self.consumers)
            self.consumers = decision.consumers
        return decision

    def learned(self, capacity: float = 100) -> "Drive":
        """Know the capacity: everybody was busy for two looks, and then caught up."""
        self.look()
        for _ in range(3):
            self.step(capacity * self.consumers * 3, capacity * self.consumers)
        self.positions = dict(self.ends)
        self.state = StreamScaleState(capacity=self.state.capacity)
        self.look()
        return self


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)
