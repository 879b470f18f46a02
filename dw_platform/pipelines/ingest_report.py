"""What an ingest did, as frozen values for the command line, Dagster's metadata and the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dw_platform.pipelines.lost import LostRange


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestCommit:
    """One commit of a stream's table."""

    stream: str
    table: str
    version: int
    rows: int
    """Records that became rows of the table."""

    rejected: int
    """Records that went to the rejected table."""

    bytes: int
    """Of keys and values."""

    positions: Mapping[int, int]
    """Where each partition that moved is read next."""

    lag: int
    """Records that are still waiting, of those that were there when the run began."""

    duration_s: float
    lost: tuple[LostRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """All commits of one run."""

    stream: str
    table: str
    rows: int = 0
    rejected: int = 0
    bytes: int = 0
    commits: int = 0
    version: int | None = None
    """The table's version after the last commit; None without one."""

    positions: Mapping[int, int] = field(default_factory=dict)
    """Where each partition is read next, whether it moved or not."""

    lag: int = 0
    """Records that were there when the run began and are not in the table: above 0 only with a limit."""

    lost: tuple[LostRange, ...] = ()
    duration_s: float = 0.0

    @property
    def rows_per_s(self) -> float:
        """Rows a second over the whole run."""
        return self.rows / self.duration_s if self.duration_s > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "table": self.table,
            "rows": self.rows,
            "rejected": self.rejected,
            "bytes": self.bytes,
            "commits": self.commits,
            "version": self.version,
            "positions": {str(partition): offset for partition, offset in sorted(self.positions.items())},
            "lag": self.lag,
            "lost": [
                {
                    "partition": entry.range.partition,
                    "first_offset": entry.range.first,
                    "next_offset": entry.range.next,
                    "reason": entry.reason,
                }
                for entry in self.lost
            ],
            "seconds": round(self.duration_s, 3),
        }
