"""Where the thread of a subscription puts records down and its reader takes them up."""

import threading
from collections.abc import Collection

from dw_platform.bus.waker import Waker
from dw_platform.foundation import InvalidValueError, PlatformError
from dw_platform.log import LogBatch
from dw_platform.streaming.events import StreamEvent
from dw_platform.streaming.lanes import Lane


class Ended:
    """What a reader gets after the last record."""


ENDED = Ended()


class Desk:
    """The lanes of the partitions that a subscription reads; any thread may use it.

    A record is done when the reader comes for the next one. `busy` is set when the thread has something to do.
    """

    def __init__(self, max_records: int) -> None:
        self.waker, self.busy = Waker(), threading.Event()
        self._max_records = max_records
        self._lock = threading.Lock()
        self._lanes: dict[int, Lane] = {}
        self._current: Lane | None = None
        self._turn = 0
        self.failure: PlatformError | None = None
        self.closed = False

    # The reader's side.

    def take(self) -> StreamEvent | Ended | None:
        """Return the next record, or the end, or nothing yet; raise what reading has failed with."""
        with self._lock:
            self._finish_current()
            if self.closed:
                return ENDED
            if self.failure is not None:
                raise self.failure
            for lane in self._in_turn():
                if lane.waiting:
                    self._current = lane
                    return lane.hand_out()
                if lane.failure is not None:
                    raise lane.failure
            self.busy.set()
            return None

    def finish(self) -> None:
        """Count the record that was handed out last as done."""
        with self._lock:
            self._finish_current()

    def seek(self, partition: int, offset: int) -> None:
        """Go on at another offset of a partition."""
        with self._lock:
            lane = self._lanes.get(partition)
            if lane is None:
                raise InvalidValueError("partition", partition, f"one of those it reads now: {sorted(self._lanes)}")
            if self._current is lane:
                self._current = None
            lane.move_to(offset)
        self.busy.set()

    def close(self) -> bool:
        """Hand out nothing more; return whether that is new."""
        with self._lock:
            first, self.closed = not self.closed, True
        self.busy.set()
        self.waker.notify()
        return first

    def assigned(self) -> list[int]:
        """Return the partitions that records are handed out of."""
        with self._lock:
            return sorted(number for number, lane in self._lanes.items() if lane.leaving_since is None)

    # The thread's side.

    def numbers(self) -> set[int]:
        """Return the partitions that have a lane, also those that are leaving."""
        with self._lock:
            return set(self._lanes)

    def add(self, lane: Lane) -> None:
        """Begin with a partition."""
        with self._lock:
            self._lanes[lane.partition] = lane

    def drop(self, number: int) -> None:
        """End with a partition."""
        with self._lock:
            lane = self._lanes.pop(number)
            if self._current is lane:
                self._current = None
        lane.fetcher.close()

    def drop_all(self) -> None:
        """End with every partition."""
        for number in self.numbers():
            self.drop(number)

    def room(self) -> int:
        """Return how many more records may be fetched ahead."""
        with self._lock:
            return self._max_records - sum(len(lane.waiting) for lane in self._lanes.values())

    def readable(self) -> list[Lane]:
        """Return the lanes to fetch for, another one first each time."""
        with self._lock:
            return [lane for lane in self._in_turn() if lane.leaving_since is None and lane.failure is None]

    def put(self, lane: Lane, moves: int, batch: LogBatch) -> int:
        """Add what was fetched, unless the lane has moved meanwhile; return how many records that is."""
        with self._lock:
            count = lane.take_in(batch) if lane.moves == moves else 0
        self.waker.notify()
        return count

    def lose(self, lane: Lane, error: PlatformError) -> None:
        """Let the reader know why a partition cannot be read on."""
        with self._lock:
            lane.failure = error
        self.waker.notify()

    def leave(self, numbers: Collection[int], now: float) -> None:
        """Hand out nothing more of partitions that others should read."""
        with self._lock:
            for number in numbers:
                if number in self._lanes:
                    self._lanes[number].leave(now)

    def left(self, before: float, *, committed: bool) -> list[int]:
        """Return the leaving partitions of which everything is done (`committed`: stored), or that left before then."""
        with self._lock:
            leaving = [lane for lane in self._lanes.values() if lane.leaving_since is not None]
            return [
                lane.partition
                for lane in leaving
                if (lane.committed if committed else lane.done) >= lane.handed_out
                or (lane.leaving_since or 0.0) <= before
            ]

    def done(self) -> dict[int, int]:
        """Return how far each partition is done, where that is not committed."""
        with self._lock:
            return {number: lane.done for number, lane in self._lanes.items() if lane.done > lane.committed}

    def committed(self, next_offsets: dict[int, int]) -> None:
        """Take note of what is stored."""
        with self._lock:
            for number, offset in next_offsets.items():
                if number in self._lanes:
                    self._lanes[number].committed = max(self._lanes[number].committed, offset)

    def fail(self, error: PlatformError) -> None:
        """Let the reader know that nothing more comes, and why."""
        with self._lock:
            self.failure, self._current = error, None
        self.waker.notify()

    def _finish_current(self) -> None:
        lane, self._current = self._current, None
        if lane is not None:
            lane.done = lane.handed_out
            if lane.leaving_since is not None:
                self.busy.set()

    def _in_turn(self) -> list[Lane]:
        """Return the lanes, another one first each time, so that a busy partition does not starve the rest."""
        lanes = list(self._lanes.values())
        self._turn = (self._turn + 1) % len(lanes) if lanes else 0
        return lanes[self._turn :] + lanes[: self._turn]
