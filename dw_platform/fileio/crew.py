"""Threads that work through one list of pieces, as many at once as a rule allows at that moment.

    crew = Crew(copy, pace=lambda streams: decide(streams).limit, every_s=1.0)
    results = crew.run(pieces)

More threads are started as soon as the rule allows more; one too many ends with its piece. The first error stops the
others at their next piece, or earlier where the work asks `stopped`; then it is raised.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from dw_platform.foundation import Clock, PermanentError, SystemClock

P = TypeVar("P")
R = TypeVar("R")


class CrewStoppedError(PermanentError):
    """Another piece failed, so this one is not finished."""

    def __init__(self) -> None:
        super().__init__("The work was stopped because another part of it failed; that part says why.")


class Crew(Generic[P, R]):
    """One run over a list of pieces."""

    def __init__(
        self,
        work: Callable[[P], R],
        *,
        pace: Callable[[int], int],
        every_s: float,
        streams: int = 1,
        manners: Callable[[], AbstractContextManager[Any]] = nullcontext,
        clock: Clock | None = None,
    ) -> None:
        """Begin with `streams` threads and ask `pace` for another number every so often; `manners` wraps a thread."""
        self._work, self._pace, self._every_s, self._limit = work, pace, every_s, max(1, streams)
        self._manners, self._clock = manners, clock or SystemClock()
        self._lock = threading.Lock()
        self._pieces: deque[tuple[int, P]] = deque()
        self._results: dict[int, R] = {}
        self._error: BaseException | None = None
        self._running = 0
        self._ended, self._stop = threading.Event(), threading.Event()

    @property
    def streams(self) -> int:
        """How many pieces may be worked on at once now."""
        return self._limit

    def check(self) -> None:
        """Raise CrewStoppedError if there is no use in going on; for work that takes long on one piece."""
        if self._stop.is_set():
            raise CrewStoppedError

    def run(self, pieces: Iterable[P]) -> list[R]:
        """Work on all pieces and return the results in their order; raises the first error after all have stopped."""
        self._pieces.extend(enumerate(pieces))
        threads = list[threading.Thread]()
        try:
            threads += self._filled_up()
            while not self._clock.wait(self._ended, self._every_s):
                self._limit = max(1, self._pace(self._limit))
                threads += self._filled_up()
        except BaseException:
            self._stop.set()
            raise
        finally:
            for thread in threads:
                thread.join()
        if self._error is not None:
            raise self._error
        return [self._results[number] for number in sorted(self._results)]

    def _filled_up(self) -> list[threading.Thread]:
        """Start as many threads as are allowed and have something to do."""
        with self._lock:
            missing = min(self._limit - self._running, len(self._pieces))
            started = [threading.Thread(target=self._live, name="crew", daemon=True) for _ in range(max(0, missing))]
            self._running += len(started)
            if not self._running:
                self._ended.set()
        for thread in started:
            thread.start()
        return started

    def _live(self) -> None:
        try:
            with self._manners():
                while (piece := self._next()) is not None:
                    number, what = piece
                    self._results[number] = self._work(what)
        except BaseException as error:  # noqa: BLE001  `run` raises it on its own thread
            self._stop.set()
            with self._lock:
                if self._error is None and not isinstance(error, CrewStoppedError):
                    self._error = error
                self._leave()

    def _next(self) -> tuple[int, P] | None:
        """Return the next piece; None if there is none for this thread, which has left then."""
        with self._lock:
            if not self._stop.is_set() and self._running <= self._limit and self._pieces:
                return self._pieces.popleft()
            self._leave()
            return None

    def _leave(self) -> None:
        self._running -= 1
        if not self._running and (self._stop.is_set() or not self._pieces):
            self._ended.set()
