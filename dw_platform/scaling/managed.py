"""One registered subsystem: takes limits from the store, reports its numbers.

The limits in force are the configured ones, which the subsystem had when it was registered, with the record's
changes on top. A record that cannot be read or is refused leaves the limits that the subsystem works with.
"""

import logging
from collections.abc import Callable
from typing import Any

from dw_platform.foundation import Clock, PlatformError
from dw_platform.scaling.limits import apply_changes, limits_to_json
from dw_platform.scaling.records import LimitRecord, LimitStatus
from dw_platform.scaling.snapshot import MetricsSnapshot
from dw_platform.scaling.subsystem import ScalableSubsystem
from dw_platform.store.contract import Entry

log = logging.getLogger(__name__)


class ManagedSubsystem:
    """Used by one thread at a time; the registry sees to that."""

    def __init__(self, subsystem: ScalableSubsystem[Any], *, node: str, clock: Clock) -> None:
        self._subsystem, self._node, self._clock = subsystem, node, clock
        self._configured = subsystem.current_limits()
        self.version: int | None = None
        self.status_written = False
        self.stop_listening: Callable[[], None] = lambda: None
        self._error: str | None = None

    @property
    def name(self) -> str:
        """The subsystem's name."""
        return self._subsystem.name

    def take(self, entry: Entry | None) -> None:
        """Work with the limits in `entry`, or with the configured ones if it was deleted; never raises."""
        if entry is not None and self.version is not None and entry.version <= self.version:
            return  # seen already: registration and the watcher both read
        self.version = None if entry is None else entry.version
        self.status_written = False
        try:
            self._apply(entry)
        except Exception as error:
            # Whatever one subsystem raises, the others must still get their limits.
            self._error = str(error) or type(error).__name__
            facts = {"subsystem": self.name, "version": self.version, "reason": self._error}
            log.warning("limits refused", extra=facts, exc_info=not isinstance(error, PlatformError))
        else:
            self._error = None

    def _apply(self, entry: Entry | None) -> None:
        record = None if entry is None else LimitRecord.decode(entry)
        limits = apply_changes(self._configured, record.values if record else {})
        if limits == self._subsystem.current_limits():
            return
        self._subsystem.reconfigure_limits(limits)
        who, why = (record.changed_by, record.reason) if record else ("", "record deleted")
        facts = {"subsystem": self.name, "version": self.version, "changed_by": who, "reason": why}
        log.info("limits applied", extra=facts)

    def status(self) -> LimitStatus:
        """Return what it made of the last record."""
        return LimitStatus(
            node=self._node,
            subsystem=self.name,
            version=self.version,
            error=self._error,
            limits=limits_to_json(self._subsystem.current_limits()),
            at=self._clock.now(),
        )

    def snapshot(self) -> MetricsSnapshot:
        """Return the subsystem's numbers and pressure now."""
        reading = self._subsystem.backpressure_state()
        return MetricsSnapshot(
            node=self._node,
            subsystem=self.name,
            at=self._clock.now(),
            values=dict(self._subsystem.scaling_metrics()),
            level=reading.level,
            occupancy=reading.occupancy,
        )
