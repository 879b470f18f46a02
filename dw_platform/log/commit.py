"""Group commit: of the publishers that wait, one writes for all.

The first one to come leads: it takes whatever has queued up, writes it, and wakes the others. Those who come
meanwhile queue up, and the first of them leads the next round. A single publisher pays for no hand-over, and many
share one fsync. Batches that nobody waits for in a thread (`submit`) are led by a thread of the queue's own.

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


class Pending:
    """A batch that waits for its acknowledgement; without records it only asks for an fsync, or for a new segment."""

    __slots__ = ("_turn", "error", "future", "leads", "records", "result", "rolls", "size")

    def __init__(
        self, records: Records | Columns | None, size: int, future: "Future[AppendResult] | None" = None
    ) -> None:
        self.records, self.size, self.future = records, size, future
        if future is not None:
            future.set_running_or_notify_cancel()  # what is queued will be written and cannot be called back
        self.result: AppendResult | None = None
        self.error: BaseException | None = None
        self.leads = self.rolls = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def __len__(self) -> int:
        return 0 if self.records is None else len(self.records)

    @property
    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self.result is not None or self.error is not None

    def wait(self) -> None:
        """Return when the batch is done or it is its publisher's turn to lead."""
        self._turn.acquire()

    def wake(self) -> None:
        """Let the waiting publisher go on."""
        self._turn.release()

    def outcome(self) -> AppendResult:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


class CommitQueue:
    """Brings waiting batches to `commit`, a group at a time and never two groups at once.

    `commit` must give every batch of its group a result. What it raises becomes the error of all that wait and of
    all that come later; `explain` turns it into what publishers are told.
    """

    def __init__(
        self, commit: Callable[[Sequence[Pending]], None], explain: Callable[[BaseException], Exception], name: str
    ) -> None:
        self._commit, self._explain, self._name = commit, explain, name
        self._lock = threading.Lock()
        self._queue: deque[Pending] = deque()
        self._group: list[Pending] = []
        self._leading = False
        self._idle = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._turns = threading.Semaphore(0)
        self.refusal: Exception | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def run(self, pending: Pending) -> AppendResult:
        """Return once the batch is committed, by this thread or by another one's."""
        if self._enter(pending):
            self._lead(pending)
        else:
            try:
                pending.wait()
            except BaseException:
                self._abandon(pending)
                raise
            if pending.leads and not pending.done:
                self._lead(pending)
        return pending.outcome()

    def post(self, pending: Pending) -> None:
        """Have the batch committed without waiting."""
        if self._enter(pending):
            self._wake_thread()

    def refuse(self, reason: Exception) -> None:
        """Take no further batches, and return when those that are in are done."""
        with self._idle:
            self.refusal = self.refusal or reason
            self._idle.wait_for(lambda: not self._leading and not self._queue)
            thread, self._thread = self._thread, None
        if thread is not None:
            self._turns.release()
            thread.join()

    def _enter(self, pending: Pending) -> bool:
        """Queue the batch, and return whether its publisher has to lead."""
        with self._lock:
            if self.refusal is not None:
                raise self.refusal
            self._queue.append(pending)
            leads, self._leading = not self._leading, True
            return leads

    def _lead(self, mine: Pending | None) -> None:
        """Commit until `mine` is done (without one: once), pass the lead on, and tell who was waiting.

        They are told last, so that what they do on being told may append again.
        """
        finished = list[Pending]()
        try:
            while True:
                self._take()
                if self._group:
                    self._commit(self._group)
                finished += self._group
                self._group.clear()
                if mine is None or mine.done:
                    break
        except BaseException as error:
            finished += self._fail(self._explain(error))
            # An interrupt stops the partition as a failing disk does, and goes on to whom it was meant for.
            if not isinstance(error, Exception):
                raise
        finally:
            self._pass_on()
            _tell(finished, mine)

    def _take(self) -> None:
        size = 0
        with self._lock:
            while self._queue and len(self._group) < _MOST_BATCHES and size < _MOST_BYTES:
                size += self._queue[0].size
                self._group.append(self._queue.popleft())

    def _fail(self, error: Exception) -> list[Pending]:
        with self._lock:
            self.refusal = error
            waiting = [*self._group, *self._queue]
            self._group.clear()
            self._queue.clear()
        for pending in waiting:
            pending.result, pending.error = None, error
        return waiting

    def _pass_on(self) -> None:
        """Give the lead to the first who waits, or to nobody."""
        with self._lock:
            if not self._queue:
                self._leading = False
                self._idle.notify_all()
                return
            heir = self._queue[0]
            heir.leads = True
            waits = heir.future is None
        if waits:
            heir.wake()
        else:
            self._wake_thread()

    def _abandon(self, pending: Pending) -> None:
        """Let the queue's own thread take the place of a publisher that was interrupted while it waited."""
        with self._lock:
            pending.future = Future()
            leads = pending.leads
        if leads:
            self._wake_thread()

    def _wake_thread(self) -> None:
        with self._lock:
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


def _tell(finished: list[Pending], mine: Pending | None) -> None:
    for pending in finished:
        if pending.future is None:
            if pending is not mine:
                pending.wake()
        elif pending.error is not None:
            pending.future.set_exception(pending.error)
        elif pending.result is not None:
            pending.future.set_result(pending.result)
