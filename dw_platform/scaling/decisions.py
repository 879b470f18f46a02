"""What was decided about limits: as records in the control store, and as rows of a table.

    dw://internal/decisions/{id}

An id is made of the sensor and its tick, so a tick that runs again finds its own record instead of writing a second.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.encoding import as_object, as_time, decode_object, encode_object
from dw_platform.scaling.hold import ScalingMode
from dw_platform.scaling.listing import list_records
from dw_platform.store.contract import Entry, PersistentStore
from dw_platform.store.errors import StaleVersionError
from dw_platform.store.keys import internal_key, internal_prefix, key_parts

DECISIONS = internal_prefix("decisions")

# The table ops.scaling_decisions keeps them all; here are those that a status page and a settling sensor look at.
DECISIONS_KEPT = 500
# Trimming reads every record, so it happens once in a while, not with each one.
_TRIM_ABOVE = 1.1


def decision_id(sensor: str, tick: str, limit: str) -> str:
    """Return the id of what `sensor` decided about `limit` (`bus.partitions`) in its tick; the same whenever asked."""
    parts = json.dumps([sensor, tick, limit], separators=(",", ":"))
    return hashlib.sha256(parts.encode()).hexdigest()[:24]


def decision_key(identity: str) -> str:
    """Return the key of a decision."""
    return internal_key("decisions", identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """One limit that a sensor changed, or would have changed."""

    id: str
    at: datetime
    subsystem: str
    limit: str
    """The dotted key, such as `thresholds.warning`."""

    before: Any
    after: Any
    """As JSON holds them; what was applied, not what was asked for."""

    reason: str
    decided_by: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What it was decided from, so that it can be decided again."""

    mode: ScalingMode
    applied: bool
    """Whether `after` was put in force; False in mode `act` if that was interrupted or refused."""

    def __post_init__(self) -> None:
        for name in ("id", "subsystem", "limit", "reason", "decided_by"):
            if not getattr(self, name).strip():
                raise InvalidValueError(name, getattr(self, name), "not empty, because the record must explain itself")
        if self.applied and self.mode is not ScalingMode.ACT:
            raise InvalidValueError("applied", self.applied, f"False in mode {self.mode}")

    @classmethod
    def decode(cls, entry: Entry) -> "ScalingDecision":
        """Read what was stored."""

        def build(content: dict[str, Any]) -> ScalingDecision:
            return cls(
                id=key_parts(entry.key)[1],
                at=as_time(content["at"]),
                subsystem=str(content["subsystem"]),
                limit=str(content["limit"]),
                before=content["before"],
                after=content["after"],
                reason=str(content["reason"]),
                decided_by=str(content["decided_by"]),
                inputs=as_object(content["inputs"]),
                mode=ScalingMode(content["mode"]),
                applied=bool(content["applied"]),
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the decision's value in the store, without what its key says."""
        return encode_object(
            {
                "at": self.at.isoformat(),
                "subsystem": self.subsystem,
                "limit": self.limit,
                "before": self.before,
                "after": self.after,
                "reason": self.reason,
                "decided_by": self.decided_by,
                "inputs": dict(self.inputs),
                "mode": self.mode.value,
                "applied": self.applied,
            }
        )

    def as_row(self) -> dict[str, Any]:
        """Return a row of ops.scaling_decisions; values of any kind are JSON text there."""
        return {
            "id": self.id,
            "at": self.at,
            "subsystem": self.subsystem,
            "limit": self.limit,
            "before": json.dumps(self.before),
            "after": json.dumps(self.after),
            "reason": self.reason,
            "decided_by": self.decided_by,
            "inputs": json.dumps(dict(self.inputs), sort_keys=True),
            "mode": self.mode.value,
            "applied": self.applied,
        }


class DecisionLog:
    """The newest decisions, in the control store."""

    def __init__(self, store: PersistentStore, *, kept: int = DECISIONS_KEPT) -> None:
        if kept < 1:
            raise InvalidValueError("kept", kept, "at least 1")
        self._store, self._kept = store, kept

    def find(self, identity: str) -> ScalingDecision | None:
        """Return a decision, None if it was never recorded or is no longer kept."""
        entry = self._store.get(decision_key(identity))
        return None if entry is None else ScalingDecision.decode(entry)

    def add(self, decision: ScalingDecision) -> ScalingDecision:
        """Record a decision unless its id is recorded already; return what is recorded."""
        try:
            self._store.compare_and_set(decision_key(decision.id), decision.encode(), expected=None)
        except StaleVersionError:
            return self.find(decision.id) or decision
        self._trim()
        return decision

    def replace(self, decision: ScalingDecision) -> ScalingDecision:
        """Record what became of a decision."""
        self._store.put(decision_key(decision.id), decision.encode())
        return decision

    def newest(self, subsystem: str | None = None, *, limit: int | None = None) -> tuple[ScalingDecision, ...]:
        """Return decisions, newest first, of one subsystem or of all."""
        found = (decision for _, decision in list_records(self._store, DECISIONS, ScalingDecision.decode))
        wanted = [decision for decision in found if subsystem in {None, decision.subsystem}]
        return tuple(sorted(wanted, key=lambda decision: (decision.at, decision.id), reverse=True)[:limit])

    def _trim(self) -> None:
        if len(self._store.list_versions(DECISIONS)) <= self._kept * _TRIM_ABOVE:
            return
        for decision in self.newest()[self._kept :]:
            self._store.delete(decision_key(decision.id))
