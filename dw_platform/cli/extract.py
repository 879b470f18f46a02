"""`dw extract`: copy tables of databases into the lake, and go on where a run was interrupted."""

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from dw_platform.cli.ingest import OptionsDoNotFitError
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import (
    ConfigOption,
    JsonOption,
    complain,
    emit_json,
    emit_table,
    end_with,
    many,
    progress,
    say,
)
from dw_platform.cli.steady import steady_progress
from dw_platform.foundation import PlatformError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.extract_report import ExtractProgress, ExtractReport, OnProgress


def extract(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables of `databases`; all of them with --all.", metavar="DB.TABLE...", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
    page_size: Annotated[int | None, typer.Option(min=1, help="Rows fetched at once at most.")] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Go on with the run of this token or not at all; without it, an unfinished run goes on by itself.",
            show_default=False,
        ),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every table that the file names.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Copy everything anew, whatever the table has.")] = False,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="Also find rows that were deleted in the database, and remove them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be read, and change nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Bring tables up to date with the databases that they are copied from.

    A run that fails or is killed has shown all of its rows or none, and the next one goes on where it was. Exit code 1
    when a table could not be brought up to date.
    """
    from dw_platform.pipelines.extract import extract_names, find_extract  # clients of databases, for this command only

    _check(tables, everything=everything, full=full, reconcile=reconcile, resume=resume)
    with open_platform(config) as platform:
        names = extract_names(platform) if everything else [find_extract(platform, name).name for name in tables or ()]
        if dry_run:
            _show_plans(platform, names, page_size=page_size, json=json)
            return
        work = _Work(platform, full=full, reconcile=reconcile, page_size=page_size, resume=resume)
        if len(names) == 1:
            _emit([work.run(names[0])], json=json)
            return
        done, failed = list[ExtractReport](), list[str]()
        for name in names:
            try:
                done.append(work.run(name))
            except PlatformError as error:
                failed.append(str(error))
    _emit(done, json=json, listed=True)
    end_with(failed)


def _check(tables: list[str] | None, *, everything: bool, full: bool, reconcile: bool, resume: str | None) -> None:
    if bool(tables) == everything:
        raise OptionsDoNotFitError("Name the tables to extract as DATABASE.TABLE, or say --all")
    if resume is not None and (full or everything or len(tables or ()) != 1):
        raise OptionsDoNotFitError("--resume goes on with one run of one table; leave --full and --all out")
    if full and reconcile:
        raise OptionsDoNotFitError("--full leaves nothing to reconcile; use one of the two")


class _Work:
    """What to do with each table."""

    def __init__(
        self, platform: Platform, *, full: bool, reconcile: bool, page_size: int | None, resume: str | None
    ) -> None:
        self._platform, self._reconcile = platform, reconcile
        self._options: dict[str, Any] = {"full": full, "page_size": page_size, "resume": resume}

    def run(self, name: str) -> ExtractReport:
        from dw_platform.pipelines.extract import extract_table, reconcile_table

        try:
            with _shown(name) as on_progress:
                if self._reconcile:
                    return reconcile_table(self._platform, name, on_progress=on_progress)
                return extract_table(self._platform, name, **self._options, on_progress=on_progress)
        except (PlatformError, KeyboardInterrupt):
            _tell_how_to_go_on(self._platform, name)
            raise


def _tell_how_to_go_on(platform: Platform, name: str) -> None:
    """Say what is left of an interrupted run; if nobody can say it now, the error itself says enough."""
    from dw_platform.pipelines.extract import resume_token

    with contextlib.suppress(PlatformError):
        if (token := resume_token(platform, name)) is not None:
            progress(f"what was committed stays; `dw extract {name}` goes on from there. Its token: {token}")


@contextlib.contextmanager
def _shown(name: str) -> Iterator[OnProgress]:
    """Yield what shows the rows read so far; their number is known once the first of them are there."""
    with contextlib.ExitStack() as stack:
        state: dict[str, Any] = {"rows": 0, "advance": None}

        def tell(at: ExtractProgress) -> None:
            if state["advance"] is None:
                state["advance"] = stack.enter_context(steady_progress(f"extracting {name}", at.total, "rows"))
            state["advance"](at.rows - state["rows"])
            state["rows"] = at.rows

        yield tell


def _emit(reports: list[ExtractReport], *, json: bool, listed: bool = False) -> None:
    if json:
        emit_json([report.as_json() for report in reports] if listed else reports[0].as_json())
    else:
        for report in reports:
            say(_told(report))


def _told(report: ExtractReport) -> str:
    speed = f"{report.duration_s:.1f} s ({report.rows_per_s:,.0f} rows/s)"
    if report.mode == "full":
        again = ", going on with an interrupted run" if report.resumed else ""
        return f"{report.name}: {many(report.rows, 'row')} into {report.table} in {speed}{again}."
    told = f"{report.name}: {many(report.rows, 'row')} read, {report.written:,} changed in {report.table}"
    told += f", {report.deleted:,} deleted" if report.mode == "reconcile" else ""
    bound = f" Read up to {report.position} ({report.bound})." if report.mode == "incremental" else f" {report.bound}."
    return f"{told}, {speed}.{bound}"


def _show_plans(platform: Platform, names: list[str], *, page_size: int | None, json: bool) -> None:
    from dw_platform.pipelines.extract import plan_of

    plans, failed = list[dict[str, Any]](), list[str]()
    for name in names:
        try:
            plans.append(plan_of(platform, name, page_size=page_size))
        except PlatformError as error:
            failed.append(str(error))
    if json:
        emit_json(plans if len(names) > 1 else (plans[0] if plans else None))
    else:
        for plan in plans:
            _show_plan(plan)
    if len(names) == 1 and failed:
        complain(failed[0])
        raise typer.Exit(1)
    end_with(failed)


def _show_plan(plan: dict[str, Any]) -> None:
    rows = "an unknown number of" if plan["estimated_rows"] is None else f"about {plan['estimated_rows']:,}"
    say(f"{plan['extract']} into {plan['table']}: {rows} rows, {plan['mode']}")
    cursor = f", newer by {plan['cursor']}" if plan["cursor"] else ""
    say(f"by {', '.join(plan['key'])}{cursor}; pages of {plan['page_size']:,}; {many(plan['tasks'], 'task')}")
    for number, end in enumerate(plan["ranges"], 1):
        say(f"range {number}: up to {', '.join(map(str, end))}")
    say()
    columns = [(column["name"], column["type"], column["becomes"], column["note"]) for column in plan["columns"]]
    emit_table("", ["column", "in the database", "in the lake", "note"], columns)
