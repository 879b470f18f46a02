"""`dw health`: whether the databases answer now, how often they failed, and when they are tried again."""

import sys
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, complain, emit_json, emit_table, say
from dw_platform.cli.secrecy import masked

if TYPE_CHECKING:
    from dw_platform.pipelines.health import DatabaseHealth


def health(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Ask every database now, all at once, 5 s each at most; exit code 1 when one does not answer.

    An answer counts like any other: a database that was left alone is extracted again by its schedule.
    """
    # Here, because SQLAlchemy comes with it, which the other commands should not wait for.
    from dw_platform.pipelines.health import check_databases

    with open_platform(config) as platform:
        report = check_databases(platform)
    if json:
        emit_json([_as_json(entry) for entry in report.databases])
    elif report.databases:
        columns = ["database", "state", "failures", "tried again (UTC)", "finding"]
        emit_table("", columns, [_row(entry) for entry in report.databases])
    else:
        say("platform.yaml names no databases.")
    sys.stdout.flush()
    if report.not_kept is not None:
        complain(f"ops.health did not get this: {report.not_kept}")
    if report.failing:
        complain(f"Not answering: {', '.join(report.failing)}.")
        raise typer.Exit(1)


def _state(entry: "DatabaseHealth") -> str:
    if entry.result.healthy:
        return "ok"
    return "left alone" if entry.decision.skip else "failed"


def _row(entry: "DatabaseHealth") -> tuple[object, ...]:
    healthy, again = entry.result.healthy, entry.decision.try_again_at
    return (
        entry.name,
        Text(_state(entry), "green" if healthy else "red"),
        entry.record.failures,
        f"{again:%Y-%m-%d %H:%M:%S}" if again else None,
        masked(entry.result.told),
    )


def _as_json(entry: "DatabaseHealth") -> dict[str, Any]:
    return {
        "database": entry.name,
        "state": _state(entry),
        "latency_ms": round(entry.result.latency_s * 1000, 3),
        "failures": entry.record.failures,
        "failing_since": entry.record.failing_since,
        "try_again_at": entry.decision.try_again_at,
        "error": masked(entry.result.why) or None,
    }
