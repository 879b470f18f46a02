"""One Dagster check for each expectation of `quality`; critical ones stop whatever is downstream."""

from collections.abc import Iterator

import dagster as dg

from assets.tables import POOL, asset_key, retried_when_transient
from dw_platform.config import PlatformConfig, QualitySection
from dw_platform.pipelines.validate import check_table
from dw_platform.quality import Expectation, Severity, Verdict, row_count_check
from resources import PlatformResource

# Dagster knows two severities; what is merely informative is a warning there.
_SEVERITY = {
    Severity.CRITICAL: dg.AssetCheckSeverity.ERROR,
    Severity.WARNING: dg.AssetCheckSeverity.WARN,
    Severity.INFO: dg.AssetCheckSeverity.WARN,
}


def table_checks(config: PlatformConfig) -> list[dg.AssetChecksDefinition]:
    """Return the checks of every table that `quality` mentions."""
    return [_checks(entry) for entry in config.quality]


def _checks(entry: QualitySection) -> dg.AssetChecksDefinition:
    table = entry.table
    checks = (row_count_check(allow_empty=entry.allow_empty), *entry.expectations())

    @dg.multi_asset_check(
        name=f"{table.replace('.', '_')}_checks",
        specs=[_spec(table, expectation) for expectation in checks],
        description=f"Great Expectations on {table}; all checks read the same version.",
        compute_kind="great_expectations",
        can_subset=True,
        pool=POOL,
    )
    def evaluate(context: dg.AssetCheckExecutionContext, platform: PlatformResource) -> Iterator[dg.AssetCheckResult]:
        selected = {key.name for key in context.selected_asset_check_keys}
        with retried_when_transient():
            report = check_table(platform.open(), table, only=selected)
        yield from (_result(table, verdict, report.version) for verdict in report.verdicts)

    return evaluate


def _spec(table: str, expectation: Expectation) -> dg.AssetCheckSpec:
    what = ", ".join(f"{name}: {value}" for name, value in expectation.parameters.items())
    return dg.AssetCheckSpec(
        expectation.name,
        asset=asset_key(table),
        blocking=expectation.severity is Severity.CRITICAL,
        description=f"{expectation.kind} {' '.join(expectation.columns)} {what}".strip(),
    )


def _result(table: str, verdict: Verdict, version: int) -> dg.AssetCheckResult:
    numbers = {"unexpected_count": verdict.unexpected_count, "unexpected_percent": verdict.unexpected_percent}
    return dg.AssetCheckResult(
        check_name=verdict.check,
        asset_key=asset_key(table),
        passed=bool(verdict.passed),
        severity=_SEVERITY[verdict.severity],
        description=verdict.exception or verdict.detail,
        metadata={
            "delta_version": str(version),  # as text, because the UI plots numbers
            **{name: value for name, value in numbers.items() if value is not None},
            **({"observed": verdict.observed} if verdict.observed is not None else {}),
        },
    )
