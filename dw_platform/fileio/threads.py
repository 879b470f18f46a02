"""Threads that run jobs as soon as they are handed over: as many as there are jobs at once, never more.

Who hands over a job holds a slot for it, and the thread that ran it gives the slot back, so the queue depth bounds
the threads. A thread ends when it had nothing to do for a while; the last one stays, so a machine that refuses new
threads cannot stop work that has a slot.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

log = logging.getLogger(__name__)

_IDLE_S = 10.0


class Runnable(Protocol):
    """What is handed over; neither method raises."""

    def run(self) -> None:
        """Do the work, which may take long."""

    def leave(self) -> None:
        """Give back the slot, which may hand over the next job to the same threads."""


class DispatchThreads:
    """A group of threads that starts with its first job."""

    def __init__(
        self,
        name: str,
        *,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
        idle_s: float = _IDLE_S,
    ) -> None:
        """Each thread lives inside one `around()`, such as `polite_thread`."""
        self._name, self._around, self._idle_s = name, around, idle_s
        self._changed = threading.Condition()
        self._ready = deque[Runnable]()
        self._threads = set[threading.Thread]()
        # Threads that look for a job without doing anything long before.
        self._free = 0
        self._closing = False

    def __len__(self) -> int:
        return len(self._threads)

    def prepare(self) -> None:
        """Make sure that there is a thread at all; raises RuntimeError if the machine has none to give."""
        with self._changed:
            if not self._threads:
                self._start()

    def hand(self, job: Runnable) -> None:
        """Run `job` on a thread that has nothing else to do; after `close` as well, so that none is lost."""
        with self._changed:
            self._ready.append(job)
            if len(self._ready) <= self._free:
                self._changed.notify()
                return
            try:
                self._start()
            except RuntimeError as error:
                if not self._threads:
                    raise
                log.warning("no further thread, jobs wait for one", extra={"reason": str(error)})

    def close(self) -> None:
        """End the threads once all jobs that were handed over are done."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            threads = tuple(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _start(self) -> None:
        thread = threading.Thread(target=self._live, name=self._name, daemon=True)
        thread.start()
        self._threads.add(thread)
        self._free += 1

    def _live(self) -> None:
        with self._around():
            while (job := self._next()) is not None:
                job.run()
                with self._changed:
                    self._free += 1  # before the slot goes to the next job, for which this thread is then there
                job.leave()

    def _next(self) -> Runnable | None:
        """Return the next job, or None if this thread is not needed any more and has left."""
        with self._changed:
            while not self._ready and not self._closing:
                if not self._changed.wait(self._idle_s) and not self._ready and len(self._threads) > 1:
                    break
            self._free -= 1
            if self._ready:
                return self._ready.popleft()
            self._threads.discard(threading.current_thread())
            return None
