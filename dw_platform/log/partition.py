"""The one writer of a partition.

Durability: `append` returns once the policy's fsync has happened. After a failed write or fsync nothing is
acknowledged any more, because the operating system may have dropped what it could not write; only opening the
partition again, which checks all of it, goes on.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock, SystemClock
from dw_platform.log.active import ActiveSegment
from dw_platform.log.columns import Columns
from dw_platform.log.commit import CommitQueue, Pending
from dw_platform.log.compaction import Rewritten, compact
from dw_platform.log.contract import AppendResult, PartitionStats, RecoveryReport
from dw_platform.log.disk import DirectoryLockedError, Disk, Lock
from dw_platform.log.errors import (
    MaintenanceFailedError,
    PartitionClosedError,
    PartitionLockedError,
    PartitionStoppedError,
)
from dw_platform.log.file_disk import FileDisk
from dw_platform.log.index import index_name
from dw_platform.log.joining import joined
from dw_platform.log.layout import SegmentInfo
from dw_platform.log.policy import FsyncMode, LogPolicy
from dw_platform.log.records import Records
from dw_platform.log.recovery import recover, write_clean
from dw_platform.log.retention import RetentionPlan, SegmentAge, plan_retention

_SYSTEM_CLOCK = SystemClock()


class PartitionLog:
    """A PartitionWriter in `directory` of `disk`; see contract.py for what the methods promise."""

    def __init__(self, directory: str, policy: LogPolicy, *, clock: Clock, disk: Disk) -> None:
        """Use `open`."""
        self._directory, self._policy, self._clock, self._disk = directory, policy, clock, disk
        self._stop = threading.Event()
        # Held while segments change: by a commit, or by maintenance when it swaps files.
        self._files = threading.Lock()
        self._maintenance = threading.Lock()
        self._queue = CommitQueue(self._commit, self._explain, f"log {directory}")
        self._unsynced = self._records = self._batches = self._floor = 0
        self._last_sync = clock.monotonic()
        self._closed = False
        with contextlib.ExitStack() as stack:
            self._lock = self._acquire()
            stack.callback(self._lock.release)
            self._mark = disk.mark(directory, writable=True)
            stack.callback(self._mark.close)
            recovered = recover(disk, directory, self._mark, self._now_ms())
            self._recovery = recovered.report
            self._closed_segments = recovered.segments[:-1]
            self._active = ActiveSegment(disk, directory, recovered, policy, self._rolled)
            self._acknowledged = self._active.info.end
            self._mark.publish(self._start(), self._acknowledged)
            stack.pop_all()

    @classmethod
    def open(
        cls,
        directory: str | Path,
        policy: LogPolicy | None = None,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> Self:
        """Return the partition in `directory`, made if missing, checked and ready to be appended to.

        Raise PartitionLockedError while another writer has it, and CorruptSegmentError if promised records are
        damaged. `recovery` says what was found and cut.
        """
        disk = disk or FileDisk()
        try:
            disk.make_directory(str(directory))
            return cls(str(directory), policy or LogPolicy(), clock=clock or _SYSTEM_CLOCK, disk=disk)
        except OSError as error:
            raise PartitionStoppedError(str(directory), str(error)) from error

    @property
    def recovery(self) -> RecoveryReport:
        return self._recovery

    @property
    def policy(self) -> LogPolicy:
        """Return how the partition is kept."""
        return self._policy

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, records: Records) -> AppendResult:
        return self._queue.run(self._pending(records))

    def submit(self, records: Records) -> "Future[AppendResult]":
        future: Future[AppendResult] = Future()
        self._queue.post(self._pending(records, future))
        return future

    def sync(self) -> None:
        self._queue.run(Pending(None, 0))

    def stats(self) -> PartitionStats:
        closed, active = self._closed_segments, self._active.info
        return PartitionStats(
            start_offset=max((closed[0] if closed else active).base, self._floor),
            end_offset=self._acknowledged,
            segments=len(closed) + 1,
            bytes=sum(segment.size for segment in closed) + active.size,
            pending=len(self._queue),
            appended_records=self._records,
            appended_batches=self._batches,
            fsyncs=self._active.fsyncs,
            stopped=isinstance(self._queue.refusal, PartitionStoppedError),
        )

    def retain(self, read_up_to: int | None = None) -> RetentionPlan:
        """Drop the segments that the policy no longer keeps, and return what went and why.

        `read_up_to`: the lowest offset that some subscriber reads next; None: there are no subscribers.
        """
        with self._maintenance:
            self._roll_if_old()
            plan = self.plan_retention(read_up_to)
            with self._maintaining("retention"):
                for age in plan.drop:
                    self._drop(age.segment)
            return plan

    def plan_retention(self, read_up_to: int | None = None) -> RetentionPlan:
        """Return what `retain` would drop now."""
        with self._files:
            segments = [*self._closed_segments, self._active.info]
        # The file after it was begun when a segment got its last record.
        ages = [SegmentAge(segment, after.header.created_ms) for segment, after in pairwise(segments)]
        return plan_retention(
            ages, self._policy.retention, now_ms=self._now_ms(), active_bytes=segments[-1].size, read_up_to=read_up_to
        )

    def drop_before(self, offset: int) -> int:
        """Make the records below `offset` unreadable at once, and return the lowest offset that is left.

        Whole files go for good. The rest of a file comes back if the partition is opened again, so this is for
        topics that promise nothing about old records.
        """
        with self._maintenance:
            with self._files:
                self._floor = max(self._floor, min(offset, self._acknowledged))
                dropped = [segment for segment in self._closed_segments if segment.end <= self._floor]
                self._mark.publish(self._start(), self._acknowledged)
            with self._maintaining("dropping"):
                for segment in dropped:
                    self._drop(segment)
            return self._start()

    def compact(self) -> int:
        """Keep only the newest value of each key in closed segments; return how many records went.

        Does nothing unless the policy says that the topic is compacted.
        """
        if not self._policy.compacted:
            return 0
        with self._maintenance:
            self._roll_if_old()
            with self._files:
                closed = list(self._closed_segments)
            with self._maintaining("compaction"):
                return sum(
                    self._swap(rewritten)
                    for rewritten in compact(self._disk, self._directory, closed, self._policy.segment_bytes)
                )

    def close(self) -> None:
        self._stop.set()
        self._queue.refuse(PartitionClosedError(self._directory))
        with self._maintenance, self._files:
            if self._closed:
                return
            self._closed = True
            try:
                if not isinstance(self._queue.refusal, PartitionStoppedError):
                    self._active.sync()
                    write_clean(self._disk, self._directory, [*self._closed_segments, self._active.info])
            except OSError as error:
                raise PartitionStoppedError(self._directory, str(error)) from error
            finally:
                self._active.close()
                self._mark.close()
                self._lock.release()

    def _pending(self, records: Records, future: "Future[AppendResult] | None" = None) -> Pending:
        if records.small and (size := records.total_bytes()) <= self._policy.max_record_bytes:
            return Pending(records, size, future)
        columns = Columns.of(records)
        return Pending(columns, columns.check_sizes(self._policy.max_record_bytes), future)

    def _commit(self, group: Sequence[Pending], before_waiting: Callable[[], None]) -> None:
        """Write a group of batches and acknowledge them as the policy says."""
        policy = self._policy.fsync
        if policy.mode is FsyncMode.INTERVAL:
            due = self._last_sync + policy.interval.total_seconds() - self._clock.monotonic()
            if due > 0:
                before_waiting()
                self._clock.wait(self._stop, due)
        now_ms = self._now_ms()
        with self._files:
            self._write(group, now_ms)
            self._active.write()
            if self._must_sync(group):
                before_waiting()
                self._active.sync()
                self._unsynced, self._last_sync = 0, self._clock.monotonic()
            if any(pending.rolls for pending in group) and not self._active.empty:
                self._active.roll(now_ms)
            self._acknowledged = self._active.info.end
            self._mark.publish(self._start(), self._acknowledged)

    def _write(self, group: Sequence[Pending], now_ms: int) -> None:
        for members, columns in joined(group, now_ms):
            if columns is not None:
                self._active.add(columns, now_ms)
                self._records += len(columns)
                self._unsynced += len(columns)
                self._batches += len(members)
            base = self._active.info.end - (0 if columns is None else len(columns))
            for pending in members:
                after = base + pending.count
                pending.offsets, base = (base, after), after

    def _must_sync(self, group: Sequence[Pending]) -> bool:
        policy = self._policy.fsync
        if policy.mode is FsyncMode.NEVER or (policy.mode is FsyncMode.MESSAGES and self._unsynced < policy.messages):
            return any(pending.records is None for pending in group)
        return True

    def _explain(self, error: BaseException) -> Exception:
        return PartitionStoppedError(self._directory, str(error) or type(error).__name__)

    def _acquire(self) -> Lock:
        try:
            return self._disk.lock(self._directory)
        except DirectoryLockedError as error:
            raise PartitionLockedError(self._directory, error.holder) from error

    def _rolled(self, closed: SegmentInfo, _active: SegmentInfo) -> None:
        # A new list, so that whoever looks at the old one without a lock sees a consistent state.
        self._closed_segments = [*self._closed_segments, closed]
        self._unsynced = 0

    def _roll_if_old(self) -> None:
        # As a batch among the others, so that a disk that fails here stops the partition as everywhere else.
        if not self._active.empty and self._active.is_old(self._now_ms()):
            pending = Pending(None, 0)
            pending.rolls = True
            self._queue.run(pending)

    def _drop(self, segment: SegmentInfo) -> None:
        with self._files:
            self._closed_segments = [kept for kept in self._closed_segments if kept is not segment]
            self._mark.publish(self._start(), self._acknowledged)
        # Oldest first and one at a time, or a crash could keep an older file and lose a newer one.
        self._disk.remove(self._directory, segment.name)
        self._disk.remove(self._directory, index_name(segment.base))
        self._disk.sync_directory(self._directory)

    def _swap(self, rewritten: Rewritten) -> int:
        with self._files:
            segments, old = list(self._closed_segments), rewritten.old
            first = segments.index(old[0])
            segments[first : first + len(old)] = [rewritten.new]
            self._closed_segments = segments
        return rewritten.removed

    @contextlib.contextmanager
    def _maintaining(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MaintenanceFailedError(self._directory, what, str(error)) from error

    def _start(self) -> int:
        return max((self._closed_segments[0] if self._closed_segments else self._active.info).base, self._floor)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)
