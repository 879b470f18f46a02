"""A thread that does one thing again and again, and goes on when it fails."""

import logging
import threading
from collections.abc import Callable

from dw_platform.foundation.clock import Clock
from dw_platform.foundation.errors import PlatformError

log = logging.getLogger(__name__)


class Ticker:
    """Calls `work` every `period_s()` seconds while it runs, and at once after `hurry`.

    An outage (a PlatformError) is logged when it begins and when it ends, anything else every time.
    """

    def __init__(self, name: str, work: Callable[[], object], period_s: Callable[[], float], *, clock: Clock) -> None:
        self._name, self._work, self._period_s, self._clock = name, work, period_s, clock
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = self._outage = False

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._thread is not None

    def start(self) -> None:
        """Begin; starting twice is harmless, starting after `stop` does nothing."""
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._stopping:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def hurry(self) -> None:
        """Do not wait for the next time."""
        self._wake.set()

    def stop(self) -> None:
        """End, and wait for the work under way."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self._once()
            if not self._stopping:
                self._clock.wait(self._wake, self._period_s())

    def _once(self) -> None:
        try:
            self._work()
        except PlatformError as error:
            if not self._outage:
                log.warning("interrupted, it goes on", extra={"task": self._name, "reason": str(error)})
            self._outage = True
        except Exception:
            log.exception("failed, it goes on", extra={"task": self._name})
        else:
            if self._outage:
                log.info("works again", extra={"task": self._name})
            self._outage = False
