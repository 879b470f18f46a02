"""What a process may do with streams and how it answers pressure; everything here can be changed while it runs."""

from dataclasses import dataclass, field
from datetime import timedelta

from dw_platform.bus import BusLimits
from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureThresholds, bounded, check_limits
from dw_platform.streaming.strategies import BackpressureStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingLimits:
    """The limits of one StreamingScalingManager."""

    max_streams: int = field(
        default=1_000, metadata=bounded(at_least=1, unit="topics", reason="each is looked at ten times a second")
    )
    capacity_factor: float = field(
        default=1.0,
        metadata=bounded(above=0.0, reason="scales the capacity of every stream, such as 0.5 in an emergency"),
    )
    strategies: tuple[str, ...] = field(
        default=(), metadata=bounded(unit="TOPIC=STRATEGY", reason="strategies that replace the configured ones")
    )
    shortest_delay: timedelta = field(
        default=timedelta(milliseconds=10), metadata=bounded(above=timedelta(0), reason="when Critical begins")
    )
    longest_delay: timedelta = field(
        default=timedelta(seconds=1), metadata=bounded(above=timedelta(0), reason="when Shedding begins")
    )
    longest_wait: timedelta = field(
        default=timedelta(seconds=30),
        metadata=bounded(above=timedelta(0), reason="for room, where a publisher names no time of its own"),
    )
    checkpoint_every: timedelta | None = field(
        default=None, metadata=bounded(above=timedelta(0), reason="of every subscription; none: as its stream says")
    )
    session_timeout: timedelta = field(
        default=timedelta(seconds=15),
        metadata=bounded(at_least=timedelta(milliseconds=100), reason="silence after which a member of a group is out"),
    )
    growth_wait: timedelta = field(
        default=timedelta(seconds=5),
        metadata=bounded(
            above=timedelta(0), reason="how long publishers pause for a growth that groups must drain for"
        ),
    )
    evaluate_every: timedelta = field(
        default=timedelta(seconds=5), metadata=bounded(above=timedelta(0), reason="between looks at throughput and lag")
    )
    max_producers: int = field(
        default=10_000, metadata=bounded(at_least=1, unit="producers", reason="remembered for a topic, the latest ones")
    )
    producer_ttl: timedelta = field(
        default=timedelta(days=1), metadata=bounded(above=timedelta(0), reason="after which a silent one is forgotten")
    )
    thresholds: PressureThresholds = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        check_limits(self)
        self.strategy_of("")
        if self.shortest_delay > self.longest_delay:
            raise InvalidValueError(
                "shortest_delay", self.shortest_delay, f"at most longest_delay ({self.longest_delay})"
            )

    def overrides(self) -> dict[str, BackpressureStrategy]:
        """Return the strategies that replace the configured ones, by topic."""
        found = {}
        for entry in self.strategies:
            topic, _, name = entry.partition("=")
            if not topic or name not in list(BackpressureStrategy):
                allowed = f"TOPIC=STRATEGY with one of {', '.join(BackpressureStrategy)}"
                raise InvalidValueError("strategies", entry, allowed)
            found[topic] = BackpressureStrategy(name)
        return found

    def strategy_of(self, topic: str) -> BackpressureStrategy | None:
        """Return the strategy that replaces the configured one, if there is one."""
        return self.overrides().get(topic)

    def answers(self) -> BusLimits:
        """Return what the bus's decision about a publisher needs to know."""
        return BusLimits(
            shortest_delay=self.shortest_delay, longest_delay=self.longest_delay, thresholds=self.thresholds
        )
