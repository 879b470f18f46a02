"""`dw ingest`: bring streams into their tables, once or all the time, and move a stream where that is asked for."""

import sys
import threading
import time
from typing import Annotated

import typer

from dw_platform.cli.children import stop_signals
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, complain, emit_json, end_with, many, progress, say
from dw_platform.cli.steady import LINE_EVERY_S, steady_progress
from dw_platform.foundation import PlatformError, UserError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.follow import FollowEvent, follow_streams
from dw_platform.pipelines.ingest import IngestCommit, IngestReport, find_stream, ingest_stream
from dw_platform.pipelines.ingest_reset import ResetPlan, ResetTarget, parse_target, plan_reset, reset_stream
from dw_platform.pipelines.lag import stream_lag


class NotConfirmedError(UserError):
    """Moving a stream leaves records out or deletes rows, so it has to be asked for twice; nothing was changed."""

    def __init__(self, stream: str, meaning: str) -> None:
        self.stream, self.meaning = stream, meaning
        super().__init__(f"{meaning} Nothing was changed; add --yes to do it.")


class OptionsDoNotFitError(UserError):
    """Two options, or an option and the number of streams, contradict each other."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}.")


def ingest(
    streams: Annotated[
        list[str] | None, typer.Argument(help="The streams; with --follow, all when none is named.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many records.")] = None,
    place: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="First move the stream: earliest, latest, a time, an offset, or PARTITION:OFFSET,... What is skipped "
            "is recorded in ops.lost_ranges, what is read again is deleted first.",
            show_default=False,
        ),
    ] = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C, with a commit about a second.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on without records that are gone, and record which.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Move the stream without asking.")] = False,
    json: JsonOption = False,
) -> None:
    """Bring what is waiting in STREAMS into their tables, each record exactly once, and end.

    A run that fails or is killed has committed whole batches or nothing; the next one goes on from there. Several may
    run at once. Exit code 1 when a stream could not be read to its end.
    """
    names = list(dict.fromkeys(streams or ()))
    _check(names, follow=follow, limit=limit, place=place, accept_loss=accept_loss)
    target = parse_target(place) if place else None
    with open_platform(config) as platform:
        for name in names:
            find_stream(platform, name)
        if follow:
            _follow(platform, names, json=json)
            return
        if target is not None:
            _move(platform, names[0], target, yes=yes)
        if len(names) == 1:
            _emit([_catch_up(platform, names[0], limit=limit, accept_loss=accept_loss)], json=json)
            return
        done, failed = _each(platform, names, limit=limit, accept_loss=accept_loss)
    _emit(done, json=json, listed=True)
    end_with(failed)


def _each(
    platform: Platform, names: list[str], *, limit: int | None, accept_loss: bool
) -> tuple[list[IngestReport], list[str]]:
    """Ingest one stream after the other; one that fails does not keep the others from their tables."""
    done, failed = [], []
    for name in names:
        try:
            done.append(_catch_up(platform, name, limit=limit, accept_loss=accept_loss))
        except PlatformError as error:
            failed.append(str(error))
    return done, failed


def _emit(reports: list[IngestReport], *, json: bool, listed: bool = False) -> None:
    if json:
        emit_json([report.as_json() for report in reports] if listed else reports[0].as_json())
    else:
        for report in reports:
            say(_told(report))


def _check(names: list[str], *, follow: bool, limit: int | None, place: str | None, accept_loss: bool) -> None:
    if not names and not follow:
        raise OptionsDoNotFitError("Name the streams to ingest, or add --follow to follow all of them")
    if follow and (limit is not None or place is not None or accept_loss):
        raise OptionsDoNotFitError(
            "--follow goes on for ever; use --limit, --from and --accept-loss in a run before it"
        )
    if place is not None and len(names) != 1:
        raise OptionsDoNotFitError("--from moves one stream; name just that one")


def _catch_up(platform: Platform, name: str, *, limit: int | None, accept_loss: bool) -> IngestReport:
    waiting = stream_lag(platform, find_stream(platform, name)).records
    total = waiting if limit is None else min(limit, waiting)
    with steady_progress(f"ingesting {name}", total, "records") as advance:
        return ingest_stream(
            platform,
            name,
            limit=limit,
            accept_loss=accept_loss,
            on_commit=lambda commit: advance(commit.rows + commit.rejected),
        )


def _told(report: IngestReport) -> str:
    if not report.commits:
        return f"{report.stream}: nothing new for {report.table}."
    text = f"{report.stream}: {many(report.rows, 'row')} into {report.table} in {many(report.commits, 'commit')}"
    text += f", {report.duration_s:.1f} s ({report.rows_per_s:,.0f} rows/s)"
    if report.rejected:
        text += f"; {many(report.rejected, 'record')} went to {report.table}_rejected"
    if report.lost:
        text += f"; went on without {', '.join(str(entry.range) for entry in report.lost)}, see ops.lost_ranges"
    return f"{text}; {many(report.lag, 'record')} still waiting." if report.lag else f"{text}."


def _move(platform: Platform, name: str, target: ResetTarget, *, yes: bool) -> None:
    plan = plan_reset(platform, name, target)
    if plan.empty:
        progress(f"{name} stands there already")
        return
    meaning = _meaning(platform, plan)
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotConfirmedError(name, meaning)
    if not yes and not typer.confirm(f"{meaning} Do it?", err=True):
        raise NotConfirmedError(name, meaning)
    reset_stream(platform, name, target)
    progress(f"{name} was moved")


def _meaning(platform: Platform, plan: ResetPlan) -> str:
    table, told = find_stream(platform, plan.stream).table, []
    if plan.repeated:
        ranges = "; ".join(map(str, plan.repeated))
        told.append(
            f"Up to {many(sum(map(len, plan.repeated)), 'row')} of {table} will be deleted and read again: {ranges}."
        )
    if plan.skipped:
        ranges = "; ".join(map(str, plan.skipped))
        told.append(f"Up to {many(sum(map(len, plan.skipped)), 'record')} will never reach {table}: {ranges}.")
    return " ".join(told)


def _follow(platform: Platform, names: list[str], *, json: bool) -> None:
    followed = ", ".join(names) or "all streams"
    told = _Told()
    with stop_signals() as stop:
        (progress if json else say)(f"Following {followed}; Ctrl-C stops after the commit under way.")
        sys.stdout.flush()
        started = time.monotonic()
        follow_streams(platform, names, stop=stop, on_event=told.tell)
    seconds = time.monotonic() - started
    if json:
        emit_json({"streams": told.rows, "seconds": round(seconds, 1)})
    else:
        say(f"Stopped after {many(sum(told.rows.values()), 'row')} in {seconds:,.0f} s.")


class _Told:
    """Turns what happens to streams into a line now and then; used by the threads of all of them."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._lock = threading.Lock()

    def tell(self, event: FollowEvent) -> None:
        with self._lock:
            if event.error is not None:
                complain(f"{event.stream}: {event.error} Trying again in {event.retry_in_s:g} s.")
            elif event.commit is not None:
                self._count(event.stream, event.commit)

    def _count(self, stream: str, commit: IngestCommit) -> None:
        rows = self.rows[stream] = self.rows.get(stream, 0) + commit.rows
        if (now := time.monotonic()) >= self._due.get(stream, 0.0):
            self._due[stream] = now + LINE_EVERY_S
            progress(f"{stream}: {many(rows, 'row')} so far, the last commit had {commit.rows:,}")
