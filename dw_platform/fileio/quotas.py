"""What each caller has used of its hour, and how long it has to wait.

A caller's window is one hour long and begins with its first request after the last window ended. It is not the hour
of the clock on the wall, so callers do not all come back in the same second, a changed wall clock moves nothing, and
two numbers a caller are enough. The price: the end of one window and the start of the next may lie together, so within
any 60 minutes a caller gets at most two quotas, and only if it left the first one to the end.

Up to the soft share a caller is not slowed. From there on what is left is spread over the rest of the window: a request
for a tenth of what is left waits a tenth of the time that is left, behind the caller's earlier waits. No wait is longer
than `quota_longest_wait`. What does not fit is refused and costs nothing.

The numbers live in the process: a quota is per process, and ends with it.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from dw_platform.fileio.errors import QuotaExceededError
from dw_platform.fileio.limits import IoLimits
from dw_platform.foundation import Clock, InvalidValueError

WINDOW = timedelta(hours=1)
# Callers are names of subsystems and tables. Beyond this many, those are forgotten whose hour is over.
_MANY_CALLERS = 1_024


@dataclass(slots=True)
class _Window:
    ends_s: float
    """In monotonic time."""

    paced_until_s: float
    nbytes: int = 0
    requests: int = 0


class _Use(NamedTuple):
    unit: str
    used: int
    asked: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One request that a quota let through."""

    caller: str
    nbytes: int
    wait_s: float
    window_ends_s: float


class QuotaLedger:
    """Accounts of all callers; any thread may use it. It says how long to wait, its user waits."""

    def __init__(self, limits: IoLimits, *, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._windows: dict[str, _Window] = {}

    def admit(self, caller: str, nbytes: int) -> Charge:
        """Charge one request and return how long it waits; raises QuotaExceededError if it does not fit any more.

        One that no window could ever hold raises InvalidValueError.
        """
        with self._lock:
            limits, now_s = self._limits, self._clock.monotonic()
            window = self._window(caller, now_s)
            uses = tuple(_uses(window, nbytes, limits))
            self._refuse_what_does_not_fit(caller, uses, window.ends_s - now_s)
            wait_s = _wait_s(window, uses, now_s, limits)
            window.paced_until_s = now_s + wait_s
            window.nbytes += nbytes
            window.requests += 1
            return Charge(caller=caller, nbytes=nbytes, wait_s=wait_s, window_ends_s=window.ends_s)

    def refund(self, charge: Charge) -> None:
        """Take back the charge of a request that was never begun; of a window that is over there is nothing left."""
        with self._lock:
            window = self._windows.get(charge.caller)
            if window is not None and window.ends_s == charge.window_ends_s:
                window.nbytes -= charge.nbytes
                window.requests -= 1

    def used(self, caller: str) -> tuple[int, int]:
        """Return the bytes and the requests that the caller has used of its current window."""
        with self._lock:
            window = self._windows.get(caller)
            if window is None or window.ends_s <= self._clock.monotonic():
                return 0, 0
            return window.nbytes, window.requests

    def reconfigure(self, limits: IoLimits) -> None:
        """Judge by other quotas from now on; what was used stays used."""
        with self._lock:
            self._limits = limits

    def _window(self, caller: str, now_s: float) -> _Window:
        window = self._windows.get(caller)
        if window is None or window.ends_s <= now_s:
            if len(self._windows) >= _MANY_CALLERS:
                self._windows = {name: held for name, held in self._windows.items() if held.ends_s > now_s}
            window = _Window(ends_s=now_s + WINDOW.total_seconds(), paced_until_s=now_s)
            self._windows[caller] = window
        return window

    def _refuse_what_does_not_fit(self, caller: str, uses: tuple[_Use, ...], left_s: float) -> None:
        for use in uses:
            if use.asked > use.limit:
                raise InvalidValueError("nbytes", use.asked, f"at most {use.limit}, the quota of a whole hour")
            if use.used + use.asked > use.limit:
                ends = self._clock.now() + timedelta(seconds=left_s)
                raise QuotaExceededError(
                    caller, unit=use.unit, used=use.used, asked=use.asked, limit=use.limit, window_ends=ends
                )


def _uses(window: _Window, nbytes: int, limits: IoLimits) -> Iterator[_Use]:
    if limits.quota_bytes_per_hour is not None:
        yield _Use("bytes", window.nbytes, nbytes, limits.quota_bytes_per_hour)
    if limits.quota_requests_per_hour is not None:
        yield _Use("requests", window.requests, 1, limits.quota_requests_per_hour)


def _wait_s(window: _Window, uses: tuple[_Use, ...], now_s: float, limits: IoLimits) -> float:
    """Return how long the request waits, which keeps what is left in step with the time that is left."""
    # Requests of one caller wait one behind the other, or ten threads would spend the rest ten times as fast.
    begin_s = min(max(now_s, window.paced_until_s), window.ends_s)
    left_s = window.ends_s - begin_s
    shares = [
        use.asked / (use.limit - use.used)
        for use in uses
        if use.asked and use.used + use.asked > use.limit * limits.quota_soft_share
    ]
    if not shares:
        return 0.0
    return min(begin_s - now_s + left_s * max(shares), limits.quota_longest_wait.total_seconds())
