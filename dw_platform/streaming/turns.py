"""One after the other, in the order of their coming: what batches of one producer have to do."""

import threading
from concurrent.futures import Future

from dw_platform.streaming.waits import Finished, Steps


class Turn:
    """A place in a queue; whoever takes one gives it back, also if its turn never came."""

    def __init__(self, queue: "Turns", name: str, before: "Future[None] | None") -> None:
        self._queue, self._name, self._before = queue, name, before
        self.over: Future[None] = Future()

    def wait(self, timeout_s: float) -> Steps[bool]:
        """Return whether its turn came within `timeout_s`."""
        if self._before is not None and not self._before.done():
            try:
                yield Finished(self._before, timeout_s)
            except TimeoutError:
                return False
        return True

    def give_back(self) -> None:
        """Let the next one go on, as soon as the one before is done."""
        if self._before is None:
            self._end()
        else:
            self._before.add_done_callback(lambda _: self._end())

    def _end(self) -> None:
        self._queue.forget(self._name, self)
        self.over.set_result(None)


class Turns:
    """A queue for each name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, Turn] = {}

    def take(self, name: str) -> Turn:
        """Return a place at the end of the queue."""
        with self._lock:
            last = self._last.get(name)
            turn = self._last[name] = Turn(self, name, None if last is None else last.over)
            return turn

    def forget(self, name: str, turn: Turn) -> None:
        """Remove a queue whose last one this was."""
        with self._lock:
            if self._last.get(name) is turn:
                del self._last[name]
