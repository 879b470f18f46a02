"""What the control store holds about limits, and where.

    dw://internal/limits/{subsystem}                    the limits in force, as changes to the configured ones
    dw://internal/limits-history/{subsystem}/{version}  what was in force before
    dw://internal/limits-status/{node}/{subsystem}      what a process made of them

The version is the store's own, so it also orders the changes of one subsystem.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dw_platform.scaling.encoding import as_object, as_time, decode_object, encode_object
from dw_platform.store.contract import Entry
from dw_platform.store.keys import internal_key, internal_prefix, key_parts

LIMITS = internal_prefix("limits")
STATUSES = internal_prefix("limits-status")


def limits_key(subsystem: str) -> str:
    """Return the key of the limits in force."""
    return internal_key("limits", subsystem)


def status_key(node: str, subsystem: str) -> str:
    """Return the key of what the process `node` made of them."""
    return internal_key("limits-status", node, subsystem)


def history_prefix(subsystem: str | None = None) -> str:
    """Return the prefix of the replaced limits of one subsystem, or of all."""
    return internal_prefix("limits-history", *([subsystem] if subsystem is not None else []))


def history_key(subsystem: str, version: int) -> str:
    """Return the key of replaced limits; 20 digits keep the order of versions."""
    return internal_key("limits-history", subsystem, f"{version:020d}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord:
    """The changes to a subsystem's configured limits, and who made the last of them and why."""

    subsystem: str
    version: int = 0
    """The store's; 0 before it is stored."""

    values: Mapping[str, Any]
    """Every limit that differs from the configured one on purpose, by dotted key."""

    changes: Mapping[str, tuple[Any, Any]]
    """The last change: before and after, by dotted key."""

    changed_by: str
    reason: str
    at: datetime

    @classmethod
    def decode(cls, entry: Entry) -> "LimitRecord":
        """Read a record in force, or one from the history."""

        def build(content: dict[str, Any]) -> LimitRecord:
            _, subsystem, *replaced = key_parts(entry.key)
            changes = as_object(content["changes"]).items()
            return cls(
                subsystem=subsystem,
                version=int(replaced[0]) if replaced else entry.version,
                values=as_object(content["values"]),
                changes={key: (before, after) for key, (before, after) in changes},
                changed_by=str(content["changed_by"]),
                reason=str(content["reason"]),
                at=as_time(content["at"]),
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the record's value in the store, without what its key and version say."""
        return encode_object(
            {
                "values": dict(self.values),
                "changes": {key: list(change) for key, change in self.changes.items()},
                "changed_by": self.changed_by,
                "reason": self.reason,
                "at": self.at.isoformat(),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStatus:
    """What one process made of the limits in the store."""

    node: str
    subsystem: str
    version: int | None
    """Of the record that it looked at last; None if there was none."""

    error: str | None
    """Why it refused that record and kept the limits it had; None if it applied it."""

    limits: Mapping[str, Any]
    """What it works with now, by dotted key."""

    at: datetime

    @property
    def applied(self) -> bool:
        """Whether the process works with the record's limits."""
        return self.error is None

    @classmethod
    def decode(cls, entry: Entry) -> "LimitStatus":
        """Read what a process has written."""

        def build(content: dict[str, Any]) -> LimitStatus:
            _, node, subsystem = key_parts(entry.key)
            version, error = content["version"], content["error"]
            return cls(
                node=node,
                subsystem=subsystem,
                version=None if version is None else int(version),
                error=None if error is None else str(error),
                limits=as_object(content["limits"]),
                at=as_time(content["at"]),
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the status' value in the store."""
        return encode_object(
            {"version": self.version, "error": self.error, "limits": dict(self.limits), "at": self.at.isoformat()}
        )
