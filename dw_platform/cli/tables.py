"""`dw tables`: look at the lake's tables, build one, keep them small. Only building and upkeep start Spark."""

from typing import Annotated

import typer

from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, progress, say
from dw_platform.foundation import TransientError, format_bytes
from dw_platform.pipelines import Platform
from dw_platform.pipelines.build import build_table
from dw_platform.pipelines.maintain import maintain_tables
from dw_platform.pipelines.overview import table_overview

app = typer.Typer(help="Look at the lake's tables, build one, keep them small.", no_args_is_help=True)

TableArgument = Annotated[str, typer.Argument(help="The table, such as shop.orders.")]


@app.command("list")
def list_tables(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """List every table with its rows, size and last change."""
    with Platform.open(config) as platform:
        overview = [table_overview(platform, name) for name in platform.lake.table_names()]
    if json:
        emit_json([entry.as_json() for entry in overview])
        return
    rows = [
        (
            entry.name,
            entry.rows,
            format_bytes(entry.bytes),
            entry.files,
            entry.version,
            f"{entry.changed_at:%Y-%m-%d %H:%M:%S}",
        )
        for entry in overview
    ]
    emit_table("", ["table", "rows", "size", "files", "version", "changed (UTC)"], rows)


@app.command()
def show(table: TableArgument, config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Show a table's columns and its latest commits, with who wrote each and why."""
    with Platform.open(config) as platform:
        handle = platform.lake.table(table)
        snapshot = handle.snapshot()
        history = handle.history(10)
    if json:
        columns = [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in snapshot.schema
        ]
        commits = [
            {"version": e.version, "at": e.at, "operation": e.operation, "engine": e.engine, "reason": e.reason}
            for e in history
        ]
        emit_json({"table": table, "path": snapshot.location.uri, "columns": columns, "history": commits})
        return
    say(f"{table} at {snapshot.location.uri}")
    say(f"written by: {snapshot.writer.engine} ({snapshot.writer.reason})\n")
    emit_table("columns", ["name", "type", "nullable"], [(f.name, f.type, f.nullable) for f in snapshot.schema])
    say()
    rows = [(str(e.version), f"{e.at:%Y-%m-%d %H:%M:%S}", e.operation, e.engine, e.reason) for e in history]
    emit_table("latest commits", ["version", "at (UTC)", "operation", "engine", "why"], rows)


@app.command()
def build(table: TableArgument, config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Build one of the platform's own tables now, without Dagster."""
    with Platform.open(config, on_progress=progress) as platform:
        report = build_table(platform, table)
    if json:
        emit_json({"table": table, "version": report.version, "rows": report.rows, "engine": report.engine.value})
        return
    rows = "unknown rows" if report.rows is None else f"{report.rows:,} rows"
    say(f"{table} version {report.version}: {rows} in {report.duration_s:.1f} s by {report.engine} ({report.reason})")


@app.command()
def maintain(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Join small files and remove unreferenced ones in every table."""
    busy = 0
    done = []
    with Platform.open(config, on_progress=progress) as platform:
        for outcome in maintain_tables(platform):
            if isinstance(outcome, TransientError):
                busy += 1
                progress(str(outcome))
                continue
            done.append(outcome)
    columns = ["table", "engine", "files_before", "files_after", "files_removed"]
    rows = [[getattr(report, column) for column in columns] for report in done]
    if json:
        emit_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        emit_table("", columns, rows)
    if busy:
        raise typer.Exit(1)
