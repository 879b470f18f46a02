"""What the bus may hold and how it answers pressure; everything here can be changed while messages flow."""

from dataclasses import dataclass, field
from datetime import timedelta

from dw_platform.bus.ring import DEFAULT_RING_SIZE, check_ring_size
from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureThresholds, bounded, check_limits

MAX_PARTITIONS = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class BusLimits:
    """The limits of one message bus."""

    max_subscribers_per_topic: int = field(
        default=1_000, metadata=bounded(at_least=1, unit="subscribers", reason="each costs a place in every partition")
    )
    max_message_queue_size: int = field(
        default=1_000_000,
        metadata=bounded(at_least=1, unit="messages", reason="waiting in all partitions; the gauge is full at this"),
    )
    max_topics: int = field(default=1_000, metadata=bounded(at_least=1, unit="topics", reason="finds runaway names"))
    partitions: int | None = field(
        default=4,
        metadata=bounded(
            at_least=1, at_most=MAX_PARTITIONS, unit="partitions", reason="of each topic; none: as subscribers need"
        ),
    )
    ring_size: int = field(
        default=DEFAULT_RING_SIZE,
        metadata=bounded(at_least=2, at_most=1 << 24, unit="slots", reason="of each hot partition, a power of two"),
    )
    max_record_bytes: int = field(
        default=8 * 1024 * 1024, metadata=bounded(at_least=1, unit="bytes", reason="larger content belongs in a file")
    )
    shortest_delay: timedelta = field(
        default=timedelta(milliseconds=10), metadata=bounded(above=timedelta(0), reason="when Critical begins")
    )
    longest_delay: timedelta = field(
        default=timedelta(seconds=1), metadata=bounded(above=timedelta(0), reason="when Shedding begins")
    )
    thresholds: PressureThresholds = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        check_limits(self)
        check_ring_size(self.ring_size)
        if self.shortest_delay > self.longest_delay:
            raise InvalidValueError(
                "shortest_delay", self.shortest_delay, f"at most longest_delay ({self.longest_delay})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """What is particular to one topic."""

    partitions: int | None = None
    """Its own number; None follows the limits."""

    hot: bool = False
    """Whether its partitions are ring buffers; a message of a `hot` class switches this on."""

    durable: bool = False
    """Whether its messages are written to the log before they are acknowledged, and outlive the process."""

    critical: bool = False
    """Whether it is never refused under pressure."""

    def __post_init__(self) -> None:
        if self.partitions is not None and not 1 <= self.partitions <= MAX_PARTITIONS:
            raise InvalidValueError("partitions", self.partitions, f"from 1 to {MAX_PARTITIONS}")
        if self.hot and self.durable:
            raise InvalidValueError("hot", self.hot, "not for a durable topic, whose log is what readers wait for")
