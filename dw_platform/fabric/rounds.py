"""A thread that does its round again and again, through outages, until it is told to stop."""

import logging
import threading
from collections.abc import Callable

from dw_platform.foundation import Clock, PlatformError

log = logging.getLogger(__name__)


class Rounds:
    """Calls `work`, which returns the seconds until its next round; `hurry` cuts the wait short.

    An outage (a PlatformError) is logged when it begins and when it ends, and tried again after `retry_s()`.
    """

    def __init__(self, name: str, work: Callable[[], float], retry_s: Callable[[], float], *, clock: Clock) -> None:
        self._name, self._work, self._retry_s, self._clock = name, work, retry_s, clock
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.outage: str | None = None
        """Why the last round failed; None if it did not."""

    def start(self) -> None:
        """Begin; starting twice is harmless."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Do not wait for the next round."""
        self._wake.set()

    def stop(self) -> None:
        """End, and wait for the round under way; a round may call this, too."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            # Before the round, so that whoever hurries while it runs gets another one.
            self._wake.clear()
            pause_s = self._once()
            if not self._stop.is_set():
                self._clock.wait(self._wake, pause_s)

    def _once(self) -> float:
        try:
            pause_s = self._work()
        except PlatformError as error:
            if self.outage is None:
                log.warning("interrupted, it goes on", extra={"task": self._name, "reason": str(error)})
            self.outage = str(error)
        except Exception as error:
            # A node that died silently would be removed while its process works on.
            log.exception("failed, it goes on", extra={"task": self._name})
            self.outage = repr(error)
        else:
            if self.outage is not None:
                log.info("works again", extra={"task": self._name})
            self.outage = None
            return pause_s
        return self._retry_s()
