"""Adding partitions to a topic while it is published to and read, keeping the order within each key.

Publishers pause, what is on its way arrives, every group that counts reads to the end, and only then keys are spread
over more partitions. If that takes too long, publishers go on as before and the growth is put off, with its reason.

Crash: the broker's topic is grown first, the number that publishers use is written afterwards (see partition_map.py).
In between publishers, and those of a restarted process, use the old number; the growth is then tried again. Publishers
in other processes pause and go on together with these (see fellows.py).
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from dw_platform.foundation import Clock
from dw_platform.streaming.depth import read_positions
from dw_platform.streaming.partition_map import MapState
from dw_platform.streaming.stream import Stream
from dw_platform.streaming.waits import run

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.02
_MARGIN = timedelta(seconds=10)
# A lag that is read within the wait is no reason to put a growth off; so many are read in no time.
_LITTLE = 10_000
# How long a producer has to finish a batch of which only a part was written.
_UNFINISHED_WITHIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Growth:
    """What became of an attempt to grow a topic."""

    topic: str
    partitions: int
    """Used from now on."""

    grown: bool
    reason: str


def grow(
    stream: Stream, partitions: int, groups: Sequence[str], *, wait: timedelta, clock: Clock, why: str = ""
) -> Growth:
    """Let publishers use `partitions` from now on, once every one of `groups` has read everything.

    Publishers pause for `wait` at most. Raises what the broker or the store raises; then nothing has changed for
    publishers.
    """
    before = stream.gate.partitions
    reason = _obstacle(stream, groups, wait)
    if reason is None:
        reason = _paused(stream, partitions, groups, wait, clock)
    grown = reason is None
    outcome = Growth(stream.topic, stream.gate.partitions, grown, why if grown else str(reason))
    facts = {"topic": stream.topic, "before": before, "wanted": partitions, "reason": outcome.reason}
    log.info("partitions added" if grown else "growth put off", extra=facts)
    return outcome


def _obstacle(stream: Stream, groups: Sequence[str], wait: timedelta) -> str | None:
    """Return why it is not worth pausing anybody."""
    if stream.ledger.unfinished(_UNFINISHED_WITHIN):
        return "the last batch of a producer is only partly written, and its rest belongs to the partitions of then"
    lag = read_positions(stream.broker, stream.topic, groups).depth
    likely = max(stream.traffic.published.per_second() * wait.total_seconds(), _LITTLE)
    if lag > likely:
        return f"{lag:,} records wait to be read, too many to pause publishers for"
    return None


def _paused(stream: Stream, partitions: int, groups: Sequence[str], wait: timedelta, clock: Clock) -> str | None:
    """Pause publishers, drain and switch; return why not if that was not possible in time."""
    # Twice as long as it takes: a pause that nobody ends keeps publishers out until then.
    paused = stream.fellows.pause(2 * wait + _MARGIN)
    if paused is None:
        return "another process is adding partitions"
    deadline = clock.monotonic() + wait.total_seconds()
    drained = False
    try:
        reason = _drained(stream, groups, paused, deadline, clock)
        if reason is not None:
            return f"{reason} after {wait.total_seconds():g} s"
        if stream.broker.topic(stream.topic).partitions < partitions:
            stream.broker.grow(stream.topic, partitions)
        drained = True
    finally:
        in_time = stream.fellows.resume(paused, partitions if drained else None)
    return None if in_time else "it took so long that the others went on publishing"


def _drained(stream: Stream, groups: Sequence[str], paused: MapState, deadline: float, clock: Clock) -> str | None:
    """Wait until nothing is on its way and everything is read; return what was still in the way at the deadline."""
    left_s = max(deadline - clock.monotonic(), 0.0)
    if not run(stream.gate.idle(left_s)):
        return "publishes were still on their way"
    while reason := _in_the_way(stream, groups, paused):
        if clock.monotonic() >= deadline:
            return reason
        clock.wait(threading.Event(), _LOOK_EVERY_S)
    return None


def _in_the_way(stream: Stream, groups: Sequence[str], paused: MapState) -> str | None:
    if others := stream.fellows.publishing(paused):
        return f"{', '.join(others)} had not stopped publishing"
    lag = read_positions(stream.broker, stream.topic, groups).depth
    return f"{lag:,} records were still unread" if lag else None
