"""How busy the disks are, from two readings of the kernel's counters and the time between them.

`UtilisationState` is everything that is remembered between two samples, so it can wait in a sensor's cursor as well as
in memory: `advance` is pure. Of several disks the busiest is reported, because it is the one that others wait for.

Smoothing: an average with alpha 0.3 for one interval. A sample that comes late moves it as far as the samples that
are missing would have, `1 - 0.7 ** (elapsed / interval)`, so a late thread or a skipped tick does not change how much
the past counts. Where the past cannot be compared (another boot, counters that fell, a gap of 20 intervals), nothing
is reported and it starts anew.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from dw_platform.fileio.diskstats import CounterReading, DiskCounters
from dw_platform.foundation import Ema, InvalidValueError
from dw_platform.foundation.ema import DEFAULT_ALPHA

# A thread that is woken early must not divide by next to nothing.
_EARLIEST_SHARE = 0.5
# An average over more than this says nothing about now.
_LONGEST_GAP = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationReading:
    """The busiest disk over the last interval."""

    disk: str
    utilisation: float
    """Share of the time with at least one request under way, 0 to 1; on flash 1 does not mean saturated."""

    smoothed: float
    """The average of utilisation."""

    in_flight: int
    """Requests under way when it was read."""

    queue_length: float
    """Requests under way on average."""

    await_ms: float
    """What a request took on average, waiting included; 0 if none ended."""

    requests_per_s: float
    read_bytes_per_s: float
    written_bytes_per_s: float
    elapsed_s: float

    @property
    def bytes_per_s(self) -> float:
        """Read and written."""
        return self.read_bytes_per_s + self.written_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationState:
    """The last counters and what was made of them; as text it fits into a cursor."""

    at_s: float
    """Monotonic time of the machine, which is the same for all of its processes."""

    counters: CounterReading
    reading: UtilisationReading | None = None
    """None until there are two samples to compare."""

    def to_json(self) -> str:
        """Return the state as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; anything else is refused."""
        try:
            content: dict[str, Any] = json.loads(text)
            counters = content["counters"]
            disks = {name: DiskCounters(**disk) for name, disk in counters["disks"].items()}
            reading = content["reading"]
            return cls(
                at_s=float(content["at_s"]),
                counters=CounterReading(boot=str(counters["boot"]), disks=disks),
                reading=None if reading is None else UtilisationReading(**reading),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidValueError("state", text, "what UtilisationState.to_json has written") from error


def is_due(state: UtilisationState | None, at_s: float, *, interval_s: float) -> bool:
    """Return whether it is time for another sample: an early one would only measure noise."""
    return state is None or at_s < state.at_s or at_s - state.at_s >= interval_s * _EARLIEST_SHARE


def advance(
    state: UtilisationState | None, counters: CounterReading, at_s: float, *, interval_s: float
) -> UtilisationState:
    """Return the state after counters that were read at `at_s`."""
    fresh = UtilisationState(at_s=at_s, counters=counters)
    if state is None or state.counters.boot != counters.boot:
        return fresh
    elapsed_s = at_s - state.at_s
    if not 0 < elapsed_s <= interval_s * _LONGEST_GAP:
        return fresh
    changes = _changes(state.counters.disks, counters.disks)
    if not changes:
        return fresh
    busiest = max(changes, key=lambda name: changes[name].busy_ms)
    utilisation = min(changes[busiest].busy_ms / (elapsed_s * 1_000), 1.0)
    smoothed = _smoothed(state.reading, utilisation, elapsed_s / interval_s)
    return replace(fresh, reading=_reading(busiest, changes[busiest], utilisation, smoothed, elapsed_s))


def _changes(before: Mapping[str, DiskCounters], after: Mapping[str, DiskCounters]) -> dict[str, DiskCounters]:
    """Return what each disk did in between; a disk that is new, or whose counters fell, is left out."""
    changes = {name: _change(before[name], now) for name, now in after.items() if name in before}
    # Some kernels keep the times in 32 bits, which pass zero every 49 days of work.
    return {name: change for name, change in changes.items() if min(asdict(change).values()) >= 0}


def _change(before: DiskCounters, after: DiskCounters) -> DiskCounters:
    return DiskCounters(
        requests=after.requests - before.requests,
        request_ms=after.request_ms - before.request_ms,
        read_bytes=after.read_bytes - before.read_bytes,
        written_bytes=after.written_bytes - before.written_bytes,
        in_flight=after.in_flight,
        busy_ms=after.busy_ms - before.busy_ms,
        queue_ms=after.queue_ms - before.queue_ms,
    )


def _smoothed(before: UtilisationReading | None, utilisation: float, intervals: float) -> float:
    alpha = 1 - (1 - DEFAULT_ALPHA) ** intervals
    return Ema(alpha, None if before is None else before.smoothed).update(utilisation)


def _reading(
    disk: str, change: DiskCounters, utilisation: float, smoothed: float, elapsed_s: float
) -> UtilisationReading:
    return UtilisationReading(
        disk=disk,
        utilisation=utilisation,
        smoothed=smoothed,
        in_flight=change.in_flight,
        queue_length=change.queue_ms / (elapsed_s * 1_000),
        await_ms=change.request_ms / change.requests if change.requests else 0.0,
        requests_per_s=change.requests / elapsed_s,
        read_bytes_per_s=change.read_bytes / elapsed_s,
        written_bytes_per_s=change.written_bytes / elapsed_s,
        elapsed_s=elapsed_s,
    )
