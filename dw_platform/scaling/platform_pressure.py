"""One level of pressure for the whole platform: that of its worst gauge, left more slowly than it is entered.

Up at once, to the worst level of any live process. Down only when, for the whole of `dwell`, no gauge asked for the
level and the worst occupancy was below its exit threshold; then to the worst that was seen meanwhile.

A process that was killed leaves its last snapshot behind. It stops counting when it is older than `stale_after`: what
is dead holds nothing up. A control store that does not answer says nothing about the platform, so the level stays.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from dw_platform.scaling.encoding import as_time, decode_object, encode_object
from dw_platform.scaling.limits import bounded, check_limits
from dw_platform.scaling.pressure import DEFAULT_THRESHOLDS, PressureLevel, PressureThresholds, next_level
from dw_platform.scaling.registry import PUBLISH_EVERY_S
from dw_platform.scaling.snapshot import MetricsSnapshot
from dw_platform.store.contract import Entry
from dw_platform.store.keys import internal_key

PLATFORM_PRESSURE = internal_key("platform-pressure")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformPressurePolicy:
    """When the platform's level moves."""

    thresholds: PressureThresholds = DEFAULT_THRESHOLDS
    dwell: timedelta = field(
        default=timedelta(minutes=2),
        metadata=bounded(
            at_least=timedelta(0),
            reason="of calm before a level is left; a run that starts is felt within a minute or two",
        ),
    )
    stale_after: timedelta = field(
        default=timedelta(seconds=3 * PUBLISH_EVERY_S),
        metadata=bounded(above=timedelta(0), reason="three snapshots missed: the process is gone, or hangs"),
    )

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformPressure:
    """The platform's level, and what it takes to leave it."""

    level: PressureLevel
    since: datetime
    occupancy: float = 0.0
    """Of the worst gauge at the last look."""

    source: str = ""
    """That gauge, as `subsystem on node`; empty when nothing lives."""

    calm_since: datetime | None = None
    calm_level: PressureLevel = PressureLevel.NORMAL
    """The worst level since then."""

    @classmethod
    def decode(cls, entry: Entry) -> "PlatformPressure":
        """Read what was stored."""

        def build(content: dict[str, Any]) -> PlatformPressure:
            calm_since = content["calm_since"]
            return cls(
                level=PressureLevel.from_label(content["level"]),
                since=as_time(content["since"]),
                occupancy=float(content["occupancy"]),
                source=str(content["source"]),
                calm_since=None if calm_since is None else as_time(calm_since),
                calm_level=PressureLevel.from_label(content["calm_level"]),
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the value in the store."""
        return encode_object(
            {
                "level": self.level.label,
                "since": self.since.isoformat(),
                "occupancy": self.occupancy,
                "source": self.source,
                "calm_since": None if self.calm_since is None else self.calm_since.isoformat(),
                "calm_level": self.calm_level.label,
            }
        )


def next_platform_level(
    state: PlatformPressure | None,
    readings: Iterable[MetricsSnapshot] | None,
    policy: PlatformPressurePolicy,
    now: datetime,
) -> PlatformPressure:
    """Return the platform's pressure after looking at the last snapshots of all processes.

    `state` is None at the very first look, `readings` None when the store did not answer.
    """
    state = state or PlatformPressure(level=PressureLevel.NORMAL, since=now)
    if readings is None:
        return state
    live = [reading for reading in readings if reading.age(now) <= policy.stale_after]
    worst = max(live, key=lambda reading: (reading.level, reading.occupancy), default=None)
    fullest = max((reading.occupancy for reading in live), default=0.0)
    asked = max(
        worst.level if worst else PressureLevel.NORMAL,
        next_level(state.level, fullest, policy.thresholds),
    )
    seen = replace(state, occupancy=fullest, source=f"{worst.subsystem} on {worst.node}" if worst else "")
    if asked > state.level:
        return replace(seen, level=asked, since=now, calm_since=None)
    if asked == state.level:
        return replace(seen, calm_since=None)
    return _calming(seen, asked, policy, now)


def _calming(
    state: PlatformPressure, asked: PressureLevel, policy: PlatformPressurePolicy, now: datetime
) -> PlatformPressure:
    since = state.calm_since or now
    worst = asked if state.calm_since is None else max(asked, state.calm_level)
    if now - since < policy.dwell:
        return replace(state, calm_since=since, calm_level=worst)
    return replace(state, level=worst, since=now, calm_since=None)
