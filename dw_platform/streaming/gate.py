"""Where publishers of a topic learn how many partitions to use, and where they pause while that number changes."""

import threading

from dw_platform.streaming.errors import StreamsClosedError
from dw_platform.streaming.waits import Doorbell, Steps


class PartitionGate:
    """Counts who is inside; any thread may use it.

    A publisher is inside from choosing partitions until its last record is acknowledged or failed. While the gate is
    shut nobody gets in, and once it is idle nothing is on its way to the old partitions.
    """

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self._lock = threading.Lock()
        self._bell = Doorbell()
        self._inside = 0
        self._shut = self._closed = False

    def enter(self, timeout_s: float) -> Steps[int | None]:
        """Return the number of partitions to use, or None if the gate stayed shut for `timeout_s`."""
        while (found := self._try_enter()) is None:
            if not (yield self._bell.until(lambda: not self._shut or self._closed, timeout_s)):
                return None
        return found

    def _try_enter(self) -> int | None:
        with self._lock:
            if self._closed:
                raise StreamsClosedError
            if self._shut:
                return None
            self._inside += 1
            return self.partitions

    def leave(self) -> None:
        """Tell that everything of one publisher is acknowledged or failed."""
        with self._lock:
            self._inside -= 1
            last = not self._inside
        if last:
            self._bell.ring()

    def shut(self) -> None:
        """Let nobody in until `open`."""
        with self._lock:
            self._shut = True

    @property
    def is_idle(self) -> bool:
        """Whether nobody is inside."""
        return not self._inside

    def idle(self, timeout_s: float) -> Steps[bool]:
        """Return whether nobody is inside, after waiting for that at most `timeout_s`."""
        result: bool = yield self._bell.until(lambda: not self._inside, timeout_s)
        return result

    def open(self, partitions: int) -> None:
        """Let publishers in, with this many partitions from now on."""
        with self._lock:
            self._shut, self.partitions = False, partitions
        self._bell.ring()

    def close(self) -> None:
        """Refuse everybody who comes or waits from now on."""
        with self._lock:
            self._closed = True
        self._bell.ring()

    @property
    def is_shut(self) -> bool:
        """Whether publishers wait for a growth."""
        return self._shut
