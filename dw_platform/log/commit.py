"""Group commit: of the publishers that wait, one writes for all.

The first one to come leads: it writes its batch itself, so a single publisher pays for no hand-over. Those who come
meanwhile queue up, and a thread of the queue's own leads from then on, round after round, until nobody is left; each
round takes whatever has queued up, and all of it shares one fsync. The thread also leads for batches that nobody
waits for (`submit`).

The thread wakes the publishers of a round when it is about to wait for the disk the next time: they do their part
while it waits, instead of taking the interpreter lock from it at every system call before. It wakes the first two,
and each wakes one more, because all at once would only queue up for that lock.

Order: batches are written in the order in which they entered the queue.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from dw_platform.log.columns import Columns
from dw_platform.log.contract import AppendResult
from dw_platform.log.records import Records

# What one fsync may cover: more only makes those wait who came first.
_MOST_BATCHES = 8192
_MOST_BYTES = 32 * 1024 * 1024
# One has the interpreter lock, and one is on its way: fewer leave the lock idle, more wait for it.
_WOKEN_AT_ONCE = 2


class Pending:
    """A batch that waits for its acknowledgement; without records it only asks for an fsync, or for a new segment."""

    __slots__ = ("_turn", "count", "error", "following", "future", "offsets", "records", "relays", "rolls", "size")

    def __init__(
        self, records: Records | Columns | None, size: int, future: "Future[AppendResult] | None" = None
    ) -> None:
        self.records, self.size, self.future = records, size, future
        if future is not None:
            future.set_running_or_notify_cancel()  # what is queued will be written and cannot be called back
        self.count = 0 if records is None else len(records)
        self.offsets: tuple[int, int] | None = None
        self.error: BaseException | None = None
        self.rolls = self.relays = False
        self.following: Pending | None = None
        self._turn: threading.Lock | None = None

    @property
    def done(self) -> bool:
        """Return whether there are offsets or an error."""
        return self.offsets is not None or self.error is not None

    def prepare(self) -> None:
        """Have something to wait for; comes before the batch can be taken from the queue."""
        self._turn = threading.Lock()
        self._turn.acquire()
        # The main thread may be interrupted at any moment, so nobody's being told may depend on it.
        self.relays = threading.get_ident() != threading.main_thread().ident

    def wait(self) -> None:
        """Return when the batch is done, after telling the one that follows."""
        assert self._turn is not None
        self._turn.acquire()
        if self.following is not None:
            self.following.tell()

    def tell(self) -> None:
        """Let the waiting publisher go on, or settle the future."""
        if self._turn is not None:
            self._turn.release()
        elif self.future is not None and self.error is not None:
            self.future.set_exception(self.error)
        elif self.future is not None:
            self.future.set_result(self.outcome())

    def outcome(self) -> AppendResult:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.offsets is not None
        return AppendResult(*self.offsets)


class CommitQueue:
    """Brings waiting batches to `commit`, a group at a time and never two groups at once.

    `commit` must give every batch of its group its offsets, and calls what it gets with the group when it is about to
    wait. What it raises becomes the error of all that wait and of all that come later; `explain` turns it into what
    publishers are told.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Pending], Callable[[], None]], None],
        explain: Callable[[BaseException], Exception],
        name: str,
    ) -> None:
        self._commit, self._explain, self._name = commit, explain, name
        self._lock = threading.Lock()
        self._queue: deque[Pending] = deque()
        self._group: list[Pending] = []
        self._leading = False
        # While the queue's thread settles futures it leads nothing, and nobody may count on it.
        self._telling = False
        self._idle = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._turns = threading.Semaphore(0)
        self.refusal: Exception | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def run(self, pending: Pending) -> AppendResult:
        """Return once the batch is committed, by this thread or by the queue's own."""
        if self._enter(pending):
            self._lead(pending)
        else:
            pending.wait()
        return pending.outcome()

    def post(self, pending: Pending) -> None:
        """Have the batch committed without waiting."""
        if self._enter(pending):
            with self._lock:
                self._wake_thread()

    def refuse(self, reason: Exception) -> None:
        """Take no further batches, and return when those that are in are done."""
        with self._idle:
            self.refusal = self.refusal or reason
            self._idle.wait_for(lambda: not self._leading and not self._queue)
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._turns.release()
            thread.join()

    def _enter(self, pending: Pending) -> bool:
        """Queue the batch, and return whether somebody has to begin to lead."""
        with self._lock:
            if self.refusal is not None:
                raise self.refusal
            self._queue.append(pending)
            if not self._leading and (pending.future is None or not self._telling):
                self._leading = True
                return True
            if pending.future is None:
                pending.prepare()
            return False

    def _lead(self, mine: Pending | None) -> None:
        """Commit until `mine` is done (without one: until the queue is empty or there are futures), and tell all.

        Futures are settled when the lead is given up, so that what they call may append again.
        """
        waiting, futures = list[Pending](), list[Pending]()

        def tell_waiting() -> None:
            _tell_in_turn(waiting)
            waiting.clear()

        def sort(finished: list[Pending]) -> None:
            for pending in finished:
                (waiting if pending.future is None else futures).append(pending)

        try:
            while self._take(mine, telling=bool(futures)):
                self._commit(self._group, tell_waiting)
                tell_waiting()
                sort(self._group)
                self._group.clear()
        except BaseException as error:
            tell_waiting()
            sort(self._fail(self._explain(error)))
            self._take(mine, telling=bool(futures))
            # An interrupt stops the partition as a failing disk does, and goes on to whom it was meant for.
            if not isinstance(error, Exception):
                raise
        finally:
            tell_waiting()
            for pending in futures:
                pending.tell()

    def _take(self, mine: Pending | None, *, telling: bool) -> bool:
        """Take the next group and return True; or give up the lead, or pass it on to the thread, and return False."""
        group, queue, size = self._group, self._queue, 0
        with self._lock:
            if queue and (not telling if mine is None else self._telling or not mine.done):
                while queue and len(group) < _MOST_BATCHES and size < _MOST_BYTES:
                    size += queue[0].size
                    group.append(queue.popleft())
                return True
            if mine is None:
                self._telling = telling
            elif queue:
                self._wake_thread()
                return False
            self._leading = False
            self._idle.notify_all()
            return False

    def _fail(self, error: Exception) -> list[Pending]:
        with self._lock:
            self.refusal = error
            waiting = [*self._group, *self._queue]
            self._group.clear()
            self._queue.clear()
        for pending in waiting:
            pending.offsets, pending.error = None, error
        return waiting

    def _wake_thread(self) -> None:
        """Give the lead to the queue's thread; the lock is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._turns.release()

    def _serve(self) -> None:
        mine = threading.current_thread()
        while True:
            self._turns.acquire()
            with self._lock:
                if self._thread is not mine:
                    return
            self._lead(None)
            while self._resume():
                self._lead(None)

    def _resume(self) -> bool:
        """Return whether batches came while futures were settled, and nobody leads."""
        with self._lock:
            self._telling = False
            if self._leading or not self._queue:
                return False
            self._leading = True
            return True


def _tell_in_turn(waiting: Sequence[Pending]) -> None:
    chain = [pending for pending in waiting if pending.relays]
    for pending, following in zip(chain, chain[_WOKEN_AT_ONCE:], strict=False):
        pending.following = following
    for pending in waiting:
        if not pending.relays:
            pending.tell()
    for pending in chain[:_WOKEN_AT_ONCE]:
        pending.tell()
