"""What a database that fails is spared, and when it is tried again: pure decisions over its record.

A database that failed `skip_after` times in a row is left alone for a pause. What still looks at it meanwhile, such as
the regular check, counts on but does not move the end of the pause. A failure after that end begins the next pause,
twice as long. One success forgets everything.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dw_platform.foundation import InvalidValueError, format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """When a failing database is left alone, and for how long."""

    skip_after: int = 3
    """Failures in a row; one or two are often a restart."""

    first_pause: timedelta = timedelta(minutes=1)
    """The first pause; each following one is twice as long."""

    longest_pause: timedelta = timedelta(hours=1)
    """No pause is longer, so a repaired database waits at most this long without anybody's help."""

    told_every: timedelta = timedelta(minutes=10)
    """How often an unchanged state is told again; a commit a minute would make half a million files a year."""

    def __post_init__(self) -> None:
        if self.skip_after < 1:
            raise InvalidValueError("skip_after", self.skip_after, "at least 1")
        if not timedelta(0) < self.first_pause <= self.longest_pause:
            raise InvalidValueError("first_pause", self.first_pause, "more than nothing, at most longest_pause")

    def pause(self, number: int) -> timedelta:
        """Return how long the pause of this number is, counted from 0."""
        doubled = min(number, 40)  # beyond this a timedelta would overflow
        return min(self.first_pause * (1 << doubled), self.longest_pause)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRecord:
    """What is known of one database; `failures` counts those since the last success."""

    database: str
    checked_at: datetime
    failures: int = 0
    error: str = ""
    failing_since: datetime | None = None
    latency_s: float | None = None
    """Of the last check that succeeded."""

    pauses: int = 0
    """How many pauses were begun."""

    retry_at: datetime | None = None
    """The end of the last pause that was begun."""

    told_at: datetime | None = None
    """When the state was last told to people: a row of `ops.health`."""

    @property
    def healthy(self) -> bool:
        """Whether the last try succeeded."""
        return self.failures == 0


@dataclass(frozen=True, slots=True)
class SkipDecision:
    """Whether to leave a database alone now, and why."""

    skip: bool
    reason: str
    try_again_at: datetime | None = None


def succeeded(before: HealthRecord | None, database: str, *, latency_s: float | None, now: datetime) -> HealthRecord:
    """Return the record after a success, which forgets failures and pauses; no latency keeps the one that is known."""
    known = before.latency_s if before and latency_s is None else latency_s
    return HealthRecord(
        database=database,
        checked_at=now,
        latency_s=known,
        told_at=before.told_at if before and before.healthy else None,
    )


def failed(
    before: HealthRecord | None, database: str, *, error: str, now: datetime, policy: HealthPolicy
) -> HealthRecord:
    """Return the record after one more failure."""
    record = before or HealthRecord(database=database, checked_at=now)
    counted = replace(
        record,
        checked_at=now,
        failures=record.failures + 1,
        error=error,
        failing_since=record.failing_since or now,
        told_at=None if record.healthy else record.told_at,
    )
    if counted.failures < policy.skip_after or (counted.retry_at is not None and now < counted.retry_at):
        return counted
    return replace(counted, pauses=counted.pauses + 1, retry_at=now + policy.pause(counted.pauses))


def decide_skip(record: HealthRecord | None, now: datetime, policy: HealthPolicy) -> SkipDecision:
    """Say whether a database is left alone now."""
    if record is None:
        return SkipDecision(skip=False, reason="it was never tried")
    if record.healthy:
        return SkipDecision(skip=False, reason="it answered the last time")
    times = "once" if record.failures == 1 else f"{record.failures} times in a row"
    told = f"it failed {times} ({record.error})"
    if record.retry_at is None:
        return SkipDecision(skip=False, reason=f"{told}; from {policy.skip_after} on it is left alone")
    if now >= record.retry_at:
        return SkipDecision(skip=False, reason=f"{told}; its pause is over")
    left = format_duration(timedelta(seconds=max(1, round((record.retry_at - now).total_seconds()))))
    return SkipDecision(skip=True, reason=f"{told}; it is tried again in {left}", try_again_at=record.retry_at)


def is_due_to_tell(record: HealthRecord, now: datetime, policy: HealthPolicy) -> bool:
    """Return whether the state is new to people, or was told long enough ago."""
    return record.told_at is None or now - record.told_at >= policy.told_every
