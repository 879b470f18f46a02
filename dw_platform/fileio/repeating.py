"""A thread that does one thing at a steady pace until it is stopped."""

import logging
import threading
from collections.abc import Callable

from dw_platform.foundation import Clock

log = logging.getLogger(__name__)


class Repeating:
    """Calls `work` every `period_s()` seconds; a call that fails is logged, and the next one comes in time."""

    def __init__(self, name: str, work: Callable[[], object], period_s: Callable[[], float], *, clock: Clock) -> None:
        self._name, self._work, self._period_s, self._clock = name, work, period_s, clock
        self._lock = threading.Lock()
        self._running: tuple[threading.Thread, threading.Event] | None = None

    def start(self) -> None:
        """Begin; starting twice is harmless."""
        with self._lock:
            if self._running is None:
                stop = threading.Event()  # one for each start, so a new start cannot revive a thread that is to end
                thread = threading.Thread(target=self._run, args=(stop,), name=self._name, daemon=True)
                thread.start()
                self._running = thread, stop

    def stop(self) -> None:
        """End, and wait for the call under way; stopping what does not run is harmless."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            thread, stop = running
            stop.set()
            if thread is not threading.current_thread():
                thread.join()

    def _run(self, stop: threading.Event) -> None:
        while True:
            try:
                self._work()
            except Exception:
                log.exception("failed, it goes on", extra={"task": self._name})
            if self._clock.wait(stop, self._period_s()):
                return
