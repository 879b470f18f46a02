"""How many records a second a caller may publish."""

from dw_platform.foundation import Clock


class TokenBucket:
    """Holds a second's worth of tokens; used by one thread, the event loop's.

    A batch larger than what is there is taken as long as anything is there, and leaves a debt. So a large batch is
    possible, the mean stays at the rate, and the next one waits the longer.
    """

    def __init__(self, per_second: float, *, clock: Clock) -> None:
        self.per_second, self._clock = per_second, clock
        self._tokens, self._at = per_second, clock.monotonic()

    def wait_s(self) -> float:
        """Return how long to wait before anything may be taken; 0 if that is now."""
        self._refill()
        # One whole token, because a fraction of a record cannot be published.
        least = min(1.0, self.per_second)
        return 0.0 if self._tokens >= least else (least - self._tokens) / self.per_second

    def take(self, count: int) -> None:
        """Take so many tokens, or give them back if `count` is negative."""
        self._refill()
        self._tokens = min(self._tokens - count, self.per_second)

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._tokens + (now - self._at) * self.per_second, self.per_second)
        self._at = now
