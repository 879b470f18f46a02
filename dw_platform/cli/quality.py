"""`dw quality`: run a table's checks now."""

from typing import Annotated

import typer

from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, say
from dw_platform.pipelines.validate import check_table
from dw_platform.quality import Verdict


def quality(
    table: Annotated[str, typer.Argument(help="The table, such as shop.orders.")],
    config: ConfigOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Run the checks of TABLE and record their verdicts; exit code 1 when a critical one fails."""
    with open_platform(config) as platform:
        report = check_table(platform, table)
    if json:
        emit_json(
            {
                "table": report.table,
                "version": report.version,
                "passed": report.passed,
                "seconds": round(report.duration_s, 2),
                "checks": [_as_json(verdict) for verdict in report.verdicts],
            }
        )
    else:
        rows = [(verdict.check, verdict.passed, verdict.severity, _finding(verdict)) for verdict in report.verdicts]
        emit_table("", ["check", "passed", "severity", "finding"], rows)
        say(f"\n{report.summary}")
    if not report.passed:
        raise typer.Exit(1)


def _finding(verdict: Verdict) -> str:
    return verdict.exception or verdict.detail


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "check": verdict.check,
        "passed": verdict.passed,
        "severity": verdict.severity.value,
        "observed": verdict.observed,
        "unexpected_count": verdict.unexpected_count,
        "unexpected_percent": verdict.unexpected_percent,
        "finding": _finding(verdict),
    }
