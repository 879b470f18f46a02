"""How far a stream may grow, and how many partitions a topic should have; for consumers see stream_scale.py.

Growing starts above one share of the target and ends at half of it, so a rate that hovers near the bound moves once.
Partitions only grow: records stay where they are, so there is no way back.
"""

import math
from dataclasses import dataclass, field

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.limits import bounded, check_limits

# A growth stops publishers for a moment, so it makes room for twice the rate: the next one is a doubling away.
_HEADROOM = 2.0


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


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise InvalidValueError(name, value, "at least 1")
