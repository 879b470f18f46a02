"""Runs that wait for the pressure to fall. Nothing that was held is forgotten.

    dw://internal/held/{work_class}/{id}    since when, why, and what it takes to start it

A record is written before its run is put off, and removed after the run was requested. A crash in between leaves the
record, and the run is requested again: under the same id, so that an orchestrator that knows run keys starts it once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dw_platform.foundation import Clock, InvalidValueError
from dw_platform.scaling.admission import AdmissionPolicy, WorkClass, decide_admission
from dw_platform.scaling.encoding import as_object, as_time, decode_object, encode_object
from dw_platform.scaling.errors import UndecodableRecordError
from dw_platform.scaling.listing import list_records
from dw_platform.scaling.pressure import PressureLevel
from dw_platform.store.contract import Entry, PersistentStore
from dw_platform.store.keys import internal_key, internal_prefix, key_parts
from dw_platform.store.update import update

HELD = internal_prefix("held")


def held_key(work_class: WorkClass, run_id: str) -> str:
    """Return the key of a run that waits."""
    return internal_key("held", work_class.value, run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """One run that waits; its id says what it is, so the same run that comes again is the same record."""

    id: str
    work_class: WorkClass
    since: datetime
    reason: str
    request: Mapping[str, Any] = field(default_factory=dict)
    """What whoever starts it needs, such as assets and tags; JSON."""

    def __post_init__(self) -> None:
        if not self.id.strip():
            raise InvalidValueError("id", self.id, "a name for the run, or it could not be released")

    @classmethod
    def decode(cls, entry: Entry) -> "HeldRun":
        """Read what was stored."""

        def build(content: dict[str, Any]) -> HeldRun:
            _, work_class, run_id = key_parts(entry.key)
            return cls(
                id=run_id,
                work_class=WorkClass(work_class),
                since=as_time(content["since"]),
                reason=str(content["reason"]),
                request=as_object(content["request"]),
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the record's value in the store, without what its key says."""
        return encode_object({"since": self.since.isoformat(), "reason": self.reason, "request": dict(self.request)})


def in_order(held: Iterable[HeldRun]) -> list[HeldRun]:
    """Return runs in the order in which they start: by class, and within it the one that has waited longest."""
    return sorted(held, key=lambda run: (run.work_class.rank, run.since, run.id))


def runs_to_release(
    held: Iterable[HeldRun], level: PressureLevel, policy: AdmissionPolicy, now: datetime
) -> list[HeldRun]:
    """Return the runs that may start now, the first first; no more than `release_at_once`."""
    admitted = [run for run in in_order(held) if decide_admission(run.work_class, level, run.since, policy, now).start]
    return admitted[: policy.release_at_once]


class HeldRuns:
    """The runs that wait, in the control store."""

    def __init__(self, store: PersistentStore, *, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def hold(self, run_id: str, work_class: WorkClass, reason: str, request: Mapping[str, Any]) -> HeldRun:
        """Let a run wait, and return its record; one that waits already keeps its place and learns the new reason."""

        def change(entry: Entry | None) -> bytes | None:
            before = _readable(entry)
            run = HeldRun(
                id=run_id,
                work_class=work_class,
                since=before.since if before else self._clock.now(),
                reason=reason,
                request=request,
            )
            return None if run == before else run.encode()

        entry = update(self._store, held_key(work_class, run_id), change, clock=self._clock)
        assert entry is not None, "a run was held, so there is a record"
        return HeldRun.decode(entry)

    def waiting(self) -> list[HeldRun]:
        """Return all runs that wait, in the order in which they start."""
        return in_order(run for _, run in list_records(self._store, HELD, HeldRun.decode))

    def forget(self, run: HeldRun) -> bool:
        """Remove a run that was requested; return whether it was still there."""
        return self._store.delete(held_key(run.work_class, run.id))


def _readable(entry: Entry | None) -> HeldRun | None:
    try:
        return None if entry is None else HeldRun.decode(entry)
    except UndecodableRecordError:
        return None  # replaced by one that can be read: the run is known, only its age is lost
