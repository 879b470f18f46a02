"""Counting delivery reports: a batch is done when each of its records has one, or was never handed over."""

import threading
from collections.abc import Callable
from typing import Any


class Batch:
    """What a publisher waits for; `finish` is called once, with the batch, when nothing is outstanding."""

    def __init__(self, records: int, finish: "Callable[[Batch], None]") -> None:
        self.base = self.last = -1
        self.error: BaseException | None = None
        self._left, self._finish, self._finished = records, finish, False
        self._lock = threading.Lock()

    def chunk(self, records: int, release: Callable[[], None]) -> "Chunk":
        """Return the counter of some of its records; `release` is called when they are done."""
        return Chunk(self, records, release)

    def fail(self, error: BaseException, records: int) -> None:
        """Count records that were not handed over, because of `error`."""
        self.done(records, -1, -1, error)

    def done(self, records: int, base: int, last: int, error: BaseException | None) -> None:
        """Count records that are through, with the first and last of their offsets."""
        with self._lock:
            if base >= 0:
                self.base = base if self.base < 0 else min(self.base, base)
                self.last = max(self.last, last)
            self.error = self.error or error
            self._left -= records
            # Once: a failure may be told of that concerns no further record.
            finished = self._left == 0 and not self._finished
            self._finished = self._finished or finished
        if finished:
            self._finish(self)


class Chunk:
    """Some records of a batch; `report` is called by one thread, once a record, so it does very little."""

    __slots__ = ("_base", "_batch", "_error", "_last", "_left", "_lock", "_records", "_refused", "_release")

    def __init__(self, batch: Batch, records: int, release: Callable[[], None]) -> None:
        self._batch, self._records, self._release = batch, records, release
        self._left, self._refused = records, 0
        self._base = self._last = -1
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def report(self, error: Any, message: Any) -> None:
        """Take the library's report of one record."""
        if error is None:
            self._last = message.offset()
            if self._base < 0:
                self._base = self._last
        elif self._error is None:
            self._error = ReportedError(error)
        self._left -= 1
        if self._left <= self._refused:
            self._end()

    def refuse(self, error: BaseException, records: int) -> None:
        """Say that so many records got no further than here and will have no report."""
        self._error = self._error or error
        self._refused = records
        if self._left <= records:
            self._end()

    def _end(self) -> None:
        """End once: the last report and a refusal may meet here."""
        with self._lock:
            if self._records == 0:
                return
            records, self._records = self._records, 0
        self._release()
        self._batch.done(records, self._base, self._last, self._error)


class ReportedError(Exception):
    """Carries the error of a report to where it is translated, as the library's own exception does."""
