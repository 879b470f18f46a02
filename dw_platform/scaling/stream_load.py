"""From two looks at a stream to its load: what comes in, what waits, what one consumer can read, what is ill.

Two kinds of partitions get behind without scaling being able to help, and neither asks for consumers:

* A *poisoned* one has something to read and is not read at all. Nothing of it counts, from the first look on at which
  it stands still; after `stuck_after` it is named.
* A *hot* one has a lag that stands out, and what comes in, with that lag, is more than one consumer can read in time.
  Only one may read a partition, so of its load no more than that counts, and its lag not at all, until the lag is
  gone. What does help it is that its consumer has little else to read: for that, and no further, consumers are added.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dw_platform.foundation import Ema
from dw_platform.foundation.ema import DEFAULT_ALPHA
from dw_platform.scaling.aligned import most_partitions
from dw_platform.scaling.stream_policy import StreamScalePolicy
from dw_platform.scaling.stream_reading import ReadOffsets, StreamReading
from dw_platform.scaling.stream_state import PartitionState, StreamScaleState

# A lag that stands out is this many times the mean of the others; what one slow consumer leaves behind does not.
_STANDS_OUT = 4.0


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """One partition between two looks."""

    state: PartitionState
    came: float
    """Records a second, in this interval."""

    read: float
    lag: int
    lag_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLoad:
    """What the decision is about."""

    rate: float
    """Records a second that consumers must read, smoothed."""

    latest: float
    """The same, in the last interval."""

    backlog: float
    """Records that wait, beyond those between two commits; without ill partitions."""

    capacity: float
    """Of one consumer; 0 while unknown."""

    partitions: Mapping[int, PartitionState]
    poisoned: tuple[int, ...]
    hot: tuple[int, ...]
    room: int
    """Consumers with which a hot partition's neighbours leave it `hot_room` of its own; 0 without one."""

    cramped: bool
    """Whether a hot partition gets less than that now."""

    standstill: bool
    """Nothing at all is read, and something has been waiting for long."""


def smoothed(value: float, sample: float, elapsed_s: float, policy: StreamScalePolicy) -> float:
    """Return the average after `sample`, which stands for all the looks that should have been since the last."""
    looks = elapsed_s / policy.sample_every.total_seconds()
    return Ema(1 - (1 - DEFAULT_ALPHA) ** max(looks, 1.0), value).update(sample)


def measure(reading: StreamReading, state: StreamScaleState, elapsed_s: float, policy: StreamScalePolicy) -> StreamLoad:
    """Return the load between the look in `state` and `reading`, `elapsed_s` later."""
    read_at_all = min(reading.consumers, state.running) > 0
    partitions = {
        number: _between(offsets, state.partitions.get(number), elapsed_s, policy, read_at_all=read_at_all)
        for number, offsets in reading.partitions.items()
    }
    stuck_s = policy.stuck_after.total_seconds()
    poisoned = tuple(number for number, each in partitions.items() if each.state.still_s >= stuck_s)
    sound = {number: each for number, each in partitions.items() if not each.state.still_s}
    capacity = _learned(partitions, reading, state, elapsed_s, policy)
    hot = tuple(number for number in sound if _is_hot(number, sound, capacity, policy))
    cool = [each for number, each in sound.items() if number not in hot]
    most = policy.target_share * capacity  # what a hot partition can ask for: one consumer
    room = _room(cool, len(partitions), capacity, policy) if hot else 0
    return StreamLoad(
        rate=sum(each.state.rate for each in cool) + sum(min(sound[number].state.rate, most) for number in hot),
        latest=sum(each.came for each in cool) + sum(min(sound[number].came, most) for number in hot),
        backlog=sum(max(0.0, each.lag - _usual_lag(each, policy)) for each in cool),
        capacity=capacity,
        partitions={number: replace(each.state, hot=number in hot) for number, each in partitions.items()},
        poisoned=poisoned,
        hot=hot,
        room=room,
        cramped=any(sound[number].read < policy.hot_room * capacity for number in hot),
        standstill=bool(poisoned) and not any(each.read for each in partitions.values()),
    )


def first_look(reading: StreamReading) -> dict[int, PartitionState]:
    """Return the partitions as a state keeps them when nothing is known about earlier."""
    return {number: _new(offsets) for number, offsets in reading.partitions.items()}


def _new(offsets: ReadOffsets) -> PartitionState:
    return PartitionState(position=offsets.position, end=offsets.end)


def _between(
    offsets: ReadOffsets,
    before: PartitionState | None,
    elapsed_s: float,
    policy: StreamScalePolicy,
    *,
    read_at_all: bool,
) -> PartitionLoad:
    lag = max(0, offsets.end - offsets.position)
    if before is None or offsets.end < before.end or offsets.position < before.position:
        # New, made anew, or a reader that was sent back: there is no interval to measure.
        return PartitionLoad(_new(offsets), 0.0, 0.0, lag, 0)
    came, read = (offsets.end - before.end) / elapsed_s, (offsets.position - before.position) / elapsed_s
    lag_before = max(0, before.end - before.position)
    rate = smoothed(before.rate, came, elapsed_s, policy)
    older = lag_before > 0 or lag > max(rate, came) * policy.in_flight.total_seconds()
    stood_still = read_at_all and lag > 0 and older and offsets.position == before.position
    state = PartitionState(
        position=offsets.position,
        end=offsets.end,
        rate=rate,
        still_s=before.still_s + elapsed_s if stood_still else 0.0,
        hot=before.hot,
    )
    return PartitionLoad(state, came, read, lag, lag_before)


def _learned(
    partitions: Mapping[int, PartitionLoad],
    reading: StreamReading,
    state: StreamScaleState,
    elapsed_s: float,
    policy: StreamScalePolicy,
) -> float:
    """Return one consumer's capacity, moved towards what consumers that had enough to read have read."""
    consumers = min(reading.consumers, len(partitions))
    if consumers < 1 or reading.consumers != state.running:
        return state.capacity  # somebody came or went: part of the interval nobody read
    on_average = sum(each.read for each in partitions.values()) / consumers
    sample = _saturated(partitions, consumers, on_average, policy)
    if sample <= 0 and state.capacity:
        sample = max(on_average, state.capacity)  # not busy, and yet faster than was thought
    if sample <= 0:
        return state.capacity
    return smoothed(state.capacity, sample, elapsed_s, policy) if state.capacity else sample


def _saturated(
    partitions: Mapping[int, PartitionLoad], consumers: int, on_average: float, policy: StreamScalePolicy
) -> float:
    """Return what a consumer reads that had more to read than it could; 0 if there was none.

    Which consumers those were is told by the partitions that stay behind. Their readers hold as many partitions as
    anybody does; the others of these partitions are taken for average ones.
    """
    sound = [each for each in partitions.values() if not each.state.still_s]
    held = most_partitions(consumers, len(partitions))
    behind = [each for each in sound if _stays_behind(each, policy)]
    if len(behind) < min(held, len(sound)):
        # Too few for a whole consumer: one partition that has just got stuck looks the same until the next look.
        behind = [each for each in behind if each.lag_before > _usual_lag(each, policy)]
    if not behind:
        return 0.0
    if len(behind) == len(sound):
        return on_average
    read = sum(each.read for each in behind)
    if len(behind) >= held:
        return read * held / len(behind)
    others = (sum(each.read for each in sound) - read) / (len(sound) - len(behind))
    return read + (held - len(behind)) * others


def _usual_lag(each: PartitionLoad, policy: StreamScalePolicy) -> float:
    return max(each.state.rate, each.came) * policy.in_flight.total_seconds()


def _stays_behind(each: PartitionLoad, policy: StreamScalePolicy) -> bool:
    """Whether there was something to read all the time: lag before and after, or more new lag than that."""
    usual = _usual_lag(each, policy)
    return each.lag > usual and (each.lag_before > usual or each.lag - each.lag_before > usual)


def _room(cool: Sequence[PartitionLoad], partitions: int, capacity: float, policy: StreamScalePolicy) -> int:
    neighbour = sum(each.state.rate for each in cool) / max(len(cool), 1)
    left = (1 - policy.hot_room) * capacity
    held = 1 + math.floor(min(left / neighbour, partitions - 1)) if neighbour > 0 else partitions
    return math.ceil(partitions / held)


def _is_hot(number: int, sound: Mapping[int, PartitionLoad], capacity: float, policy: StreamScalePolicy) -> bool:
    """Return whether its lag stands out and is too much for one consumer; once so, until that lag is gone."""
    each = sound[number]
    usual = _usual_lag(each, policy)
    if not capacity or len(sound) < 2 or each.lag <= usual:
        return False
    if each.state.hot:
        return True
    others = (sum(other.lag for other in sound.values()) - each.lag) / (len(sound) - 1)
    alone = max(each.state.rate, each.came) + (each.lag - usual) / policy.catch_up.total_seconds()
    return each.lag > _STANDS_OUT * others and alone > capacity
