"""The thread of a subscription: keeps up with the group, fetches ahead, commits, and hands partitions over.

Because it is a thread of its own, a handler that takes long does not look like a member that died.
"""

import logging
import threading
from collections.abc import Callable

from dw_platform.foundation import Clock, PermanentError, PlatformError, TransientError
from dw_platform.log import RecordsExpiredError
from dw_platform.streaming.checkpoints import Checkpoints
from dw_platform.streaming.desk import Desk
from dw_platform.streaming.errors import GroupFencedError, SubscriptionFailedError
from dw_platform.streaming.groups import GroupMember
from dw_platform.streaming.lanes import Lane
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.stream import Stream

log = logging.getLogger(__name__)

# How often a member looks at its group; a partition that is released is taken over within this.
_LOOK_EVERY_S = 0.25
# How long a round waits for records when there are none, divided among the partitions.
_FETCH_WAIT_S = 0.05
# Who has read everything commits soon, so that lag is what is really unread.
_CAUGHT_UP_AFTER_S = 0.25
_RETRY_AFTER_S = 0.5


class Pump:
    """Works for one desk until that is closed, or until it cannot go on."""

    def __init__(
        self,
        desk: Desk,
        stream: Stream,
        member: GroupMember,
        *,
        checkpoints: Checkpoints,
        limits: Callable[[], StreamingLimits],
        clock: Clock,
        auto_commit: bool,
    ) -> None:
        self._desk, self._stream, self._member, self._checkpoints = desk, stream, member, checkpoints
        self._limits, self._clock, self._auto_commit = limits, clock, auto_commit
        self._committing = threading.Lock()
        self._joined = self._interrupted = False
        self._look_at = self._commit_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"stream-{member.topic}-{member.group}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def commit(self) -> None:
        """Store how far each partition is done, where that has changed; any thread may call this."""
        with self._committing:
            done = self._desk.done()
            member = self._member
            self._checkpoints.commit(self._stream.broker, member.topic, member.group, done, member=member.member)
            self._desk.committed(done)

    def _run(self) -> None:
        try:
            while not self._desk.closed and self._desk.failure is None:
                self._desk.busy.clear()
                pause_s = self._round()
                if pause_s and not self._desk.closed:
                    self._clock.wait(self._desk.busy, pause_s)
        finally:
            self._end()

    def _round(self) -> float:
        """Look at the group, fetch, and commit, each when it is time; return how long to rest."""
        try:
            self._keep_up()
            fetched = self._fetch()
            self._commit_if_due(caught_up=not fetched)
        except (GroupFencedError, PermanentError) as error:
            self._fail(error)
        except TransientError as error:
            if not self._interrupted:
                log.warning("subscription interrupted, it goes on", extra=self._facts(error))
            self._interrupted = True
            return _RETRY_AFTER_S
        except Exception as error:
            log.exception("subscription failed", extra=self._facts(error))
            self._fail(SubscriptionFailedError(self._member.topic, self._member.group, str(error)))
        else:
            self._interrupted = False
            if not fetched:
                return _FETCH_WAIT_S if self._desk.room() > 0 and self._desk.numbers() else _LOOK_EVERY_S
        return 0.0

    def _fail(self, error: PlatformError) -> None:
        log.warning("subscription ended", extra=self._facts(error))
        self._desk.fail(error)

    def _keep_up(self) -> None:
        now, timeout = self._clock.monotonic(), self._limits().session_timeout
        released = self._desk.left(now - timeout.total_seconds(), committed=not self._auto_commit)
        if now < self._look_at and not released:
            return
        self._look_at = now + min(_LOOK_EVERY_S, timeout.total_seconds() / 6)
        if not self._stream.opened:
            self._stream.open()
        partitions = self._stream.broker.topic(self._member.topic).partitions
        if released and self._auto_commit:
            self.commit()
        if self._joined:
            assignment = self._member.keep_up(partitions, timeout, released=released)
        else:
            assignment, self._joined = self._member.join(partitions), True
        for number in released:
            self._desk.drop(number)
        for number in sorted(assignment.owned - self._desk.numbers()):
            self._add(number)
        self._desk.leave(assignment.leaving, now)

    def _add(self, number: int) -> None:
        broker, topic = self._stream.broker, self._member.topic
        offset = self._checkpoints.resume(broker, topic, self._member.group, number)
        self._desk.add(Lane(topic, number, broker.fetcher(topic, number), offset))

    def _fetch(self) -> int:
        """Fetch from every partition while there is room; return how many records came."""
        lanes, room, fetched = self._desk.readable(), self._desk.room(), 0
        for wait_s in (0.0, _FETCH_WAIT_S / max(len(lanes), 1)):
            for lane in lanes:
                if fetched >= room or self._desk.closed:
                    return fetched
                fetched += self._fetch_lane(lane, room - fetched, wait_s)
            if fetched:
                break
        return fetched

    def _fetch_lane(self, lane: Lane, room: int, wait_s: float) -> int:
        moves, offset = lane.moves, lane.fetched
        try:
            batch = lane.fetcher.fetch(offset, max_records=room, wait_s=wait_s)
        except RecordsExpiredError as error:
            self._expired(lane, error)
            return 0
        return self._desk.put(lane, moves, batch) if batch.next_offset > offset else 0

    def _expired(self, lane: Lane, error: RecordsExpiredError) -> None:
        """Skip what a stream that may drop has dropped; on any other the reader has to say that it accepts the gap."""
        if self._stream.definition.durable:
            self._desk.lose(lane, error)
            return
        facts = {"partition": lane.partition, "first": error.requested, "next": error.earliest}
        log.warning("unread records are gone", extra=self._facts(error) | facts)
        self._desk.seek(lane.partition, error.earliest)

    def _commit_if_due(self, *, caught_up: bool) -> None:
        if not self._auto_commit:
            return
        now = self._clock.monotonic()
        every = self._limits().checkpoint_every or self._stream.definition.checkpoint_every
        waited_s = now - (self._commit_at - every.total_seconds())
        if now >= self._commit_at or (caught_up and waited_s >= _CAUGHT_UP_AFTER_S):
            self._commit_at = now + every.total_seconds()
            self.commit()

    def _end(self) -> None:
        """Commit and leave; a place that cannot be given up ends by itself after the session's timeout."""
        try:
            if self._auto_commit and self._desk.failure is None:
                self.commit()
            if self._joined:
                self._member.leave()
        except PlatformError as error:
            log.warning("subscription left without a word", extra=self._facts(error))
        finally:
            self._desk.drop_all()
            self._desk.waker.notify()

    def _facts(self, error: BaseException) -> dict[str, object]:
        member = self._member
        return {"topic": member.topic, "group": member.group, "member": member.member, "reason": str(error)}
