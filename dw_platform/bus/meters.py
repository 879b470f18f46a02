"""Cheap numbers about traffic: a rate over the last seconds and percentiles of a duration."""

import threading
from collections import deque

from dw_platform.foundation import Clock

WINDOW_S = 10.0
# Four buckets for each doubling: a percentile is off by less than a fifth, for 256 integers.
_STEPS = 4
_BUCKETS = 64 * _STEPS


class RateMeter:
    """Events a second over the last ten seconds, counted second by second."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: deque[tuple[int, int]] = deque()
        self.total = 0

    def add(self, count: int) -> None:
        """Count events that happen now."""
        second = int(self._clock.monotonic())
        with self._lock:
            self.total += count
            if self._seconds and self._seconds[-1][0] == second:
                self._seconds[-1] = (second, self._seconds[-1][1] + count)
            else:
                self._seconds.append((second, count))
                self._drop_old(second)

    def per_second(self) -> float:
        """Return the mean over the window."""
        with self._lock:
            self._drop_old(int(self._clock.monotonic()))
            return sum(count for _, count in self._seconds) / WINDOW_S

    def _drop_old(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - WINDOW_S:
            self._seconds.popleft()


class LatencyHistogram:
    """Durations in buckets that grow with them; old ones fade as the counts are halved now and then."""

    def __init__(self, *, fade_after: int = 100_000) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * _BUCKETS
        self._total, self._fade_after = 0, fade_after

    def record(self, seconds: float) -> None:
        """Count one duration."""
        nanoseconds = max(int(seconds * 1e9), 1)
        doublings = nanoseconds.bit_length() - 1
        step = ((nanoseconds << 2) >> doublings) & (_STEPS - 1)
        with self._lock:
            self._counts[min(doublings * _STEPS + step, _BUCKETS - 1)] += 1
            self._total += 1
            if self._total >= self._fade_after:
                self._counts = [count // 2 for count in self._counts]
                self._total = sum(self._counts)

    def percentile(self, share: float) -> float:
        """Return seconds that `share` of the durations did not exceed, rounded up to their bucket; 0 if none."""
        with self._lock:
            counts, rank = list(self._counts), share * self._total
        seen = 0
        for bucket, count in enumerate(counts):
            seen += count
            if count and seen >= rank:
                doublings, step = divmod(bucket, _STEPS)
                return 2.0**doublings * (1 + (step + 1) / _STEPS) / 1e9
        return 0.0
