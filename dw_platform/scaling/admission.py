"""What may start while the platform is under pressure.

| Level | starts | waits |
|---|---|---|
| Normal | everything | |
| Warning | ingest, restore, extract, build, quality | full refreshes, backup, maintenance |
| Critical, Shedding | ingest, restore | everything else |

Ingest relieves the pressure and a restore is somebody's emergency, so nothing holds them. What waits is not refused:
it is a HeldRun until it starts (held_runs.py). At Warning the wait ends after `longest_wait`, because a platform that
is always a little full must still be backed up; at Critical it does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from dw_platform.foundation import format_duration
from dw_platform.scaling.limits import bounded, check_limits
from dw_platform.scaling.pressure import PressureLevel


class WorkClass(StrEnum):
    """Kinds of runs, the most urgent first."""

    RESTORE = "restore"
    INGEST = "ingest"
    EXTRACT = "extract"
    BUILD = "build"
    QUALITY = "quality"
    BACKUP = "backup"
    FULL_REFRESH = "full_refresh"
    MAINTENANCE = "maintenance"

    @property
    def rank(self) -> int:
        """Its place in the order of release; lower is sooner."""
        return _RANKS[self]

    @property
    def highest_level(self) -> PressureLevel:
        """The highest level at which it starts."""
        return _HIGHEST[self]


_RANKS: Mapping[WorkClass, int] = MappingProxyType({work_class: rank for rank, work_class in enumerate(WorkClass)})
_HIGHEST: Mapping[WorkClass, PressureLevel] = MappingProxyType(
    {
        WorkClass.RESTORE: PressureLevel.SHEDDING,
        WorkClass.INGEST: PressureLevel.SHEDDING,
        WorkClass.EXTRACT: PressureLevel.WARNING,
        WorkClass.BUILD: PressureLevel.WARNING,
        WorkClass.QUALITY: PressureLevel.WARNING,
        WorkClass.BACKUP: PressureLevel.NORMAL,
        WorkClass.FULL_REFRESH: PressureLevel.NORMAL,
        WorkClass.MAINTENANCE: PressureLevel.NORMAL,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """How long work waits, and how much of it starts at once when it may."""

    longest_wait: timedelta = field(
        default=timedelta(hours=4),
        metadata=bounded(at_least=timedelta(0), reason="at Warning; a nightly backup still runs in its night"),
    )
    release_at_once: int = field(
        default=2, metadata=bounded(at_least=1, unit="runs", reason="all at once would bring the pressure back")
    )

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """Whether a run may start, and why or why not."""

    start: bool
    reason: str
    shed: bool = False
    """Whether the gateway should refuse what is not critical; the same for every class."""


def decide_admission(
    work_class: WorkClass,
    level: PressureLevel,
    held_since: datetime | None,
    policy: AdmissionPolicy,
    now: datetime,
) -> AdmissionDecision:
    """Decide for one run; `held_since` is since when it waits, None if it comes now."""
    shed = level is PressureLevel.SHEDDING
    if level <= work_class.highest_level:
        return AdmissionDecision(start=True, reason=f"{work_class} starts at {level.label} pressure", shed=shed)
    waited = timedelta(0) if held_since is None else max(now - held_since, timedelta(0))
    told = f"pressure is {level.label}, {work_class} starts at {work_class.highest_level.label} or below"
    if level is PressureLevel.WARNING and waited >= policy.longest_wait:
        longest = format_duration(policy.longest_wait)
        return AdmissionDecision(start=True, reason=f"{told}, but it has waited for {longest}, which is the longest")
    if held_since is None:
        return AdmissionDecision(start=False, reason=told, shed=shed)
    so_far = format_duration(timedelta(seconds=int(waited.total_seconds())))
    return AdmissionDecision(start=False, reason=f"{told}; it has waited for {so_far}", shed=shed)
