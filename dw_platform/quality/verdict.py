"""What checks found: one `Verdict` a check, one `QualityReport` a table and version."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dw_platform.quality.expectations import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one check. It holds counts and aggregates, never the rows themselves."""

    check: str
    table: str
    passed: bool
    severity: Severity = Severity.CRITICAL
    observed: str | float | None = None
    """What an aggregate or a schema check saw; None for a check that judges each row."""

    unexpected_count: int | None = None
    """Rows, or distinct values, that break the check."""

    unexpected_percent: float | None = None
    """The same as a share of what was judged, 0 to 100; NULLs are judged only by checks about NULL."""

    detail: str = ""
    """One sentence for a person."""

    exception: str | None = None
    """Why the check could not be evaluated, such as a missing column; such a check has failed."""

    @property
    def blocks(self) -> bool:
        """Whether downstream work must not use the table."""
        return not self.passed and self.severity is Severity.CRITICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """All verdicts about one version of a table."""

    table: str
    version: int
    verdicts: tuple[Verdict, ...]
    duration_s: float

    @property
    def passed(self) -> bool:
        """Whether the table may be used: no critical check failed. Warnings do not count."""
        return not self.blocking_failures

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """Every check that failed, whatever its severity."""
        return tuple(verdict for verdict in self.verdicts if not verdict.passed)

    @property
    def blocking_failures(self) -> tuple[Verdict, ...]:
        """The failed critical checks."""
        return tuple(verdict for verdict in self.verdicts if verdict.blocks)

    @property
    def summary(self) -> str:
        """One line for a log or a terminal."""
        failed = len(self.failures)
        names = ", ".join(verdict.check for verdict in self.failures)
        told = f"{failed} of {len(self.verdicts)} checks failed: {names}" if failed else f"{len(self.verdicts)} passed"
        return f"{self.table} version {self.version}: {told}"


def sentence(result: Mapping[str, Any], observed: str | float | None) -> str:
    """Return what a person should know about one result, in numbers and column names, without row values."""
    parts = []
    if result.get("unexpected_percent") is not None:
        judged = result["element_count"] - (result.get("missing_count") or 0)
        wrong, percent = result["unexpected_count"], result["unexpected_percent"]
        parts.append(f"{wrong:,} of {judged:,} do not fit ({percent:.3g} %)" if wrong else f"all {judged:,} fit")
    elif result.get("unexpected_count"):
        parts.append(f"{result['unexpected_count']:,} values do not belong")
    if "element_count" not in result and result.get("missing_count"):
        parts.append(f"{result['missing_count']:,} values of the set do not occur")
    mismatched = (result.get("details") or {}).get("mismatched")
    if isinstance(mismatched, Mapping):
        parts += [f"{word} columns: {', '.join(names)}" for word, names in mismatched.items()]
    if not parts and observed is not None:
        parts.append(f"observed {observed}" if isinstance(observed, str) else f"observed {observed:,}")
    return "; ".join(parts)
