"""Keep tables seconds behind their topics: one thread a stream, one Spark session, commits while records arrive.

A stream that fails is told, waits longer each time, and begins anew; the others go on. Nothing is remembered between
two attempts but in the tables, so whatever ended an attempt, the next one goes on where the last commit was.

Idle streams look at the broker's end offsets a few times a second, and at their table now and then, because somebody
may have moved the stream. What is small is written in this process; a larger backlog is Spark's work, whose session is
started in the meantime.
"""

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from dw_platform.config import StreamSection
from dw_platform.foundation import PermanentError, PlatformError
from dw_platform.pipelines.ingest import IngestCommit, StreamIngest, find_stream
from dw_platform.pipelines.ingest_limits import CommitPace, IngestSubsystem, commit_pace, followed_streams
from dw_platform.pipelines.limits import ingest_limits
from dw_platform.pipelines.platform import Platform
from dw_platform.scaling import ScalingRegistry
from dw_platform.streaming import current_directive

__all__ = ["FollowEvent", "StreamFollower", "follow_streams", "followed_streams"]

log = logging.getLogger(__name__)

# How soon an idle stream notices a record; a look costs the embedded log one read of 64 bytes a partition.
LOOK_EVERY_S = 0.1
LOOK_AT_TABLE_EVERY_S = 10.0
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
_DEGRADING = frozenset({"degrade", "adaptive"})


@dataclass(frozen=True, slots=True)
class FollowEvent:
    """Something that happened to one stream: a commit, or an error after which it begins anew."""

    stream: str
    commit: IngestCommit | None = None
    error: Exception | None = None
    retry_in_s: float = 0.0


OnEvent = Callable[[FollowEvent], None]


def follow_streams(
    platform: Platform, names: Sequence[str], *, stop: threading.Event, on_event: OnEvent = lambda _: None
) -> None:
    """Ingest these streams, or all without names, until `stop` is set; commits under way are finished.

    Errors of a stream are told by `on_event` and do not end this; only what concerns all (an unknown name, a control
    store that does not answer at the start) is raised.
    """
    streams = [find_stream(platform, name) for name in names] or list(platform.config.streams)
    subsystem = IngestSubsystem(ingest_limits(platform.config), clock=platform.clock)
    with ExitStack() as running:
        node = f"ingest@{socket.gethostname()}"
        registry = running.enter_context(ScalingRegistry(platform.store, node=node, clock=platform.clock))
        registry.register(subsystem)
        for stream in streams:
            follower = StreamFollower(platform, stream, subsystem, stop=stop, on_event=on_event)
            thread = threading.Thread(target=follower.run, name=f"ingest-{stream.name}")
            thread.start()
            running.callback(thread.join)
        threading.Thread(target=_warm, args=[platform, stop], name="spark-warm-up", daemon=True).start()
        # In steps, because a wait without an end would keep the main thread from handling signals on some systems.
        while not stop.wait(1.0):
            pass


def _warm(platform: Platform, stop: threading.Event) -> None:
    try:
        platform.spark.warm()
    except Exception as error:  # noqa: BLE001  the stream that needs Spark tells it
        if not stop.is_set():
            log.warning("Spark is not ready", extra={"reason": str(error)})


class StreamFollower:
    """Follows one stream on the caller's thread."""

    def __init__(
        self,
        platform: Platform,
        stream: StreamSection,
        subsystem: IngestSubsystem,
        *,
        stop: threading.Event,
        on_event: OnEvent,
    ) -> None:
        self._platform, self._stream, self._subsystem = platform, stream, subsystem
        self._stop, self._on_event = stop, on_event
        self._retry_s = FIRST_RETRY_S

    def run(self) -> None:
        """Follow until `stop` is set, beginning anew after every error."""
        while not self._stop.is_set():
            try:
                with StreamIngest(self._platform, self._stream) as ingest:
                    self._follow(ingest)
            except PlatformError as error:
                self._failed(error)
            except Exception as error:
                log.exception("ingest failed", extra={"stream": self._stream.name})
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        # What waiting does not mend is looked at rarely, and at once after somebody has mended it and restarts this.
        self._retry_s = LONGEST_RETRY_S if isinstance(error, PermanentError) else self._retry_s
        self._subsystem.failed(self._stream)
        self._on_event(FollowEvent(self._stream.name, error=error, retry_in_s=self._retry_s))
        self._platform.clock.wait(self._stop, self._retry_s)
        self._retry_s = min(LONGEST_RETRY_S, 2 * self._retry_s)

    def _follow(self, ingest: StreamIngest) -> None:
        clock, reached, table_due = self._platform.clock, dict[int, int](), 0.0
        while not self._stop.is_set():
            began, pause_s = clock.monotonic(), LOOK_EVERY_S
            ends = ingest.ends()
            if began >= table_due or _waiting(ends, reached):
                pace = self._pace()
                report = ingest.catch_up(
                    max_rows=pace.rows, on_commit=self._committed, stop=self._stop, wait_for_spark=False
                )
                reached, table_due = dict(report.positions), clock.monotonic() + LOOK_AT_TABLE_EVERY_S
                self._retry_s = FIRST_RETRY_S
                self._subsystem.observed(self._stream, report.lag)
                if report.commits:
                    pause_s = pace.every_s - (clock.monotonic() - began)
            clock.wait(self._stop, max(pause_s, 0.0))

    def _pace(self) -> CommitPace:
        directive = None
        if self._stream.backpressure in _DEGRADING:
            directive = current_directive(self._platform.store, self._stream.topic_name, clock=self._platform.clock)
        return commit_pace(self._stream, self._subsystem.current_limits(), directive)

    def _committed(self, commit: IngestCommit) -> None:
        self._subsystem.committed(commit)
        self._on_event(FollowEvent(self._stream.name, commit=commit))


def _waiting(ends: Mapping[int, int], reached: Mapping[int, int]) -> bool:
    return any(end > reached.get(partition, 0) for partition, end in ends.items())
