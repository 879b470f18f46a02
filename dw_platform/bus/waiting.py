"""How a thread waits for another one: the trade between latency and the processor time it costs."""

import threading
import time
from collections.abc import Callable
from enum import StrEnum


class WaitStrategy(StrEnum):
    """What a thread does while it has nothing to do."""

    SPIN = "spin"
    """Look again at once: the lowest latency, and a whole core."""

    YIELD = "yield"
    """Look again after every other ready thread had its turn."""

    BLOCK = "block"
    """Sleep until woken: no processor time, some microseconds of latency."""


class Signal:
    """One side waits for a condition, the other makes it true and then wakes.

    The waker looks at `waiting` first, which costs nothing while nobody waits. No wake-up is lost: a waiter raises
    `waiting` before it looks at the condition for the last time, the waker makes the condition true before it looks
    at `waiting`. A waker for whom even that look is too much is told by `on_wait`, between the two.
    """

    def __init__(self, strategy: WaitStrategy, *, on_wait: Callable[[], object] | None = None) -> None:
        self._on_wait = on_wait
        self._pause = {WaitStrategy.SPIN: _spin, WaitStrategy.YIELD: _yield}.get(strategy)
        self._changed = threading.Condition()
        self.waiting = False

    def wake(self) -> None:
        """Let every waiter look again."""
        with self._changed:
            # Lowered here and not by the waiters, which run later: until then every wake-up would be for nothing.
            self.waiting = False
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until `condition` holds; return whether it does."""
        if condition():
            return True
        if self._pause:
            return _poll(condition, self._pause, timeout_s)

        def look_again() -> bool:
            self.waiting = True
            if self._on_wait:
                self._on_wait()
            return condition()

        with self._changed:
            return self._changed.wait_for(look_again, timeout_s)


def _poll(condition: Callable[[], bool], pause: Callable[[], None], timeout_s: float | None) -> bool:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while not condition():
        if deadline is not None and time.monotonic() >= deadline:
            return condition()
        pause()
    return True


def _spin() -> None:
    """Do nothing; the interpreter hands over to another thread by itself every few milliseconds."""


def _yield() -> None:
    time.sleep(0)
