"""Watching and steering subsystems that run somewhere else: what the command line, the API and sensors call.

A change is checked against the catalogue, merged into what is in force and written under the store's version, so
two people who change different limits at the same time both succeed. Every process that watches picks it up.

Explained: a record carries who changed what and why, and is copied to the history before it is replaced. A crash
between the two leaves it in both places, never in none.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import chain
from typing import Any

from dw_platform.foundation import Clock, InvalidValueError
from dw_platform.scaling.catalogue import LimitCatalogue
from dw_platform.scaling.errors import UndecodableRecordError
from dw_platform.scaling.limits import Limits, apply_changes, flatten, limits_to_json
from dw_platform.scaling.listing import list_records
from dw_platform.scaling.records import (
    LIMITS,
    STATUSES,
    LimitRecord,
    LimitStatus,
    history_key,
    history_prefix,
    limits_key,
)
from dw_platform.scaling.snapshot import METRICS, MetricsSnapshot
from dw_platform.store.contract import Entry, PersistentStore
from dw_platform.store.update import update

# Explains months of manual changes or a busy day of a sensor, in about 30 KB a subsystem.
HISTORY_KEPT = 100

Overrides = Mapping[str, Any]


class LimitControl:
    """Limits and metrics of every subsystem of the platform, through the control store."""

    def __init__(
        self, store: PersistentStore, catalogue: LimitCatalogue, *, clock: Clock, history_kept: int = HISTORY_KEPT
    ) -> None:
        if history_kept < 1:
            raise InvalidValueError("history_kept", history_kept, "at least 1")
        self._store, self._catalogue, self._clock, self._history_kept = store, catalogue, clock, history_kept

    def current(self, subsystem: str) -> LimitRecord | None:
        """Return the changes in force, or None while the configured limits are."""
        self._catalogue.configured(subsystem)
        entry = self._store.get(limits_key(subsystem))
        return None if entry is None else LimitRecord.decode(entry)

    def effective(self, subsystem: str) -> Limits:
        """Return the limits in force, configured and changed ones together."""
        record = self.current(subsystem)
        return apply_changes(self._catalogue.configured(subsystem), record.values if record else {})

    def set(self, subsystem: str, changes: Mapping[str, Any], *, changed_by: str, reason: str) -> LimitRecord:
        """Merge `changes` (dotted keys or nested; text as typed, or JSON) into what is in force; return the result.

        All changes are taken or, with InvalidValueError, none. What is already so is not written again.
        """
        wanted = flatten(changes)
        if not wanted:
            raise InvalidValueError("changes", dict(changes), "at least one KEY=VALUE")
        record = self._change(subsystem, lambda overrides: {**overrides, **wanted}, changed_by, reason)
        assert record is not None, "something was set, so there is a record"
        return record

    def reset(
        self, subsystem: str, keys: Iterable[str] | None = None, *, changed_by: str, reason: str
    ) -> LimitRecord | None:
        """Go back to the configured values of `keys`, or of everything; None if nothing was ever changed.

        Without `keys` this also replaces a record that cannot be read.
        """
        if keys is None:
            return self._change(subsystem, lambda _: {}, changed_by, reason, repair=True)
        dropped, known = frozenset(keys), limits_to_json(self._catalogue.configured(subsystem))

        def without(overrides: Overrides) -> Overrides:
            # A key that only the record knows is a limit that has since been removed, and must go.
            for key in sorted(dropped - known.keys() - overrides.keys()):
                raise InvalidValueError(key, "reset", f"there is no such limit, the limits are {', '.join(known)}")
            return {key: value for key, value in overrides.items() if key not in dropped}

        return self._change(subsystem, without, changed_by, reason)

    def history(self, subsystem: str | None = None, *, limit: int = 50) -> tuple[LimitRecord, ...]:
        """Return the newest changes, newest first, of one subsystem or of all."""
        if subsystem is not None:
            self._catalogue.configured(subsystem)
        replaced = list_records(self._store, history_prefix(subsystem), LimitRecord.decode)
        in_force = list_records(self._store, LIMITS, LimitRecord.decode)
        # By version, because a record is in both places while it is being replaced.
        found = {(record.subsystem, record.version): record for _, record in chain(replaced, in_force)}
        wanted = [record for record in found.values() if subsystem in {None, record.subsystem}]
        return tuple(sorted(wanted, key=lambda record: (record.at, record.version), reverse=True)[:limit])

    def metrics(self) -> tuple[MetricsSnapshot, ...]:
        """Return the last snapshot of every process and subsystem; its age tells whether the process still lives."""
        return tuple(snapshot for _, snapshot in list_records(self._store, METRICS, MetricsSnapshot.decode))

    def statuses(self, subsystem: str | None = None) -> tuple[LimitStatus, ...]:
        """Return what each process made of the limits: which version it applied, or why it refused."""
        found = list_records(self._store, STATUSES, LimitStatus.decode)
        return tuple(status for _, status in found if subsystem in {None, status.subsystem})

    def forget_stale(self, older_than: timedelta) -> int:
        """Remove what processes left that died without a goodbye; return the number of records.

        A status is as old as the snapshot beside it, because it is written only when something changes.
        """
        oldest = self._clock.now() - older_than
        snapshots = dict(list_records(self._store, METRICS, MetricsSnapshot.decode))
        alive = {(snapshot.node, snapshot.subsystem) for snapshot in snapshots.values() if snapshot.at >= oldest}
        stale = [key for key, snapshot in snapshots.items() if snapshot.at < oldest]
        for key, status in list_records(self._store, STATUSES, LimitStatus.decode):
            if status.at < oldest and (status.node, status.subsystem) not in alive:
                stale.append(key)
        return sum(self._store.delete(key) for key in stale)

    def _change(
        self,
        subsystem: str,
        edit: Callable[[Overrides], Overrides],
        changed_by: str,
        reason: str,
        *,
        repair: bool = False,
    ) -> LimitRecord | None:
        _require_explanation(changed_by=changed_by, reason=reason)
        configured = self._catalogue.configured(subsystem)

        def change(entry: Entry | None) -> bytes | None:
            record = _readable(entry, repair=repair)
            overrides = record.values if record else {}
            wanted = edit(overrides)
            after = limits_to_json(apply_changes(configured, wanted))
            values = {key: after[key] for key in wanted}
            if values == overrides and (record is None) == (entry is None):
                return None
            if entry is not None and record is not None:
                # Harmless when the race is lost: the same bytes under the same key.
                self._store.put(history_key(subsystem, record.version), entry.value)
            return LimitRecord(
                subsystem=subsystem,
                values=values,
                changes=_differences({**limits_to_json(configured), **overrides}, after),
                changed_by=changed_by,
                reason=reason,
                at=self._clock.now(),
            ).encode()

        entry = update(self._store, limits_key(subsystem), change, clock=self._clock)
        self._trim_history(subsystem)
        return None if entry is None else LimitRecord.decode(entry)

    def _trim_history(self, subsystem: str) -> None:
        kept = list(self._store.list_versions(history_prefix(subsystem)))
        for key in kept[: -self._history_kept]:
            self._store.delete(key)


def _require_explanation(**texts: str) -> None:
    for name, text in texts.items():
        if not text.strip():
            raise InvalidValueError(name, text, "not empty, because the history must explain the change")


def _readable(entry: Entry | None, *, repair: bool) -> LimitRecord | None:
    try:
        return None if entry is None else LimitRecord.decode(entry)
    except UndecodableRecordError:
        if not repair:
            raise
        return None


def _differences(before: Overrides, after: Overrides) -> dict[str, tuple[Any, Any]]:
    keys = [*after, *(key for key in before if key not in after)]
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}
