"""The subsystem `ingest`: how fast a following ingest goes, and the limits that can be changed while it runs."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from dw_platform.config import StreamSection
from dw_platform.foundation import Clock
from dw_platform.pipelines.ingest_report import IngestCommit
from dw_platform.pipelines.platform import Platform
from dw_platform.scaling import (
    DEFAULT_THRESHOLDS,
    GaugeReading,
    MetricsSnapshot,
    PressureGauge,
    PressureThresholds,
    bounded,
    check_limits,
)
from dw_platform.scaling.listing import list_records
from dw_platform.scaling.registry import PUBLISH_EVERY_S
from dw_platform.scaling.snapshot import METRICS
from dw_platform.streaming import DegradationDirective

# Rates are those of the last seconds; longer would hide that a stream has stopped.
_WINDOW_S = 10.0
_LAG_OF = "lag."
# Three snapshots missed: the process was killed, or hangs.
_SILENT_AFTER = timedelta(seconds=3 * PUBLISH_EVERY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestLimits:
    """What one commit of any stream may hold, and how often it comes."""

    max_rows_per_commit: int | None = field(
        default=None, metadata=bounded(at_least=1, unit="rows", reason="of every stream; none: as its stream says")
    )
    commit_every: timedelta | None = field(
        default=None, metadata=bounded(above=timedelta(0), reason="of every stream; none: as its stream says")
    )
    thresholds: PressureThresholds = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, slots=True)
class CommitPace:
    """How large and how frequent the commits of one stream are now."""

    rows: int
    every_s: float


def commit_pace(
    stream: StreamSection, limits: IngestLimits, directive: DegradationDirective | None = None
) -> CommitPace:
    """Return what holds for a stream: its own values unless somebody set others, stretched while it degrades."""
    factor = directive.batch_factor if directive else 1
    rows = limits.max_rows_per_commit or stream.commit.rows
    return CommitPace(rows * factor, (limits.commit_every or stream.commit.every).total_seconds() * factor)


class IngestSubsystem:
    """A ScalableSubsystem of one process that follows streams; any thread may use it.

    Its pressure is that of the stream whose backlog is nearest to its capacity.
    """

    name = "ingest"

    def __init__(self, limits: IngestLimits, *, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._gauge = PressureGauge(self.name, limits.thresholds, clock=clock)
        self._lock = threading.Lock()
        self._commits: deque[tuple[float, int]] = deque()
        self._lags: dict[str, tuple[int, int]] = {}
        self._failing: set[str] = set()
        self._rows = self._rejected = 0

    def current_limits(self) -> IngestLimits:
        """Return the limits in force."""
        return self._limits

    def reconfigure_limits(self, limits: IngestLimits) -> None:
        """Use `limits` from the next commit of every stream on."""
        self._limits = limits
        self._gauge.reconfigure(limits.thresholds)

    def backpressure_state(self) -> GaugeReading:
        """Return the pressure after the last look at a stream."""
        return self._gauge.reading()

    def committed(self, commit: IngestCommit) -> None:
        """Count a commit."""
        with self._lock:
            self._commits.append((self._clock.monotonic(), commit.rows + commit.rejected))
            self._rows += commit.rows
            self._rejected += commit.rejected

    def observed(self, stream: StreamSection, lag: int) -> None:
        """Take in how far a stream that works is behind."""
        with self._lock:
            self._failing.discard(stream.name)
            self._lags[stream.name] = (lag, stream.capacity)
            fullest = max(waiting / capacity for waiting, capacity in self._lags.values())
        self._gauge.observe(fullest)

    def failed(self, stream: StreamSection) -> None:
        """Take in that a stream does not work."""
        with self._lock:
            self._failing.add(stream.name)

    def scaling_metrics(self) -> Mapping[str, float]:
        """Return totals, rates of the last seconds, and the lag of all streams and of each one that works."""
        with self._lock:
            oldest = self._clock.monotonic() - _WINDOW_S
            while self._commits and self._commits[0][0] < oldest:
                self._commits.popleft()
            return {
                "rows": self._rows,
                "rejected": self._rejected,
                "rows_per_s": sum(rows for _, rows in self._commits) / _WINDOW_S,
                "commits_per_s": len(self._commits) / _WINDOW_S,
                "lag": sum(lag for lag, _ in self._lags.values()),
                "streams": len(self._lags.keys() | self._failing),
                "failing": len(self._failing),
                **{f"{_LAG_OF}{name}": lag for name, (lag, _) in self._lags.items() if name not in self._failing},
            }


def followed_streams(platform: Platform) -> frozenset[str]:
    """Return the streams that some process follows at this moment, by what it published about itself; no JVM."""
    found, now = set[str](), platform.clock.now()
    for _, snapshot in list_records(platform.store, METRICS, MetricsSnapshot.decode):
        if snapshot.subsystem == IngestSubsystem.name and snapshot.age(now) <= _SILENT_AFTER:
            found |= {name.removeprefix(_LAG_OF) for name in snapshot.values if name.startswith(_LAG_OF)}
    return frozenset(found)
