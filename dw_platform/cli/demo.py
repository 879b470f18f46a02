"""`dw demo`: the whole platform once, through Dagster, ending in a report of what is there."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dw_platform.cli.children import Child, stop_signals, stopping
from dw_platform.cli.dagster_home import dagster_environment, program
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, many, progress, say
from dw_platform.cli.publish_sinks import open_sink
from dw_platform.cli.single import only_one
from dw_platform.cli.steps import RunLog, StepState, step_names
from dw_platform.foundation import PermanentError, PlatformError, format_bytes
from dw_platform.lake.java import find_java
from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup_report import BackupReport, RestoreReport
from dw_platform.pipelines.generate import clicks
from dw_platform.pipelines.lag import StreamLag, stream_lag
from dw_platform.pipelines.overview import CheckOverview, TableOverview, check_overview, tables_overview

_POLL_S = 0.2
_PATIENCE_S = 60.0
# Dagster takes an interruption of a step for a failure that is worth a retry, so that once is not enough.
_ASK_AGAIN_S = 3.0

ShowStep = Callable[[str, StepState], None]


class DemoFailedError(PermanentError):
    """The run did not succeed."""

    def __init__(self, steps: list[str], reason: str, log: Path) -> None:
        self.steps, self.reason, self.log = tuple(steps), reason, log
        where = f"failed at: {', '.join(steps)}" if steps else "did not start"
        super().__init__(
            f"The demo's run {where}. {reason.rstrip('.')}. Its log is {log}; `dw up` shows the run in the Dagster UI."
        )


def demo(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Publish made-up messages, ingest, build and check every table through Dagster, back up, restore, and report."""
    started = time.monotonic()
    with open_platform(config) as platform, only_one("demo", platform.home):
        # What the run would stumble over is said now, and not at the end of a log.
        _ = platform.store
        if not platform.config.spark.remote:
            find_java()
        _publish(platform)
        _make_databases(platform)
        _run(platform)
        tables, checks = tables_overview(platform), check_overview(platform)
        backups, restored = _back_up(platform)
        lags = [stream_lag(platform, stream) for stream in platform.config.streams]
        seconds = time.monotonic() - started
        if json:
            emit_json(
                {
                    "platform": platform.config.name,
                    "home": str(platform.home),
                    "seconds": round(seconds, 1),
                    "tables": [entry.as_json() for entry in tables],
                    "streams": [entry.as_json() for entry in lags],
                    "checks": [entry.as_json() for entry in checks],
                    "backups": [entry.as_json() for entry in backups],
                    "restored": [entry.as_json() for entry in restored],
                }
            )
        else:
            shown = [entry for entry in tables if isinstance(entry, TableOverview)]
            _report(platform, shown, lags, checks)
            _report_backups(backups, restored)
            _report_end(platform, seconds)


def _publish(platform: Platform) -> None:
    """Publish the messages that streams make up: directly, or through the gateway if one runs."""
    with stop_signals() as stop:
        for stream in platform.config.streams:
            if stream.generate is None:
                continue
            plan, count = stream.generate, 0
            with open_sink(platform, stream.topic_name, api_key=None, patience_s=_PATIENCE_S, stop=stop) as sink:
                for records in clicks(plan.rows, seed=plan.seed, now=platform.clock.now()):
                    sink.publish(records)
                    count += len(records)
                    if stop.is_set():
                        raise KeyboardInterrupt
                progress(f"published {count:,} records to {stream.topic_name} through {sink.through}")


def _make_databases(platform: Platform) -> None:
    """Fill the databases that are made up, or change them a little."""
    from dw_platform.pipelines.databases import database_source
    from dw_platform.pipelines.made_up_database import make_customers

    for database in platform.config.databases:
        if (plan := database.generate) is not None:
            source = database_source(database)
            made = make_customers(source.file, plan.rows, seed=plan.seed, now=platform.clock.now())
            progress(
                f"database {database.name}: {many(made.added, 'customer')} added, {made.changed:,} changed, "
                f"{made.deleted:,} deleted"
            )


def _run(platform: Platform) -> None:
    """Run the job `refresh` in Dagster, so that the UI shows it afterwards, and follow its steps."""
    began = platform.clock.now()
    log = platform.home / "logs" / "demo.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")
    names = step_names(platform.config)
    command = [program("dagster"), "job", "execute", "-m", "definitions", "-j", "refresh"]
    environment, folder = dagster_environment(platform), platform.config.source.parent
    children: list[Child] = []
    with (
        stop_signals() as stop,
        contextlib.closing(RunLog(log, names)) as run,
        stopping(children, again_s=_ASK_AGAIN_S),
    ):
        child = Child("dagster", command, environment=environment, folder=folder, log=log)
        children.append(child)
        with _shown_steps(len(names)) as show:
            ended = False
            while not (ended or stop.is_set()):
                stop.wait(_POLL_S)
                # Asked before the log is read, so that the last lines are read as well.
                ended = child.process.poll() is not None
                for event in run.new_events():
                    show(event.name, event.state)
        if stop.is_set():
            raise KeyboardInterrupt
        if child.process.returncode != 0:
            raise DemoFailedError(run.failed, _reason(platform, run, began), log)


def _reason(platform: Platform, run: RunLog, began: datetime) -> str:
    """Return the critical checks that failed in this run, else the error in its log."""
    blocking: list[str] = []
    with contextlib.suppress(PlatformError):  # tables that cannot be read have their own line in the log
        for entry in check_overview(platform):
            if entry.checked_at >= began:
                blocking += [f"{entry.table}: {name}" for name in entry.blocking]
    return f"Critical checks that failed: {', '.join(blocking)}" if blocking else run.cause()


def _back_up(platform: Platform) -> tuple[list[BackupReport], list[RestoreReport]]:
    """Back up what the policies name, and restore it beside the lake, to show that it can be."""
    if not platform.config.backups.policies:
        return [], []
    from dw_platform.pipelines.backup_manager import BackupScalingManager

    manager, backups, restored = BackupScalingManager(platform), list[BackupReport](), list[RestoreReport]()
    for policy in platform.config.backups.policies:
        report = manager.back_up(policy.name)
        for _, error in report.failed:
            raise error
        backups += report.backups
        folder = platform.home / "restored"
        try:
            restored += manager.restore_policy(policy.name, str(folder)) if report.backups else []
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        progress(f"backup {policy.name}: {many(len(report.backups), 'table')} backed up, restored and compared")
    return backups, restored


@contextlib.contextmanager
def _shown_steps(total: int) -> Iterator[ShowStep]:
    """Yield a function that shows a step's state: in a bar on a terminal, in a line of its own elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        progress("starting Dagster and Spark")
        yield lambda name, state: progress(f"{name}: {state}")
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting Dagster and Spark", total=total)

        def show(name: str, state: StepState) -> None:
            told = name if state is StepState.START else f"{name}: {state}"
            bar.update(task, description=told, advance=1 if state.ended else 0)

        yield show


def _report(
    platform: Platform, tables: list[TableOverview], lags: list[StreamLag], checks: list[CheckOverview]
) -> None:
    emit_table(
        "Tables",
        ["table", "rows", "size", "files", "version", "writer"],
        [
            (entry.name, entry.rows, format_bytes(entry.bytes), entry.files, entry.version, entry.writer)
            for entry in tables
        ],
    )
    if lags:
        say()
        rows = {entry.name: entry.rows for entry in tables}
        emit_table(
            "Streams",
            ["stream", "published", "in the table", "rejected", "waiting"],
            [
                (
                    stream.name,
                    sum(partition.end for partition in lag.partitions.values()),
                    rows.get(stream.table),
                    rows.get(stream.rejected_table, 0),
                    lag.records,
                )
                for stream, lag in zip(platform.config.streams, lags, strict=True)
            ],
        )
    say()
    emit_table(
        "Checks (Great Expectations)",
        ["table", "passed", "failed"],
        [(entry.table, entry.passed, ", ".join(entry.failed) or "none") for entry in checks],
    )


def _report_backups(backups: list[BackupReport], restored: list[RestoreReport]) -> None:
    if not backups:
        return
    say()
    rows_of = {report.backup_id: report.rows for report in restored}
    emit_table(
        "Backups, each restored and compared by SHA-256",
        ["table", "backup", "kind", "copied", "of", "rows restored"],
        [
            (
                report.table,
                report.backup_id,
                "unchanged" if report.unchanged else report.kind.value,
                format_bytes(report.copied_bytes),
                format_bytes(report.bytes),
                rows_of.get(report.backup_id),
            )
            for report in backups
        ],
    )


def _report_end(platform: Platform, seconds: float) -> None:
    own = [table.name for table in platform.config.lake.tables]
    shown = f"dw tables show {own[0] if own else 'TABLE'}"
    here = os.path.relpath(platform.config.source)
    width = max(len(shown), len(here))
    say(f"\nDone in {seconds:.0f} s. Everything is under {platform.home}.")
    say(f"  {'dw up':<{width}}   the graph, this run and its checks in Dagster")
    say(f"  {shown:<{width}}   its columns, and who wrote what")
    say(f"  {here:<{width}}   change it, and run this again")
