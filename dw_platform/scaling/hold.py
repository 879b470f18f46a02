"""Hands off: an operator keeps the sensors from changing a subsystem, for a while or until further notice.

    dw://internal/hold/{subsystem}

Sensors go on deciding while a hold is in force, and record what they would have done.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from dw_platform.foundation import Clock, InvalidValueError
from dw_platform.scaling.encoding import as_time, decode_object, encode_object
from dw_platform.scaling.listing import list_records
from dw_platform.store.contract import Entry, PersistentStore
from dw_platform.store.keys import internal_key, internal_prefix, key_parts

HOLDS = internal_prefix("hold")


class ScalingMode(StrEnum):
    """What becomes of a decision."""

    ACT = "act"
    RECOMMEND = "recommend"
    HELD = "held"


def hold_key(subsystem: str) -> str:
    """Return the key of a subsystem's hold."""
    return internal_key("hold", subsystem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An operator's wish that a subsystem is left as it is."""

    subsystem: str
    at: datetime
    until: datetime | None
    """When it ends by itself; None: when somebody lifts it."""

    by: str
    reason: str

    def __post_init__(self) -> None:
        if self.until is not None and self.until <= self.at:
            raise InvalidValueError("until", self.until.isoformat(), f"after {self.at.isoformat()}, when it is set")

    def active(self, now: datetime) -> bool:
        """Whether it is in force."""
        return self.until is None or now < self.until

    @classmethod
    def decode(cls, entry: Entry) -> "Hold":
        """Read what was stored."""

        def build(content: dict[str, Any]) -> Hold:
            until = content["until"]
            return cls(
                subsystem=key_parts(entry.key)[1],
                at=as_time(content["at"]),
                until=None if until is None else as_time(until),
                by=str(content["by"]),
                reason=str(content["reason"]),
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the hold's value in the store."""
        until = None if self.until is None else self.until.isoformat()
        return encode_object({"at": self.at.isoformat(), "until": until, "by": self.by, "reason": self.reason})


def effective_mode(configured: ScalingMode, hold: Hold | None, now: datetime) -> ScalingMode:
    """Return what becomes of a decision now: a hold wins over what is configured."""
    return ScalingMode.HELD if hold is not None and hold.active(now) else configured


class Holds:
    """The holds of all subsystems, in the control store."""

    def __init__(self, store: PersistentStore, *, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def set(self, subsystem: str, *, by: str, reason: str, duration: timedelta | None = None) -> Hold:
        """Hold a subsystem from now on, instead of an earlier hold of it."""
        now = self._clock.now()
        until = None if duration is None else now + duration
        hold = Hold(subsystem=subsystem, at=now, until=until, by=by, reason=reason)
        self._store.put(hold_key(subsystem), hold.encode())
        return hold

    def lift(self, subsystem: str) -> bool:
        """End a hold; return whether there was one."""
        return self._store.delete(hold_key(subsystem))

    def current(self, subsystem: str) -> Hold | None:
        """Return the hold that is in force; one that cannot be read raises, because it may be meant to be in force."""
        entry = self._store.get(hold_key(subsystem))
        hold = None if entry is None else Hold.decode(entry)
        return hold if hold is not None and hold.active(self._clock.now()) else None

    def all(self) -> tuple[Hold, ...]:
        """Return all holds that are in force, by subsystem."""
        now = self._clock.now()
        found = (hold for _, hold in list_records(self._store, HOLDS, Hold.decode))
        return tuple(hold for hold in found if hold.active(now))
