"""How many consumers a stream should have: a pure decision that does not flap.

Sized by load, not by lag. A rule that follows lag alone adds consumers when it is late, takes them away as soon as they
have helped, and begins again. Here the rate that comes in, and the measured capacity of one consumer, say how many are
needed; lag only adds what catches up with it in time.

* Up at once: when the busiest consumer has more than `grow_share` to do, when more comes in than can be read, or when
  lag would not be caught up with in time. To where the busiest has `target_share` to do, in one step.
* Down slowly: when fewer would have been enough for the whole of `shrink_after`, to the most that was needed in it. A
  reduction that had to be taken back doubles the wait for the next one.
* Only to numbers that make the busiest consumer faster (aligned.py), within the policy's bounds and never more than
  partitions.
* A look that comes sooner than `sample_every` changes nothing, and nothing is added within `settle` of a change.
* Poisoned and hot partitions (stream_load.py) are named in the reason instead.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dw_platform.foundation import format_duration
from dw_platform.scaling.aligned import share_of_busiest
from dw_platform.scaling.stream_load import StreamLoad, first_look, measure
from dw_platform.scaling.stream_policy import StreamScalePolicy
from dw_platform.scaling.stream_reading import StreamReading
from dw_platform.scaling.stream_sizing import Bounds, asked_for, batch_for, bounds_of, enough_for, slots_for
from dw_platform.scaling.stream_state import StreamScaleState
from dw_platform.scaling.streams import decide_partitions

# Rates of a state that has missed this many looks are too old to go on from; the capacity is not.
_LOOKS_MISSED = 20
# A look that is a moment early counts: a sensor's ticks are not exact, and leaving one out would halve its pace.
_EARLY = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamScaleDecision:
    """What should be, why, and what to remember until the next look."""

    consumers: int
    partitions: int
    slots: int
    """Of the stream's pool: one for every `consumers_per_slot` consumers."""

    batch: int
    """Records to take at once; a power of two, so that it rarely changes."""

    reason: str
    poisoned: tuple[int, ...] = ()
    hot: tuple[int, ...] = ()
    state: StreamScaleState


def decide_stream_scale(
    reading: StreamReading, state: StreamScaleState, policy: StreamScalePolicy
) -> StreamScaleDecision:
    """Return how many consumers should read the stream from now on."""
    bounds = bounds_of(len(reading.partitions), policy)
    state = replace(state, wanted=bounds.clamp(reading.consumers if state.wanted is None else state.wanted))
    elapsed = None if state.at is None else reading.at - state.at
    if elapsed is not None and timedelta(0) <= elapsed < policy.sample_every * _EARLY:
        every, passed = format_duration(policy.sample_every), elapsed.total_seconds()
        return _decided(reading, state, policy, f"the last look was {passed:.0f} s ago, one counts every {every}")
    if elapsed is None or not timedelta(0) <= elapsed <= policy.sample_every * _LOOKS_MISSED:
        begun = replace(
            state, at=reading.at, partitions=first_look(reading), running=reading.consumers, calm_since=None
        )
        return _decided(reading, begun, policy, "the first look, rates need a second one")
    load = measure(reading, state, elapsed.total_seconds(), policy)
    looked = replace(
        state, at=reading.at, partitions=load.partitions, running=reading.consumers, capacity=load.capacity
    )
    after, reason = _after(looked, load, policy, bounds)
    return _decided(reading, after, policy, reason + _missing(reading, after) + _ill(load), load)


def _after(
    state: StreamScaleState, load: StreamLoad, policy: StreamScalePolicy, bounds: Bounds
) -> tuple[StreamScaleState, str]:
    """Return the state after a look that counts, with what is wanted from now on, and why."""
    wanted, told = _wanted(state), _told(state, load)
    if load.standstill:
        return replace(state, calm_since=None), f"{told}; nothing is read, and more consumers would not read either"
    if wanted and not state.running:
        return replace(state, calm_since=None), told  # none of them reads yet; more would not begin sooner
    asked = asked_for(load, wanted, policy, bounds)
    if asked > wanted and _within(state.changed_at, _now(state), policy.settle):
        return replace(state, calm_since=None), f"{told}; {wanted} consumers are still settling"
    if asked > wanted:
        return _grown(state, asked, policy), told
    enough = enough_for(load, policy, bounds)
    if enough >= wanted:
        return replace(state, calm_since=None), told
    return _calm(state, enough, policy, told)


def _grown(state: StreamScaleState, asked: int, policy: StreamScalePolicy) -> StreamScaleState:
    regretted = _within(state.shrunk_at, _now(state), _shrink_wait(state, policy))
    return replace(
        state,
        wanted=asked,
        changed_at=state.at,
        calm_since=None,
        shrunk_at=None,
        regrets=state.regrets + 1 if regretted else state.regrets,
    )


def _calm(state: StreamScaleState, enough: int, policy: StreamScalePolicy, told: str) -> tuple[StreamScaleState, str]:
    """Wait for `shrink_after`, and then go to the most that was needed meanwhile."""
    now, wait = _now(state), _shrink_wait(state, policy)
    # A peak that is not fewer is from before the bounds were lowered.
    since = state.calm_since if state.calm_since is not None and state.calm_peak < _wanted(state) else now
    peak = enough if since == now else max(state.calm_peak, enough)
    if now - since < wait:
        left = format_duration(timedelta(seconds=round((since + wait - now).total_seconds())))
        return replace(state, calm_since=since, calm_peak=peak), f"{told}; {peak} would do, and will if so for {left}"
    lasted = state.shrunk_at is not None and not _within(state.shrunk_at, now, wait)
    shrunk = replace(
        state,
        wanted=peak,
        changed_at=now,
        calm_since=None,
        shrunk_at=now,
        regrets=max(0, state.regrets - 1) if lasted else state.regrets,
    )
    return shrunk, f"{told}; {peak} have been enough for {format_duration(wait)}"


def _shrink_wait(state: StreamScaleState, policy: StreamScalePolicy) -> timedelta:
    doubled: timedelta = policy.shrink_after * 2 ** min(state.regrets, 10)
    return min(doubled, policy.longest_shrink_after)


def _within(since: datetime | None, now: datetime, span: timedelta) -> bool:
    return since is not None and now - since < span


def _now(state: StreamScaleState) -> datetime:
    assert state.at is not None, "the look that counts has been noted"
    return state.at


def _wanted(state: StreamScaleState) -> int:
    assert state.wanted is not None, "what is wanted begins with what there is"
    return state.wanted


def _told(state: StreamScaleState, load: StreamLoad) -> str:
    wanted, waiting = _wanted(state), f", {load.backlog:,.0f} records wait" if load.backlog >= 1 else ""
    if not load.capacity:
        return f"{load.rate:,.0f} records/s{waiting}; what one consumer can read is not known yet"
    busiest = share_of_busiest(max(load.rate, load.latest), wanted, len(load.partitions), load.capacity)
    return f"{load.rate:,.0f} records/s{waiting}; the busiest of {wanted} has {min(busiest, 99):.0%} to do"


def _missing(reading: StreamReading, state: StreamScaleState) -> str:
    wanted = _wanted(state)
    return f"; {reading.consumers} of them read so far" if reading.consumers < wanted else ""


def _ill(load: StreamLoad) -> str:
    told = ""
    if load.poisoned and not load.standstill:
        told += f"; partition {_listed(load.poisoned)} is not read at all, look at its next record"
    if load.hot:
        told += f"; partition {_listed(load.hot)} has more than one consumer can read, spread its keys"
    return told


def _listed(numbers: tuple[int, ...]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"


def _decided(
    reading: StreamReading,
    state: StreamScaleState,
    policy: StreamScalePolicy,
    reason: str,
    load: StreamLoad | None = None,
) -> StreamScaleDecision:
    consumers, current = _wanted(state), len(reading.partitions)
    rate = sum(partition.rate for partition in state.partitions.values())
    batch = batch_for(state.batch, state.capacity, consumers, policy)
    return StreamScaleDecision(
        consumers=consumers,
        partitions=decide_partitions(current, records_per_s=rate, config=policy.scalability).partitions
        if current
        else 0,
        slots=slots_for(consumers, policy),
        batch=batch,
        reason=reason,
        poisoned=load.poisoned if load else (),
        hot=load.hot if load else (),
        state=replace(state, batch=batch),
    )
