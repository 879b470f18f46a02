"""`dw demo`: the whole platform once, through Dagster, ending in a report of what is there."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dw_platform.cli.dagster_home import dagster_environment, dagster_program
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, progress, say
from dw_platform.foundation import PermanentError, format_bytes
from dw_platform.pipelines import Platform
from dw_platform.pipelines.overview import CheckOverview, TableOverview, check_overview, table_overview

_STEP = re.compile(r" - (?P<step>\S+) - STEP_(?P<event>START|SUCCESS|FAILURE) ")


class DemoFailedError(PermanentError):
    """The run did not succeed."""

    def __init__(self, steps: list[str], log: Path) -> None:
        self.steps, self.log = tuple(steps), log
        what = f"failed at {', '.join(steps)}" if steps else f"did not start: {_last_line(log)}"
        super().__init__(f"The demo's run {what}. Its log is {log}; `dw up` shows it in the Dagster UI.")


def _last_line(log: Path) -> str:
    return next((line.strip() for line in reversed(log.read_text().splitlines()) if line.strip()), "no output")


def demo(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Build and check every table through Dagster, and report what is there now."""
    started = time.monotonic()
    with Platform.open(config, on_progress=progress) as platform:
        steps = len(platform.config.lake.tables) + len(platform.config.quality)
        log = platform.home / "logs" / "demo.log"
        log.parent.mkdir(exist_ok=True)
        _ = platform.store  # said now if it is down
        run_refresh(platform, log, steps, quiet=json)
        tables = [table_overview(platform, name) for name in platform.lake.table_names()]
        checks = check_overview(platform)
        seconds = time.monotonic() - started
        if json:
            emit_json(_as_json(platform, tables, checks, seconds))
        else:
            _report(platform, tables, checks, seconds)


def run_refresh(platform: Platform, log: Path, steps: int, *, quiet: bool) -> None:
    """Run the job `refresh` in Dagster, so that the UI shows it afterwards, and follow its steps."""
    command = [dagster_program("dagster"), "job", "execute", "-m", "definitions", "-j", "refresh"]
    failed: list[str] = []
    with log.open("w") as kept, _bar(quiet=quiet) as bar:
        task = bar.add_task("starting Dagster and Spark", total=steps)
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dagster_environment(platform),
            cwd=platform.config.source.parent,
        ) as process:
            for line in process.stdout or ():
                kept.write(line)
                if match := _STEP.search(line):
                    name, event = match["step"].replace("__", "."), match["event"]
                    failed += [name] if event == "FAILURE" else []
                    bar.update(task, description=name, advance=0 if event == "START" else 1)
                    if not bar.console.is_terminal and event != "START" and not quiet:
                        progress(f"{name}: {'failed' if event == 'FAILURE' else 'done'}")
    if process.returncode != 0:
        raise DemoFailedError(failed, log)


def _bar(*, quiet: bool) -> Progress:
    console = Console(stderr=True, quiet=quiet)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


def _report(platform: Platform, tables: list[TableOverview], checks: list[CheckOverview], seconds: float) -> None:
    say()
    rows = [
        (entry.name, entry.rows, format_bytes(entry.bytes), entry.files, str(entry.version), entry.writer)
        for entry in tables
    ]
    emit_table("Tables", ["table", "rows", "size", "files", "version", "writer"], rows)
    say()
    emit_table(
        "Checks (Great Expectations)",
        ["table", "passed", "failed"],
        [(entry.table, entry.passed, ", ".join(entry.failed) or "none") for entry in checks],
    )
    say(f"\nDone in {seconds:.0f} s. Everything is under {platform.home}.")
    say("  dw up                        the asset graph, the run and its checks in the Dagster UI")
    say(f"  dw tables show {tables[0].name if tables else 'TABLE':<14} columns, and who wrote each version and why")
    say("  platform.yaml                change it, and run this again")


def _as_json(
    platform: Platform, tables: list[TableOverview], checks: list[CheckOverview], seconds: float
) -> dict[str, Any]:
    return {
        "platform": platform.config.name,
        "home": str(platform.home),
        "seconds": round(seconds, 1),
        "tables": [entry.as_json() for entry in tables],
        "checks": [entry.as_json() for entry in checks],
    }
