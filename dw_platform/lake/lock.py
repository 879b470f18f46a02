"""One lock per table for every commit that this platform makes, whichever engine makes it.

deltalake creates a commit file only if it is absent. Spark's log store on a local disk and on S3 first looks and
then writes, guarded only inside its own JVM, so a Spark commit can overwrite a commit that deltalake has already
acknowledged. Hence: deltalake commits hold the lock shared (they are safe among themselves), Spark commits hold
it exclusively. A waiting exclusive holder keeps new shared ones out, so neither side starves.

A program that writes to the table without this lock is as safe beside us as Delta makes it, and no safer.

The lock of a local table is a file beside its log and dies with its process. Tables on shared storage use a lease
in the control store, which every machine of the platform can see.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from dw_platform.foundation import Clock, SystemClock, TransientError
from dw_platform.lake.location import LakeNotWritableError, TableLocation
from dw_platform.store import LeaseLock, LeaseMode, LeaseTimeoutError, PersistentStore
from dw_platform.store.file_lock import file_lock

log = logging.getLogger(__name__)

COMMIT_TIMEOUT_S = 120.0
LEASE_TTL = timedelta(seconds=30)
_FILE = "_dw_commit.lock"
_GATE = "_dw_commit.gate"
_NEXT = "_dw_commit.next"


class TableBusyError(TransientError):
    """Another commit held the table's lock for longer than the caller would wait."""

    def __init__(self, table: str, waited_s: float) -> None:
        self.table, self.waited_s = table, waited_s
        super().__init__(
            f"{table}: another writer has held the commit lock for {waited_s:.0f} s. Nothing was committed; "
            "try again when it is done."
        )


class TableLock(Protocol):
    """Guards the commits of one table."""

    def shared(self, timeout_s: float = COMMIT_TIMEOUT_S) -> contextlib.AbstractContextManager[None]:
        """Hold the lock beside other deltalake commits, but beside no Spark commit."""

    def exclusive(self, timeout_s: float = COMMIT_TIMEOUT_S) -> contextlib.AbstractContextManager[None]:
        """Hold the lock alone."""


def table_lock(location: TableLocation, store: PersistentStore, *, owner: str) -> TableLock:
    """Return the lock of a table: a file beside a local one, a lease in `store` for shared storage."""
    if location.is_s3:
        return LeaseTableLock(location.uri, store, owner=owner)
    return FileTableLock(location.local)


class FileTableLock:
    """`flock` on three files in the table's folder: who is next, a gate that is passed in turn, then the lock itself.

    Whoever waits for the gate is the next one, and nobody else can be that before it is inside. Without that place
    a holder that comes back at once would be faster, again and again, than one that has waited.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def shared(self, timeout_s: float = COMMIT_TIMEOUT_S) -> Iterator[None]:
        deadline = time.monotonic() + timeout_s
        with contextlib.ExitStack() as lock:
            with self._passed_gate(deadline, timeout_s):
                lock.enter_context(self._hold(_FILE, deadline, timeout_s, shared=True))
            yield

    @contextlib.contextmanager
    def exclusive(self, timeout_s: float = COMMIT_TIMEOUT_S) -> Iterator[None]:
        deadline = time.monotonic() + timeout_s
        # The gate stays closed while the lock is awaited: shared holders drain and no new one enters.
        with self._passed_gate(deadline, timeout_s), self._hold(_FILE, deadline, timeout_s):
            yield

    @contextlib.contextmanager
    def _passed_gate(self, deadline: float, timeout_s: float) -> Iterator[None]:
        with contextlib.ExitStack() as gate:
            with self._hold(_NEXT, deadline, timeout_s):
                gate.enter_context(self._hold(_GATE, deadline, timeout_s))
            yield

    @contextlib.contextmanager
    def _hold(self, name: str, deadline: float, timeout_s: float, *, shared: bool = False) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            remaining_s = max(0.0, deadline - time.monotonic())
            try:
                held.enter_context(file_lock(self._folder / name, shared=shared, timeout_s=remaining_s))
            except TimeoutError as error:
                raise TableBusyError(str(self._folder), timeout_s) from error
            except OSError as error:
                raise LakeNotWritableError(str(self._folder), error.strerror or str(error)) from error
            yield


class LeaseTableLock:
    """A lease in the control store; renewed while it is held, so a killed holder blocks others for one TTL only."""

    def __init__(self, table: str, store: PersistentStore, *, owner: str, clock: Clock | None = None) -> None:
        self._table = table
        key = f"dw://internal/locks/table/{table}"
        self._lease = LeaseLock(store, key, owner=owner, ttl=LEASE_TTL, clock=clock or SystemClock())

    @contextlib.contextmanager
    def shared(self, timeout_s: float = COMMIT_TIMEOUT_S) -> Iterator[None]:
        with self._held(LeaseMode.SHARED, timeout_s):
            yield

    @contextlib.contextmanager
    def exclusive(self, timeout_s: float = COMMIT_TIMEOUT_S) -> Iterator[None]:
        with self._held(LeaseMode.EXCLUSIVE, timeout_s):
            yield

    @contextlib.contextmanager
    def _held(self, mode: LeaseMode, timeout_s: float) -> Iterator[None]:
        try:
            lease = self._lease.acquire(mode, timeout_s=timeout_s)
        except LeaseTimeoutError as error:
            raise TableBusyError(self._table, timeout_s) from error
        with lease:
            yield
            if lease.lost:
                # The commit is done by now. Whether somebody overwrote it can only be found out from the log.
                log.warning("commit lock was lost during a commit", extra={"table": self._table})
