"""`dw status`: tables, checks and subsystems at a glance, without Spark."""

import threading
from typing import Annotated, Any

import typer
from rich.console import Console

from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, say
from dw_platform.foundation import format_bytes
from dw_platform.pipelines import Platform
from dw_platform.pipelines.overview import check_overview, table_overview

_REFRESH_S = 2.0


def status(
    config: ConfigOption = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every 2 s until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show every table, the newest verdicts on it, and where everything is."""
    with Platform.open(config) as platform:
        _show(platform, json=json)
        pause = threading.Event()
        while watch and not pause.wait(_REFRESH_S):
            Console().clear()
            _show(platform, json=json)


def _show(platform: Platform, *, json: bool) -> None:
    tables = [table_overview(platform, name) for name in platform.lake.table_names()]
    checks = {entry.table: entry for entry in check_overview(platform)}
    where = {
        "home": str(platform.home),
        "lake": platform.config.lake_settings.root,
        "store": str(platform.config.store.address(platform.home)),
    }
    if json:
        emit_json(
            {
                "platform": platform.config.name,
                **where,
                "tables": [entry.as_json() for entry in tables],
                "checks": [entry.as_json() for entry in checks.values()],
            }
        )
        return
    say(f"[bold]{platform.config.name}[/]   " + "   ".join(f"{name}: {place}" for name, place in where.items()) + "\n")
    rows: list[tuple[Any, ...]] = []
    for entry in tables:
        verdict = checks.get(entry.name)
        told = "not checked"
        if verdict:
            told = f"{verdict.passed} passed" + (f", failed: {', '.join(verdict.failed)}" if verdict.failed else "")
            told += "" if verdict.version == entry.version else f" (version {verdict.version})"
        changed = f"{entry.changed_at:%Y-%m-%d %H:%M:%S}"
        rows.append((entry.name, entry.rows, format_bytes(entry.bytes), str(entry.version), changed, told))
    emit_table("", ["table", "rows", "size", "version", "changed (UTC)", "checks"], rows)
