"""From a stream's load to numbers: consumers that are asked for, consumers that would do, slots, and a batch."""

import math
from dataclasses import dataclass

from dw_platform.scaling.aligned import consumers_for, share_of_busiest, useful_consumers
from dw_platform.scaling.stream_load import StreamLoad
from dw_platform.scaling.stream_policy import StreamScalePolicy

# Lag of a third of what is allowed is acted on: what is decided now helps when consumers have started.
_ACT_AT = 1 / 3


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most consumers that there may be."""

    least: int
    most: int

    def clamp(self, consumers: int) -> int:
        """Return the number of consumers within the bounds that is nearest."""
        return min(max(consumers, self.least), self.most)


def bounds_of(partitions: int, policy: StreamScalePolicy) -> Bounds:
    """Return the policy's bounds for a topic; more consumers than partitions would have nothing to read."""
    most = useful_consumers(policy.scalability.max_consumers, partitions)
    return Bounds(min(policy.min_consumers, most), most)


def asked_for(load: StreamLoad, wanted: int, policy: StreamScalePolicy, bounds: Bounds) -> int:
    """Return how many consumers are needed now; `wanted` if those there are will do."""
    partitions, behind = len(load.partitions), load.backlog > load.rate * policy.max_lag_s * _ACT_AT
    if not load.capacity:
        unknown = useful_consumers(wanted * 2, partitions) if behind else int(load.rate > 0)
        return max(bounds.clamp(max(unknown, wanted + behind)), wanted)
    asked = load.room if load.cramped else 0
    busiest = share_of_busiest(load.rate, wanted, partitions, load.capacity)
    surge = share_of_busiest(load.latest, wanted, partitions, load.capacity)
    catching_up = consumers_for(_with_backlog(load.rate, load, policy), partitions, load.capacity)
    if busiest > policy.grow_share or surge > 1 or (behind and catching_up > wanted):
        steady = consumers_for(_highest(load) / policy.target_share, partitions, load.capacity)
        asked = max(asked, steady, catching_up)
    return max(bounds.clamp(asked), wanted)


def enough_for(load: StreamLoad, policy: StreamScalePolicy, bounds: Bounds) -> int:
    """Return how many consumers would do, with what waits being read in time."""
    if not load.capacity:
        return bounds.most if load.rate or load.backlog else bounds.least
    partitions, rate = len(load.partitions), _highest(load)
    steady = consumers_for(rate / policy.target_share, partitions, load.capacity)
    catching_up = consumers_for(_with_backlog(rate, load, policy), partitions, load.capacity)
    return bounds.clamp(max(steady, catching_up, load.room))


def slots_for(consumers: int, policy: StreamScalePolicy) -> int:
    """Return the slots of the stream's pool."""
    return math.ceil(consumers / policy.consumers_per_slot)


def batch_for(before: int, capacity: float, consumers: int, policy: StreamScalePolicy) -> int:
    """Return a batch that takes `batch_for` to read, a power of two; the one before while it is within a factor of two.

    While the capacity is not known, that is the smallest.
    """
    ideal = capacity * max(consumers, 1) * policy.batch_for.total_seconds()
    if not ideal or (before and before / 2 <= ideal <= before * 2):
        return min(max(before, policy.min_batch), policy.max_batch)
    power: int = 2 ** min(round(math.log2(max(ideal, 1.0))), 62)
    return min(max(power, policy.min_batch), policy.max_batch)


def _highest(load: StreamLoad) -> float:
    return max(load.rate, load.latest)


def _with_backlog(rate: float, load: StreamLoad, policy: StreamScalePolicy) -> float:
    return rate + load.backlog / policy.catch_up.total_seconds()
