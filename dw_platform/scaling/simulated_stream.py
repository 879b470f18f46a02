"""A stream and its consumers, second by second: the part of the simulator that no rule can see through.

Records are a fluid in queues, one a partition, first in first out. A consumer reads its partitions in turn, so that
small queues are served first and what is left of its capacity goes to the large ones. New consumers take a while to
start; whenever one comes or goes, nobody reads for a moment, because partitions move. Positions become visible when
they are committed, each partition in its turn, so readers that keep up still show a little lag, as real ones do.
"""

from collections import deque
from dataclasses import dataclass

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.stream_reading import PartitionOffsets
from dw_platform.scaling.traces import Trace

# Less than a record is nothing: what is left over by rounding must not age.
_NOTHING = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSetup:
    """What is the same for every rule."""

    capacity: float = 1_000.0
    """Records a second of one consumer."""

    first_consumers: int = 3
    max_consumers: int = 16
    start_s: int = 30
    """From the decision until a new consumer reads: a container, a driver, its first fetch."""

    pause_s: int = 3
    """Nobody reads while partitions move."""

    commit_every_s: int = 5
    """The platform's own default."""

    max_age_s: int = 30
    """Older than this, and a record is late."""

    def __post_init__(self) -> None:
        if not 1 <= self.first_consumers <= self.max_consumers:
            raise InvalidValueError("first_consumers", self.first_consumers, f"1 to {self.max_consumers}")
        if self.capacity <= 0 or self.commit_every_s < 1 or min(self.start_s, self.pause_s, self.max_age_s) < 0:
            raise InvalidValueError(
                "setup", self, "a capacity above 0, a commit every second at most, no negative time"
            )


class SimulatedPartition:
    """One queue: what came, what was read, and when the oldest unread record came."""

    __slots__ = ("_arrivals", "came", "committed", "read")

    def __init__(self) -> None:
        self.came = self.read = self.committed = 0.0
        self._arrivals: deque[tuple[float, int]] = deque()

    @property
    def waiting(self) -> float:
        """Records that nobody has read."""
        return self.came - self.read

    def add(self, records: float, second: int) -> None:
        """Let `records` come in."""
        self.came += records
        self._arrivals.append((self.came, second))

    def age(self, now: int) -> int:
        """Return for how many seconds the oldest unread record has waited."""
        arrivals, read = self._arrivals, self.read + _NOTHING
        while arrivals and arrivals[0][0] <= read:
            arrivals.popleft()
        return now - arrivals[0][1] if arrivals else 0


class SimulatedStream:
    """One run of a trace under one rule's decisions."""

    def __init__(self, trace: Trace, setup: StreamSetup, *, consumers: int | None = None) -> None:
        self._trace, self._setup = trace, setup
        self.partitions = [SimulatedPartition() for _ in range(trace.partitions)]
        self.running = setup.first_consumers if consumers is None else consumers
        self.changes = self.consumer_seconds = 0
        self.busiest = 0.0
        """Share of its capacity that the busiest consumer used in the last second."""
        self._ready: deque[int] = deque()  # when each consumer that is starting will read
        self._paused_until = 0

    @property
    def wanted(self) -> int:
        """Consumers that read or will."""
        return self.running + len(self._ready)

    def scale_to(self, consumers: int, second: int) -> None:
        """Start or stop consumers; those that have not read yet go first."""
        consumers = min(max(consumers, 0), self._setup.max_consumers)
        if consumers == self.wanted:
            return
        self.changes += 1
        while self._ready and consumers < self.wanted:
            self._ready.pop()
        if consumers < self.running:
            self.running = consumers
            self._paused_until = second + self._setup.pause_s
        while consumers > self.wanted:
            self._ready.append(second + self._setup.start_s)

    def step(self, second: int) -> None:
        """Let one second pass."""
        self._join(second)
        share = self._trace.offered[second] / len(self.partitions)
        for partition in self.partitions:
            partition.add(share, second)
        for spell in self._trace.hot:
            if spell.start <= second < spell.end:
                self.partitions[spell.partition].add(spell.extra, second)
        self.busiest = self._serve(second) if second >= self._paused_until else 0.0
        self.consumer_seconds += self.wanted
        for partition in self.partitions[-second % self._setup.commit_every_s :: self._setup.commit_every_s]:
            partition.committed = partition.read

    def offsets(self) -> dict[int, PartitionOffsets]:
        """Return what anybody can see from outside."""
        return {n: PartitionOffsets(int(p.committed), int(p.came)) for n, p in enumerate(self.partitions)}

    def late(self, now: int) -> int:
        """Return which partitions are late, a bit for each."""
        limit = self._setup.max_age_s
        return sum(1 << number for number, partition in enumerate(self.partitions) if partition.age(now) > limit)

    def oldest(self, now: int, without: int = 0) -> int:
        """Return the age of the oldest record outside of the partitions whose bits are set."""
        return max((p.age(now) for n, p in enumerate(self.partitions) if not without >> n & 1), default=0)

    def _join(self, second: int) -> None:
        joined = False
        while self._ready and self._ready[0] <= second:
            self._ready.popleft()
            self.running += 1
            joined = True
        if joined:
            self._paused_until = second + self._setup.pause_s

    def _serve(self, second: int) -> float:
        stuck = {spell.partition for spell in self._trace.stuck if spell.start <= second < spell.end}
        busiest = 0.0
        for consumer in range(min(self.running, len(self.partitions))):
            mine = [
                self.partitions[number]
                for number in range(consumer, len(self.partitions), self.running)
                if number not in stuck
            ]
            busiest = max(busiest, _read(mine, self._setup.capacity) / self._setup.capacity)
        return busiest


def _read(partitions: list[SimulatedPartition], capacity: float) -> float:
    """Read up to `capacity` records, small queues first, the rest evenly; return how many."""
    waiting = sum(partition.waiting for partition in partitions)
    if waiting <= capacity:
        for partition in partitions:
            partition.read = partition.came
        return waiting
    left = capacity
    for already, partition in enumerate(sorted(partitions, key=lambda each: each.waiting)):
        taken = min(partition.waiting, left / (len(partitions) - already))
        partition.read += taken
        left -= taken
    return capacity
