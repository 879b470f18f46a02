"""`dw tables`: look at the lake's tables, build one, keep them small. Only building and upkeep start Spark."""

from typing import Annotated, Any

import typer

from dw_platform.cli.listing import complain_about, hint_at_unbuilt
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, complain, emit_json, emit_table, say
from dw_platform.foundation import TransientError, format_bytes
from dw_platform.lake.reports import HistoryEntry, MaintenanceReport
from dw_platform.lake.snapshot import Snapshot
from dw_platform.pipelines.build import build_table, built_table
from dw_platform.pipelines.maintain import maintain_tables
from dw_platform.pipelines.overview import TableOverview, UnreadableTable, tables_overview, unbuilt_tables

app = typer.Typer(help="Look at the lake's tables, build one, keep them small.", no_args_is_help=True)

TableArgument = Annotated[str, typer.Argument(help="The table, such as shop.orders.")]


@app.command("list", short_help="List every table.")
def list_tables(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """List every table with its rows, size and last change; exit code 1 when one cannot be read."""
    with open_platform(config) as platform:
        overview, unbuilt = tables_overview(platform), unbuilt_tables(platform)
    unreadable = [entry for entry in overview if isinstance(entry, UnreadableTable)]
    if json:
        emit_json([entry.as_json() for entry in overview])
    else:
        if overview:
            columns = ["table", "rows", "size", "files", "version", "changed (UTC)"]
            emit_table("", columns, [_row(entry) for entry in overview])
        elif not unbuilt:
            say("There are no tables yet, and platform.yaml describes none.")
        hint_at_unbuilt(unbuilt)
    if unreadable:
        complain_about(unreadable)
        raise typer.Exit(1)


def _row(entry: TableOverview | UnreadableTable) -> tuple[object, ...]:
    if isinstance(entry, UnreadableTable):
        return (entry.name, None, None, None, None, "cannot be read")
    changed = f"{entry.changed_at:%Y-%m-%d %H:%M:%S}"
    return (entry.name, entry.rows, format_bytes(entry.bytes), entry.files, entry.version, changed)


@app.command(short_help="Show a table's columns and latest commits.")
def show(table: TableArgument, config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Show a table's columns and its latest commits, with who wrote each and why."""
    with open_platform(config) as platform:
        handle = built_table(platform, table)
        snapshot, history = handle.snapshot(), handle.history(10)
    if json:
        emit_json(_details(snapshot, history))
        return
    say(f"{table} at {snapshot.location.uri}")
    say(f"next writer: {snapshot.writer.engine} ({snapshot.writer.reason})\n")
    emit_table("Columns", ["name", "type", "nullable"], [(f.name, f.type, f.nullable) for f in snapshot.schema])
    say()
    rows = [(str(e.version), f"{e.at:%Y-%m-%d %H:%M:%S}", e.operation, e.engine, e.reason) for e in history]
    emit_table("Latest commits", ["version", "at (UTC)", "operation", "engine", "why"], rows)


def _details(snapshot: Snapshot, history: list[HistoryEntry]) -> dict[str, Any]:
    return {
        "table": snapshot.table,
        "path": snapshot.location.uri,
        "version": snapshot.version,
        "rows": snapshot.row_count,
        "bytes": snapshot.size_bytes,
        "files": snapshot.file_count,
        "partition_by": list(snapshot.partition_by),
        "writer": {"engine": snapshot.writer.engine.value, "reason": snapshot.writer.reason},
        "columns": [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in snapshot.schema
        ],
        "history": [
            {
                "version": entry.version,
                "at": entry.at.isoformat(),
                "operation": entry.operation,
                "engine": entry.engine,
                "reason": entry.reason,
            }
            for entry in history
        ],
    }


@app.command(short_help="Build one table now, without Dagster.")
def build(table: TableArgument, config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Build one of the platform's own tables now, without Dagster."""
    with open_platform(config) as platform:
        report = build_table(platform, table)
    if json:
        emit_json(
            {
                "table": table,
                "version": report.version,
                "rows": report.rows,
                "engine": report.engine.value,
                "reason": report.reason,
                "seconds": round(report.duration_s, 2),
            }
        )
        return
    rows = "unknown rows" if report.rows is None else f"{report.rows:,} rows"
    say(f"{table} version {report.version}: {rows} in {report.duration_s:.1f} s by {report.engine} ({report.reason})")


@app.command(short_help="Join small files, remove unreferenced ones.")
def maintain(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Join small files and remove unreferenced ones in every table; exit code 1 when a table was left out."""
    done: list[MaintenanceReport] = []
    busy: list[TransientError] = []
    with open_platform(config) as platform:
        try:
            for outcome in maintain_tables(platform):
                if isinstance(outcome, TransientError):
                    busy.append(outcome)
                else:
                    done.append(outcome)
        finally:
            _emit_maintenance(done, json=json)
    for error in busy:
        complain(str(error))
    if busy:
        raise typer.Exit(1)


def _emit_maintenance(done: list[MaintenanceReport], *, json: bool) -> None:
    if json:
        fields = ("table", "files_before", "files_after", "files_removed")
        emit_json(
            [{**{name: getattr(report, name) for name in fields}, "engine": report.engine.value} for report in done]
        )
    elif done:
        rows = [
            (report.table, report.files_before, report.files_after, report.files_removed, report.engine)
            for report in done
        ]
        emit_table("", ["table", "files before", "after", "unreferenced removed", "engine"], rows)
    else:
        say("There was no table to keep small.")
