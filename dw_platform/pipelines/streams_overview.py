"""Every stream in one line: how far its table is behind, and whether somebody follows it now; no JVM."""

from dataclasses import dataclass
from typing import Any

from dw_platform.foundation import PlatformError
from dw_platform.pipelines.follow import followed_streams
from dw_platform.pipelines.lag import StreamLag, stream_lag
from dw_platform.pipelines.platform import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOverview:
    """One stream; without `lag` its broker or its table cannot be read, and `error` says why."""

    name: str
    table: str
    live: bool
    """Whether a process ingests it all the time."""

    lag: StreamLag | None = None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        told = self.lag.as_json() if self.lag else {"stream": self.name, "error": self.error}
        return {**told, "table": self.table, "live": self.live}


def streams_overview(platform: Platform) -> list[StreamOverview]:
    """Return all streams, in the order of the file; one that cannot be read does not hide the others."""
    if not platform.config.streams:
        return []
    live, found = followed_streams(platform), []
    for stream in platform.config.streams:
        lag, error = None, ""
        try:
            lag = stream_lag(platform, stream)
        except PlatformError as problem:
            error = str(problem)
        found.append(
            StreamOverview(name=stream.name, table=stream.table, live=stream.name in live, lag=lag, error=error)
        )
    return found
