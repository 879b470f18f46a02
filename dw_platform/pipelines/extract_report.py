"""What an extraction did, and how far it is, for the command line, Dagster and logs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Mode = Literal["full", "incremental", "reconcile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractProgress:
    """How far an extraction is."""

    rows: int
    """Read in this run, those of an interrupted one that it continues among them."""

    total: int | None
    """Rows that are expected, by the database's own estimate."""

    committed: bool
    """Whether a killed extraction would go on from here."""


OnProgress = Callable[[ExtractProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractReport:
    """One finished extraction."""

    name: str
    table: str
    mode: Mode
    rows: int
    """Rows that were read."""

    pages: int
    written: int
    """Rows that the table has anew: all of a full copy, the changed ones of an incremental one."""

    replaced: int = 0
    """Rows of the table that gave way to newer ones, or were deleted."""

    deleted: int = 0
    commits: int
    version: int
    position: str | None = None
    """The cursor that the table has come to, or the last key of a full copy."""

    resumed: bool = False
    """Whether it went on with what an interrupted run had left."""

    duration_s: float
    bound: str = ""
    """What an incremental extraction read up to, and why."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.duration_s if self.duration_s else 0.0

    def as_json(self) -> dict[str, Any]:
        told = asdict(self) | {"rows_per_second": round(self.rows_per_s, 1)}
        return told | {"duration_s": round(self.duration_s, 3)}
