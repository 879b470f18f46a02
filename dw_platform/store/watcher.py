"""See what other processes change: how a limit set here takes effect everywhere without a restart.

A change is reported within one interval and the time of one listing: 0.25 s by default, so well within 1 s.
Polling instead of notifications keeps every backing equal; a poll reads versions, and values only of what changed.

The first poll reports everything that exists as created, so a listener needs no reading of its own and nothing
falls between reading and watching. Who has read already passes the versions as `known`.

An outage is not a change: while the store does not answer, the last known state stays and nothing is reported;
one line is logged when it begins and one when it ends. Several changes of a key between two polls are one.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock, EventHub, InvalidValueError, PlatformError, SystemClock
from dw_platform.store.contract import Entry, PersistentStore, check_key, check_prefix

log = logging.getLogger(__name__)

DEFAULT_INTERVAL_S = 0.25


class ChangeKind(StrEnum):
    """What happened to a key."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs from what was known; `entry` is None once it is deleted."""

    kind: ChangeKind
    key: str
    entry: Entry | None


class Watcher:
    """Reports changes of all keys below a prefix (a str), or of certain keys (a collection of str).

    `on_change` runs on the watcher's thread (or the caller's of `poll`), one change at a time, in order of keys. A
    listener that raises is logged, and the change counts as reported.
    """

    def __init__(
        self,
        store: PersistentStore,
        watched: str | Collection[str],
        on_change: Callable[[Change], None],
        *,
        interval_s: float = DEFAULT_INTERVAL_S,
        known: Mapping[str, int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if interval_s <= 0:
            raise InvalidValueError("interval_s", interval_s, "above 0")
        if isinstance(watched, str):
            check_prefix(watched)
        else:
            for key in watched:
                check_key(key)
        self._store, self._interval_s, self._clock = store, interval_s, clock or SystemClock()
        self._watched = watched if isinstance(watched, str) else frozenset(watched)
        self._known = dict(known or {})
        self._listeners: EventHub[Change] = EventHub()
        self._listeners.subscribe(on_change)
        self._outage = False
        # Reentrant, so that a listener may poll.
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to poll on a thread of its own; starting twice is harmless."""
        if self._thread is None:
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._stop,), name="store-watcher", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop polling and wait for the poll under way; a listener may call this too."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def poll(self) -> list[Change]:
        """Look once, report and return what changed; an outage returns nothing."""
        with self._lock:
            changes: list[Change] = []
            try:
                for key in self._differences():
                    change = self._look_at(key)
                    if change is not None:
                        changes.append(change)
                        self._listeners.publish(change)
            except PlatformError as error:
                self._note_outage(error)
            else:
                self._note_recovery()
            return changes

    def _differences(self) -> list[str]:
        if isinstance(self._watched, str):
            versions = self._store.list_versions(self._watched)
        else:
            versions = self._store.versions_of(self._watched)
        return sorted(key for key in self._known.keys() | versions if self._known.get(key) != versions.get(key))

    def _look_at(self, key: str) -> Change | None:
        """Bring what is known about `key` up to date and return how it changed."""
        # Read again, because the key may have moved on since the listing.
        entry, known = self._store.get(key), self._known.pop(key, None)
        if entry is None:
            return None if known is None else Change(ChangeKind.DELETED, key, None)
        self._known[key] = entry.version
        if known == entry.version:
            return None
        return Change(ChangeKind.CREATED if known is None else ChangeKind.CHANGED, key, entry)

    def _note_outage(self, error: PlatformError) -> None:
        if not self._outage:
            log.warning("store watcher cannot see changes", extra={"reason": str(error)})
        self._outage = True

    def _note_recovery(self) -> None:
        if self._outage:
            log.info("store watcher sees changes again")
        self._outage = False

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self.poll()
            except Exception:
                # A watcher that died silently would leave its process on old limits for good.
                log.exception("store watcher failed, it goes on")
            self._clock.wait(stop, self._interval_s)
