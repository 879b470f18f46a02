"""What backups, restores, verifications and removals did, and how far they are: for the command line, Dagster, logs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dw_platform.backup import BackupHeader, BackupKind
from dw_platform.foundation import PlatformError


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupProgress:
    """How far a job is."""

    what: str
    done_bytes: int
    total_bytes: int
    files: int = 0
    of_files: int = 0


OnProgress = Callable[[BackupProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """One finished backup of a table, or that none was needed."""

    table: str
    policy: str
    backup_id: str
    """The new backup; the one that still holds if nothing has changed since."""

    kind: BackupKind
    reason: str
    """Why it is full or incremental."""

    version: int
    """Of the table."""

    chain_id: str
    files: int
    bytes: int
    """Of the whole table, as it would be restored."""

    copied_files: int
    copied_bytes: int
    stored_bytes: int
    """Of all objects that it needs; other backups may need the same ones."""

    unchanged: bool = False
    resumed_files: int = 0
    """What an interrupted run had stored already."""

    warnings: tuple[str, ...] = ()
    duration_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.copied_bytes / self.duration_s if self.duration_s else 0.0

    def as_json(self) -> dict[str, Any]:
        told = asdict(self) | {"kind": self.kind.value, "warnings": list(self.warnings)}
        return told | {"duration_s": round(self.duration_s, 3), "bytes_per_second": round(self.bytes_per_s)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReport:
    """One run of a policy: what was backed up, and what could not be."""

    policy: str
    backups: tuple[BackupReport, ...]
    failed: tuple[tuple[str, PlatformError], ...] = ()

    @property
    def errors(self) -> list[str]:
        return [str(error) for _, error in self.failed]

    def as_json(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "backups": [report.as_json() for report in self.backups],
            "failed": [{"table": table, "error": str(error)} for table, error in self.failed],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """One finished restore."""

    table: str
    backup_id: str
    version: int
    target: str
    files: int
    bytes: int
    written_files: int
    written_bytes: int
    """What was not there already."""

    rows: int | None
    replaced: bool
    """Whether another table was there before."""

    duration_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.written_bytes / self.duration_s if self.duration_s else 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"duration_s": round(self.duration_s, 3), "bytes_per_second": round(self.bytes_per_s)}


def header_json(header: BackupHeader) -> dict[str, Any]:
    """Return a backup's header for programs."""
    return asdict(header) | {"kind": header.kind.value, "created": header.created.isoformat()}
