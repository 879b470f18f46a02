"""What a write or an upkeep did, as frozen values for logs, the command line and Dagster's metadata."""

from dataclasses import dataclass
from datetime import datetime

from dw_platform.lake.features import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """One commit: which version it made, what it holds, and who wrote it and why."""

    table: str
    version: int
    engine: Engine
    reason: str
    duration_s: float
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One line of a table's history."""

    version: int
    at: datetime
    operation: str
    engine: str
    """`arrow` or `spark` for the platform's own commits, else the program that made it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """What an upkeep of a table joined and removed."""

    table: str
    engine: Engine
    files_before: int
    files_after: int
    files_removed: int
    """Unreferenced files older than the retention, deleted from storage."""

    duration_s: float
