"""Taking samples of the disks: when asked, on a thread of its own, or from one tick of a sensor to the next.

Where there are no counters, a sample says why and has no number: nothing known is not nothing to do.
"""

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dw_platform.fileio.diskstats import CounterSource, DiskStats
from dw_platform.fileio.errors import DiskCountersError
from dw_platform.fileio.utilisation import UtilisationReading, UtilisationState, advance, is_due
from dw_platform.foundation import Clock, InvalidValueError, SystemClock
from dw_platform.foundation.ticker import Ticker

_FIRST = "the first sample: there is nothing yet to compare it with"


@dataclass(frozen=True, slots=True)
class UtilisationSample:
    """What is known about the disks now."""

    reading: UtilisationReading | None
    reason: str
    """Why there is no reading; empty if there is one."""

    stalled: float | None = None
    """Share of the last ten seconds in which some task of the machine waited for I/O; None if nobody counts it."""

    @property
    def utilisation(self) -> float | None:
        """The smoothed utilisation, as decisions read it."""
        return None if self.reading is None else self.reading.smoothed


@dataclass(frozen=True, slots=True)
class UtilisationTick:
    """A sample, and the cursor to hand in with the next one."""

    sample: UtilisationSample
    cursor: str | None


class UtilisationSampler:
    """Samples at a fixed interval; any thread may ask.

    Pull: `sample` reads the counters if half an interval has passed and returns the last sample otherwise, so two
    who ask do not count the same time twice. Push: between `start` and `close` a thread of its own samples.
    """

    def __init__(
        self, source: CounterSource | None = None, *, interval_s: float = 1.0, clock: Clock | None = None
    ) -> None:
        self._source, self._clock = source or DiskStats(), clock or SystemClock()
        self._interval_s = _checked(interval_s)
        self._lock = threading.Lock()
        self._state: UtilisationState | None = None
        self._latest = UtilisationSample(None, "nothing was sampled yet")
        self._thread = Ticker("disk-utilisation", self.sample, lambda: self._interval_s, clock=self._clock)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def latest(self) -> UtilisationSample:
        """The last sample, without reading anything."""
        return self._latest

    def sample(self) -> UtilisationSample:
        """Return a sample that is not older than half an interval."""
        with self._lock:
            self._state, self._latest = _sampled(
                self._source, self._state, self._latest, clock=self._clock, interval_s=self._interval_s
            )
            return self._latest

    def reconfigure(self, interval_s: float) -> None:
        """Sample at another interval from now on."""
        self._interval_s = _checked(interval_s)

    def start(self) -> None:
        """Sample on a thread of its own; starting twice is harmless."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; `sample` still works."""
        self._thread.stop()


def sample_once(
    cursor: str | None,
    *,
    interval_s: float,
    source: CounterSource | None = None,
    clock: Clock | None = None,
) -> UtilisationTick:
    """Take one sample and return it with the cursor for the next, for a sensor that lives only for a tick.

    A cursor that cannot be read (written by another version) counts as none: the next tick has a reading again.
    """
    state = _remembered(cursor)
    before = UtilisationSample(state.reading if state else None, "" if state and state.reading else _FIRST)
    after, sample = _sampled(
        source or DiskStats(), state, before, clock=clock or SystemClock(), interval_s=_checked(interval_s)
    )
    return UtilisationTick(sample, None if after is None else after.to_json())


def _sampled(
    source: CounterSource,
    state: UtilisationState | None,
    latest: UtilisationSample,
    *,
    clock: Clock,
    interval_s: float,
) -> tuple[UtilisationState | None, UtilisationSample]:
    if not is_due(state, clock.monotonic(), interval_s=interval_s):
        return state, latest
    try:
        counters = source.read()
    except DiskCountersError as error:
        return None, UtilisationSample(None, str(error), source.stalled())
    after = advance(state, counters, clock.monotonic(), interval_s=interval_s)
    return after, UtilisationSample(after.reading, "" if after.reading else _FIRST, source.stalled())


def _remembered(cursor: str | None) -> UtilisationState | None:
    if not cursor:
        return None
    try:
        return UtilisationState.from_json(cursor)
    except InvalidValueError:
        return None


def _checked(interval_s: float) -> float:
    if not interval_s > 0:
        raise InvalidValueError("interval_s", interval_s, "above 0")
    return interval_s
