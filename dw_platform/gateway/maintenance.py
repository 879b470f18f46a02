"""Retention and compaction of what this process writes: every now and then, on a thread of its own.

Tasks run one after the other. One that fails is logged and tried again the next time; the others still run.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock, PlatformError

log = logging.getLogger(__name__)

# Retention is about hours and gigabytes; a look costs a few system calls a partition.
EVERY_S = 30.0


class Maintenance:
    """Runs tasks between `start` and `close`."""

    def __init__(
        self, tasks: Callable[[], Mapping[str, Callable[[], None]]], *, clock: Clock, every_s: float = EVERY_S
    ) -> None:
        """`tasks` is asked each time, because topics come and go."""
        self._tasks, self._clock, self._every_s = tasks, clock, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gateway-maintenance", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop after the task under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def run_once(self) -> None:
        """Run all tasks now, on the caller's thread."""
        try:
            tasks = self._tasks()
        except Exception:
            log.exception("maintenance has nothing to do, because its tasks cannot be listed")
            return
        for name, task in tasks.items():
            if self._stop.is_set():
                return
            _attempt(name, task)

    def _run(self) -> None:
        while not self._clock.wait(self._stop, self._every_s):
            self.run_once()


def _attempt(name: str, task: Callable[[], None]) -> None:
    try:
        task()
    except PlatformError as error:
        log.warning("maintenance of %s failed: %s", name, error)
    except Exception:
        # A thread that dies silently would let the disk fill.
        log.exception("maintenance of %s failed", name)
