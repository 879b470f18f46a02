"""Time as an argument: no decision depends on when a test happens to run."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from dw_platform.foundation.errors import InvalidValueError


class Clock(Protocol):
    """Wall time for records, monotonic time for durations, and waiting that a stop can cut short."""

    def now(self) -> datetime:
        """Return the wall time, aware and in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait until `stop` is set or `seconds` have passed; return whether `stop` is set."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(seconds)


class FakeClock:
    """A clock that moves only when told to, for tests and for the simulator."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        if not stop.is_set():
            self.advance(seconds)
        return stop.is_set()

    def advance(self, seconds: float) -> None:
        """Move both clocks forward together."""
        if seconds < 0:
            raise InvalidValueError("seconds", seconds, "not negative, because monotonic time never goes back")
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
