"""Check one table against its expectations and keep the verdicts in `ops.quality_results`.

The verdicts belong to the version that was read: it is fixed before the first check, so a write in the meantime
cannot mix two versions in one report.
"""

import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa

from dw_platform.config import QualitySection
from dw_platform.foundation import UserError
from dw_platform.pipelines.build import built_table
from dw_platform.pipelines.platform import Platform
from dw_platform.quality import ROW_COUNT, QualityReport, run_expectations

RESULTS_TABLE = "ops.quality_results"

_RESULTS = pa.schema(
    [
        pa.field("checked_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_version", pa.int64(), nullable=False),
        pa.field("check_name", pa.string(), nullable=False),
        pa.field("passed", pa.bool_(), nullable=False),
        pa.field("severity", pa.string(), nullable=False),
        ("observed", pa.string()),
        ("unexpected_count", pa.int64()),
        ("unexpected_percent", pa.float64()),
        ("detail", pa.string()),
    ]
)


class NoChecksError(UserError):
    """A table that `quality` does not mention."""

    def __init__(self, table: str, checked: Sequence[str]) -> None:
        self.table, self.checked = table, tuple(checked)
        known = ", ".join(checked) or "none yet"
        super().__init__(
            f"{table} has no checks. Add it under `quality` in platform.yaml; tables with checks: {known}."
        )


class UnknownCheckError(UserError):
    """A check that the table does not have."""

    def __init__(self, table: str, unknown: Sequence[str], known: Sequence[str]) -> None:
        self.table, self.unknown, self.known = table, tuple(unknown), tuple(known)
        super().__init__(f"{table} has no check {', '.join(unknown)}; it has: {', '.join(known)}.")


def known_checks(declared: QualitySection) -> list[str]:
    """Return the names of a table's checks, the number of rows first."""
    return [ROW_COUNT, *(entry.name for entry in declared.expectations())]


def check_table(platform: Platform, table: str, *, only: AbstractSet[str] | None = None) -> QualityReport:
    """Evaluate the checks of `table` on its newest version, record the verdicts and return them.

    `only` names the checks to evaluate; the number of rows is looked at in any case, because the others mean
    nothing without it, but it is reported only if it was asked for.
    """
    declared = platform.config.quality_of(table)
    if declared is None:
        raise NoChecksError(table, sorted(entry.table for entry in platform.config.quality))
    names = known_checks(declared)
    if unknown := sorted((only or set()) - set(names)):
        raise UnknownCheckError(table, unknown, names)
    started = time.monotonic()
    handle = built_table(platform, table)
    version = handle.snapshot().version
    wanted = [entry for entry in declared.expectations() if only is None or entry.name in only]
    verdicts = run_expectations(handle.read(version), table, wanted, allow_empty=declared.allow_empty)
    reported = tuple(verdict for verdict in verdicts if only is None or verdict.check in only)
    report = QualityReport(table=table, version=version, verdicts=reported, duration_s=time.monotonic() - started)
    _record(platform, report)
    return report


def _record(platform: Platform, report: QualityReport) -> None:
    now = platform.clock.now()
    rows = [
        {
            "checked_at": now,
            "table_name": report.table,
            "table_version": report.version,
            "check_name": verdict.check,
            "passed": verdict.passed,
            "severity": verdict.severity.value,
            "observed": None if verdict.observed is None else str(verdict.observed),
            "unexpected_count": verdict.unexpected_count,
            "unexpected_percent": verdict.unexpected_percent,
            "detail": verdict.exception or verdict.detail,
        }
        for verdict in report.verdicts
    ]
    if rows:
        platform.lake.table(RESULTS_TABLE).append(pa.Table.from_pylist(rows, schema=_RESULTS))
