"""Whether a stream needs a run of its ingest, and how urgent it is. Pure: a sensor reads the inputs and acts."""

from dataclasses import dataclass
from datetime import timedelta

from dw_platform.foundation import InvalidValueError, format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """When a stream that is behind gets a run of its own."""

    patience: timedelta = timedelta(seconds=30)
    """How far a live ingest may be behind before a run helps it; a commit or two of its own are faster than a run."""

    urgent_from: float = 0.7
    """Occupancy from which a run goes before ordinary ones; the level at which producers are warned."""

    priority: int = 10
    """Of an ordinary run of ingest: above tables that are derived from its rows."""

    urgent_priority: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.urgent_from <= 1:
            raise InvalidValueError("urgent_from", self.urgent_from, "above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class RunDecision:
    """Whether to request a run now, with which priority, and why or why not."""

    request: bool
    priority: int
    reason: str


def decide_ingest_run(
    *,
    lag: int,
    oldest: timedelta | None,
    capacity: int,
    under_way: int,
    live: bool,
    policy: RunPolicy | None = None,
) -> RunDecision:
    """Decide for one stream with `lag` records waiting, the oldest of them for `oldest`.

    One run at a time catches up with everything that is there, so a second one could only wait for the first. A live
    ingest (`dw up`) commits every second; a run beside it would start a JVM to find nothing left.
    """
    policy = policy or RunPolicy()
    priority = policy.urgent_priority if lag >= policy.urgent_from * capacity else policy.priority
    waiting = f"{lag:,} records are waiting"
    if lag <= 0:
        return RunDecision(request=False, priority=priority, reason="nothing is waiting")
    if under_way:
        return RunDecision(request=False, priority=priority, reason=f"{waiting}, and a run is queued or running")
    if live and (oldest is None or oldest <= policy.patience):
        return RunDecision(request=False, priority=priority, reason=f"{waiting}, and the live ingest commits them")
    if live:
        behind = f"for more than {format_duration(policy.patience)} although a live ingest runs"
        return RunDecision(request=True, priority=priority, reason=f"{waiting}, {behind}")
    return RunDecision(request=True, priority=priority, reason=waiting)
