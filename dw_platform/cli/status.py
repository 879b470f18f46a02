"""`dw status`: tables, checks, streams, extracts and backups at a glance, without Spark."""

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dw_platform.cli.children import stop_signals
from dw_platform.cli.listing import complain_about, hint_at_unbuilt
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, say
from dw_platform.foundation import UserError, format_bytes, format_duration
from dw_platform.pipelines import Platform
from dw_platform.pipelines.overview import (
    CheckOverview,
    TableOverview,
    UnreadableTable,
    check_overview,
    tables_overview,
    unbuilt_tables,
)
from dw_platform.pipelines.streams_overview import StreamOverview, streams_overview
from dw_platform.pipelines.validate import RESULTS_TABLE

if TYPE_CHECKING:
    from dw_platform.pipelines.backup_overview import TableBackups
    from dw_platform.pipelines.extracts_overview import ExtractOverview

_REFRESH_S = 2.0


def status(
    config: ConfigOption = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every 2 s until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show every table with the newest verdicts on it; exit code 1 when a table cannot be read."""
    if watch and json:
        raise UserError("--watch is for people and --json for programs: use one of them, or call --json repeatedly.")
    with open_platform(config) as platform:
        unreadable = _show(platform, json=json)
        if watch:
            _watch(platform)
            return
    if unreadable:
        complain_about(unreadable)
        raise typer.Exit(1)


def _watch(platform: Platform) -> None:
    with stop_signals() as stop:
        while not stop.wait(_REFRESH_S):
            if sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")
            _show(platform, json=False)
            sys.stdout.flush()


def _show(platform: Platform, *, json: bool) -> list[UnreadableTable]:
    tables = tables_overview(platform)
    unreadable = [entry for entry in tables if isinstance(entry, UnreadableTable)]
    # The table of verdicts may itself be the one that cannot be read.
    checks = [] if RESULTS_TABLE in {entry.name for entry in unreadable} else check_overview(platform)
    where = {
        "home": str(platform.home),
        "lake": platform.config.lake_settings.root,
        "store": str(platform.config.store.address(platform.home)),
    }
    unbuilt = unbuilt_tables(platform)
    streams = streams_overview(platform)
    extracts, backups = _extracts(platform), _backups(platform)
    if json:
        emit_json(
            {
                "platform": platform.config.name,
                **where,
                "tables": [entry.as_json() for entry in tables],
                "checks": [entry.as_json() for entry in checks],
                "streams": [entry.as_json() for entry in streams],
                "extracts": [entry.as_json() for entry in extracts],
                "backups": [entry.as_json() for entry in backups],
                "unbuilt": unbuilt,
            }
        )
        return unreadable
    say(Text(platform.config.name, "bold"))
    for name, place in where.items():
        say(f"  {name:<6} {place}")
    say()
    if tables:
        verdicts = {entry.table: entry for entry in checks}
        rows = [_row(entry, verdicts.get(entry.name)) for entry in tables]
        emit_table("", ["table", "rows", "size", "version", "changed (UTC)", "checks"], rows)
    if streams:
        say()
        emit_table("", ["stream", "table", "waiting", "oldest", "ingest"], [_stream_row(entry) for entry in streams])
    if extracts:
        say()
        columns = ["extract", "table", "mode", "state", "position", "failures of the database"]
        emit_table("", columns, [tuple(entry.as_json().values()) for entry in extracts])
    if backups:
        say()
        columns = ["backed up", "policy", "newest backup", "of version", "made (UTC)", "backups", "broken"]
        emit_table("", columns, [_backup_row(entry) for entry in backups])
    hint_at_unbuilt(unbuilt)
    return unreadable


def _extracts(platform: Platform) -> "list[ExtractOverview]":
    if not platform.config.databases:
        return []
    # Here, because the clients of databases come with it.
    from dw_platform.pipelines.extracts_overview import extracts_overview

    return extracts_overview(platform)


def _backups(platform: Platform) -> "list[TableBackups]":
    if not platform.config.backups.policies:
        return []
    from dw_platform.pipelines.backup_overview import table_backups

    return table_backups(platform)


def _backup_row(entry: "TableBackups") -> tuple[object, ...]:
    newest = entry.newest
    broken = Text(str(entry.broken), "red") if entry.broken else None
    if newest is None:
        return (entry.table, entry.policy, Text("none yet", "yellow"), None, None, entry.backups, broken)
    made = f"{newest.created:%Y-%m-%d %H:%M}"
    return (entry.table, entry.policy, newest.backup_id, newest.table_version, made, entry.backups, broken)


def _row(entry: TableOverview | UnreadableTable, verdict: CheckOverview | None) -> tuple[object, ...]:
    if isinstance(entry, UnreadableTable):
        return (entry.name, None, None, None, None, Text("cannot be read", "red"))
    changed = f"{entry.changed_at:%Y-%m-%d %H:%M}"
    told = _told(verdict, entry.version) if verdict else Text("-", "dim")
    return (entry.name, entry.rows, format_bytes(entry.bytes), entry.version, changed, told)


def _stream_row(entry: StreamOverview) -> tuple[object, ...]:
    if entry.lag is None:
        return (entry.name, entry.table, None, None, Text(entry.error, "red"))
    oldest = (
        None
        if entry.lag.oldest is None
        else format_duration(timedelta(seconds=round(entry.lag.oldest.total_seconds())))
    )
    return (entry.name, entry.table, entry.lag.records, oldest, "live" if entry.live else "by runs of Dagster")


def _told(verdict: CheckOverview, version: int) -> Text:
    text = f"{verdict.passed} passed" + (f", failed: {', '.join(verdict.failed)}" if verdict.failed else "")
    text += "" if verdict.version == version else f" (version {verdict.version})"
    return Text(text, "red" if verdict.blocking else "yellow" if verdict.failed else "")
