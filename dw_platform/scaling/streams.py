"""How many partitions a topic should have and how many consumers a group: pure decisions, for streams and sensors.

Both leave a gap between where they act and where they come to rest, so a number that hovers near a bound moves once.
Partitions only grow: records stay where they are, so there is no way back.
"""

import math
from dataclasses import dataclass, field

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.limits import bounded, check_limits

# A growth stops publishers for a moment, so it makes room for twice the rate: the next one is a doubling away.
_HEADROOM = 2.0
# Consumers that are behind should have caught up after this long, while more arrives.
_CATCH_UP_S = 60.0
# One consumer less only if the others would still be half idle, and the lag is far below its limit.
_IDLE_SHARE = 0.5
_CALM_SHARE = 0.25
# A capacity next to nothing asks for more consumers than a number can say; whatever it asks for is cut by the limits.
_MORE_THAN_ANYBODY_HAS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalabilityConfig:
    """When a stream grows and how far."""

    max_partitions: int = field(default=64, metadata=bounded(at_least=1, unit="partitions"))
    max_consumers: int = field(default=16, metadata=bounded(at_least=1, unit="consumers", reason="of one group"))
    scale_up_threshold: float = field(
        default=0.8,
        metadata=bounded(above=0.0, at_most=1.0, reason="share of the target at which partitions are added"),
    )
    max_lag_ms: int = field(
        default=30_000, metadata=bounded(at_least=1, unit="ms", reason="age of the oldest unread record")
    )
    target_throughput_per_partition: int = field(
        default=50_000, metadata=bounded(at_least=1, unit="records/s", reason="what one partition should carry")
    )

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, slots=True)
class PartitionDecision:
    """How many partitions a topic should have, and why."""

    partitions: int
    reason: str


@dataclass(frozen=True, slots=True)
class ConsumerDecision:
    """How many consumers a group should have, and why."""

    consumers: int
    reason: str


def decide_partitions(current: int, *, records_per_s: float, config: ScalabilityConfig) -> PartitionDecision:
    """Add partitions once the topic carries more than `scale_up_threshold` of what its partitions should.

    A growth ends at half of that share, unless `max_partitions` comes first.
    """
    _require_positive("current", current)
    threshold, target = config.scale_up_threshold, config.target_throughput_per_partition
    share = max(records_per_s, 0.0) / (current * target)
    carried = f"{records_per_s:,.0f} records/s are {share:.0%} of what {current} partitions should carry"
    if share <= threshold:
        return PartitionDecision(current, f"{carried}, growing starts above {threshold:.0%}")
    if current >= config.max_partitions:
        return PartitionDecision(current, f"{carried}, but {config.max_partitions} is the most")
    needed = min(records_per_s * _HEADROOM / (target * threshold), config.max_partitions)
    return PartitionDecision(
        min(max(current + 1, math.ceil(needed)), config.max_partitions), f"{carried}, more than {threshold:.0%}"
    )


def decide_consumers(
    current: int,
    *,
    lag: int,
    lag_ms: float,
    arrival_rate: float,
    capacity_per_consumer: float,
    partitions: int,
    config: ScalabilityConfig,
) -> ConsumerDecision:
    """Add consumers when the oldest unread record is older than `max_lag_ms`, enough to catch up within a minute.

    A capacity that is not known yet (0) adds one at a time. Never more than partitions, because the rest would have
    nothing to read. One consumer leaves at a time, and only while the lag is far below its limit.
    """
    _require_positive("partitions", partitions)
    ceiling = min(config.max_consumers, partitions)
    if current > ceiling:
        return ConsumerDecision(ceiling, f"{current} consumers are more than {ceiling} can be used")
    if current < 1:
        idle = lag <= 0
        return ConsumerDecision(0 if idle else 1, "nothing waits" if idle else f"{lag:,} records wait, nobody reads")
    behind = f"the oldest of {lag:,} unread records is {lag_ms / 1_000:,.1f} s old"
    if lag > 0 and lag_ms > config.max_lag_ms:
        needed = _needed(lag, arrival_rate, capacity_per_consumer) or current + 1
        return _more(current, max(needed, current + 1), ceiling, behind)
    calm = lag_ms <= config.max_lag_ms * _CALM_SHARE
    if calm and current > 1 and arrival_rate < _IDLE_SHARE * capacity_per_consumer * (current - 1):
        return ConsumerDecision(
            current - 1, f"{current - 1} consumers would be half idle at {arrival_rate:,.0f} records/s"
        )
    return ConsumerDecision(current, f"{behind}, the limit is {config.max_lag_ms / 1_000:g} s")


def _needed(lag: int, arrival_rate: float, capacity_per_consumer: float) -> int:
    """Return how many consumers catch up in time; 0 if that is not known."""
    if capacity_per_consumer <= 0:
        return 0
    needed = (max(arrival_rate, 0.0) + lag / _CATCH_UP_S) / capacity_per_consumer
    return math.ceil(min(needed, _MORE_THAN_ANYBODY_HAS))


def _more(current: int, wanted: int, ceiling: int, behind: str) -> ConsumerDecision:
    if current >= ceiling:
        return ConsumerDecision(current, f"{behind}, but {ceiling} consumers are the most")
    return ConsumerDecision(min(wanted, ceiling), behind)


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise InvalidValueError(name, value, "at least 1")
