"""Which closed segments go. Pure: the partition that asks does the removing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from dw_platform.foundation import format_bytes, format_duration
from dw_platform.log.layout import SegmentInfo
from dw_platform.log.policy import Retention


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A closed segment and the time at which its newest record was appended."""

    segment: SegmentInfo
    newest_ms: int


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What goes, oldest first, what stays, and for each that goes the reason."""

    drop: tuple[SegmentAge, ...]
    keep: tuple[SegmentAge, ...]
    reasons: tuple[str, ...]


def plan_retention(
    closed: Sequence[SegmentAge], retention: Retention, *, now_ms: int, active_bytes: int, read_up_to: int | None
) -> RetentionPlan:
    """Return the plan for `closed`, oldest first; the active segment counts for size only and never goes.

    Only a beginning of the log goes: behind a segment that stays everything stays, so that a log has no holes.
    """
    total = active_bytes + sum(age.segment.size for age in closed)
    reasons = list[str]()
    for age in closed:
        reason = _claim(age, retention, now_ms, total, read_up_to)
        if reason is None or (retention.keep_unread and _unread(age, read_up_to)):
            break
        reasons.append(reason)
        total -= age.segment.size
    count = len(reasons)
    return RetentionPlan(tuple(closed[:count]), tuple(closed[count:]), tuple(reasons))


def _claim(age: SegmentAge, retention: Retention, now_ms: int, total: int, read_up_to: int | None) -> str | None:
    since = timedelta(milliseconds=max(0, now_ms - age.newest_ms))
    if retention.max_age is not None and since > retention.max_age:
        return f"its newest record is older than {format_duration(retention.max_age)}"
    if retention.max_bytes is not None and total > retention.max_bytes:
        return f"the partition has {format_bytes(total)}, more than {format_bytes(retention.max_bytes)}"
    if retention.when_read and read_up_to is not None and not _unread(age, read_up_to):
        return f"every subscriber has read up to offset {read_up_to}"
    return None


def _unread(age: SegmentAge, read_up_to: int | None) -> bool:
    return read_up_to is not None and age.segment.end > read_up_to
