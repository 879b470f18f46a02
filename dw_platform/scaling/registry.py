"""The subsystems of one process, connected to the control store.

Out: a snapshot of each subsystem's metrics every few seconds, and at once when its pressure changes level.
In: limits that anybody sets take effect within the watch interval, without a restart.

What a process made of a change is written beside it, so an operator sees which processes follow and which refused.
An outage of the store changes nothing: subsystems keep their limits and snapshots resume when it is back.
"""

import logging
import threading
from types import TracebackType
from typing import Any, Self

from dw_platform.foundation import Clock, InvalidValueError, PlatformError
from dw_platform.scaling.managed import ManagedSubsystem
from dw_platform.scaling.records import LIMITS, limits_key, status_key
from dw_platform.scaling.snapshot import MetricsSnapshot, metrics_key
from dw_platform.scaling.subsystem import BackpressureAware, ScalableSubsystem
from dw_platform.store.contract import PersistentStore
from dw_platform.store.watcher import DEFAULT_INTERVAL_S, Change, Watcher

log = logging.getLogger(__name__)

# Sensors tick every 30 s, people look every few; a faster pulse would only load the store.
PUBLISH_EVERY_S = 5.0


class ScalingRegistry:
    """Publishes metrics of the registered subsystems and applies limit changes to them.

    `node` names this process in the store: unique among those that run, the same after a restart (`gateway@host1`).
    """

    def __init__(
        self,
        store: PersistentStore,
        *,
        node: str,
        clock: Clock,
        publish_every_s: float = PUBLISH_EVERY_S,
        watch_every_s: float = DEFAULT_INTERVAL_S,
    ) -> None:
        if not node.strip():
            raise InvalidValueError("node", node, "a name for this process")
        if not publish_every_s > 0:
            raise InvalidValueError("publish_every_s", publish_every_s, "above 0")
        self._store, self._node, self._clock, self._publish_every_s = store, node, clock, publish_every_s
        self._watcher = Watcher(store, LIMITS, self._on_change, interval_s=watch_every_s, clock=clock)
        self._managed: dict[str, ManagedSubsystem] = {}  # by the key of its limits
        # Reentrant, because a subsystem may call the registry while it is reconfigured.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._outage = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def register(self, subsystem: ScalableSubsystem[Any]) -> None:
        """Manage `subsystem` from now on; limits that are stored already are applied before this returns.

        Raises StoreUnavailableError if the store cannot say, because starting with other limits would go unnoticed.
        """
        with self._lock:
            key = limits_key(subsystem.name)
            if key in self._managed:
                raise InvalidValueError("subsystem", subsystem.name, "registered only once in a process")
            managed = ManagedSubsystem(subsystem, node=self._node, clock=self._clock)
            managed.take(self._store.get(key))
            self._managed[key] = managed
            self._save_status(managed)
            if isinstance(subsystem, BackpressureAware):
                managed.stop_listening = subsystem.on_pressure_change(lambda _: self._wake.set())

    def unregister(self, name: str) -> None:
        """Let the subsystem go and remove what it published; a name that is not registered is harmless."""
        with self._lock:
            managed = self._managed.pop(limits_key(name), None)
            if managed is None:
                return
            managed.stop_listening()
            for key in (metrics_key(self._node, name), status_key(self._node, name)):
                self._store.delete(key)

    def publish(self) -> int:
        """Write a snapshot of every subsystem and return how many; one that fails to give its numbers is logged."""
        with self._lock:
            snapshots = [snapshot for managed in self._managed.values() if (snapshot := _snapshot(managed))]
            for snapshot in snapshots:
                self._store.put(metrics_key(self._node, snapshot.subsystem), snapshot.encode())
            for managed in self._managed.values():
                self._save_status(managed)
            return len(snapshots)

    def poll(self) -> None:
        """Look for changed limits once, on the caller's thread; `start` does this all the time."""
        self._watcher.poll()

    def start(self) -> None:
        """Watch and publish on threads of its own; starting twice is harmless."""
        if self._thread is None:
            self._stop.clear()
            self._watcher.start()
            self._thread = threading.Thread(target=self._run, name="scaling-registry", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop watching and publishing, and remove this process' snapshots: it left, it did not fall silent."""
        self._watcher.stop()
        self._stop.set()
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        for managed in tuple(self._managed.values()):
            try:
                self.unregister(managed.name)
            except PlatformError as error:
                log.warning("snapshot left behind", extra={"subsystem": managed.name, "reason": str(error)})

    def _on_change(self, change: Change) -> None:
        with self._lock:
            managed = self._managed.get(change.key)
            if managed is not None:
                managed.take(change.entry)
                self._save_status(managed)

    def _save_status(self, managed: ManagedSubsystem) -> None:
        if managed.status_written:
            return
        try:
            self._store.put(status_key(self._node, managed.name), managed.status().encode())
        except PlatformError as error:
            # The limits count, not the note about them; the next publication tries again.
            log.warning("limits status not written", extra={"subsystem": managed.name, "reason": str(error)})
        else:
            managed.status_written = True

    def _run(self) -> None:
        while not self._stop.is_set():
            self._publish_and_go_on()
            self._clock.wait(self._wake, self._publish_every_s)
            self._wake.clear()

    def _publish_and_go_on(self) -> None:
        try:
            self.publish()
        except PlatformError as error:
            if not self._outage:
                log.warning("metrics not published", extra={"node": self._node, "reason": str(error)})
            self._outage = True
        except Exception:
            log.exception("publishing metrics failed, it goes on")
        else:
            if self._outage:
                log.info("metrics published again", extra={"node": self._node})
            self._outage = False


def _snapshot(managed: ManagedSubsystem) -> MetricsSnapshot | None:
    try:
        return managed.snapshot()
    except Exception:
        # One broken subsystem must not silence the others.
        log.exception("metrics not taken", extra={"subsystem": managed.name})
        return None
