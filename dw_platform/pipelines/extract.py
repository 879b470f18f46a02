"""Copy one table of a database into its table of the lake, in full or what is new, and go on where a run was killed.

The table itself says how far it is: every commit of an extraction carries the position, and the next run plans from
the newest one in the log. A lease in the control store keeps a second run of the same table out; if two ran at once
all the same, the one whose position is older would fail at its next commit and change nothing.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dw_platform.config import DatabaseSection, ExtractSection
from dw_platform.extract.horizon import text_of
from dw_platform.extract.keyring import TokenKeyring
from dw_platform.extract.token import ContinuationToken, TokenBinding, decode_token, encode_token, require_binding
from dw_platform.foundation import PlatformError
from dw_platform.lake.load import LoadState, TableLoad
from dw_platform.lake.opening import TableMissingError
from dw_platform.lake.schema import SchemaMismatchError
from dw_platform.lake.table import LakeTable
from dw_platform.pipelines.extract_changes import Changes, check_cursor, settled
from dw_platform.pipelines.extract_errors import (
    ColumnsDoNotFitError,
    ExtractBusyError,
    NotResumableError,
    UnknownExtractError,
)
from dw_platform.pipelines.extract_full import FullCopy, OnProgress
from dw_platform.pipelines.extract_plan import ExtractPlan, check_key, cut, describe_plan, lake_name, plan_extract
from dw_platform.pipelines.extract_report import ExtractProgress, ExtractReport
from dw_platform.pipelines.extract_state import ExtractState
from dw_platform.pipelines.health import record_outcome
from dw_platform.pipelines.platform import Platform
from dw_platform.store import LeaseLock, LeaseMode, LeaseTimeoutError, internal_key

__all__ = [
    "ExtractProgress",
    "ExtractReport",
    "extract_name",
    "extract_names",
    "extract_table",
    "find_extract",
    "plan_of",
    "resume_token",
]


@dataclass(frozen=True, slots=True)
class Extract:
    """One entry of `databases[].tables`, with its database."""

    database: DatabaseSection
    section: ExtractSection

    @property
    def name(self) -> str:
        """What commands call it."""
        return extract_name(self.database, self.section)

    @property
    def app_id(self) -> str:
        """Under which its position is kept in the table."""
        return f"extract/{self.name}"


def extract_name(database: DatabaseSection, section: ExtractSection) -> str:
    """Return what commands call an extract: DATABASE.TABLE, as the database names the table."""
    return f"{database.name}.{section.source}"


def extract_names(platform: Platform) -> list[str]:
    """Return the names of all extracts, in the order of the file."""
    return [extract_name(database, table) for database in platform.config.databases for table in database.tables]


def find_extract(platform: Platform, name: str) -> Extract:
    """Return the extract of that name; the schema of the source may be left out, and the lake's table works as well."""
    every = [Extract(database, table) for database in platform.config.databases for table in database.tables]
    exact = [each for each in every if name in {each.name, each.section.table}]
    short = [each for each in every if name == f"{each.database.name}.{each.section.source.rpartition('.')[2]}"]
    for found in (exact, short):
        if len(found) == 1:
            return found[0]
    raise UnknownExtractError(name, extract_names(platform))


def extract_table(
    platform: Platform,
    name: str,
    *,
    full: bool = False,
    page_size: int | None = None,
    resume: str | None = None,
    on_progress: OnProgress = lambda _: None,
) -> ExtractReport:
    """Bring the table up to date with its source; `full` copies everything anew, whatever the file says.

    Whatever is raised, what was committed before stays, readers see the old rows or the new ones, and the next run goes
    on. `resume` is a token of `resume_token`: only that run is continued, and NotResumableError says if it cannot be.
    """
    extract = find_extract(platform, name)
    with _alone(platform, extract):
        try:
            report = _extract(platform, extract, full=full, page_size=page_size, resume=resume, on_progress=on_progress)
        except PlatformError as error:
            record_outcome(platform, extract.database.name, error)
            raise
    record_outcome(platform, extract.database.name, None)
    return report


def plan_of(platform: Platform, name: str, *, page_size: int | None = None) -> dict[str, Any]:
    """Return what an extraction would read, and how; nothing is read but the key's bounds."""
    extract = find_extract(platform, name)
    plan = plan_extract(extract.database, extract.section, page_size=page_size)
    if extract.section.mode == "incremental":
        check_cursor(plan)
    workers = plan.workers(plan.cores_without_spark(platform))
    end = check_key(plan)
    ends = [] if end is None else cut(plan, end, plan.lane_count(workers, extract.section.commit_rows))
    return describe_plan(plan, workers=workers, lanes=ends)


def resume_token(platform: Platform, name: str) -> str | None:
    """Return a token for the unfinished copy of this extract, to be given to `extract_table`; None if there is none."""
    extract = find_extract(platform, name)
    with contextlib.suppress(TableMissingError):
        state = ExtractState.from_json(platform.lake.table(extract.section.table).load(extract.app_id).state().details)
        if state is not None and not state.finished:
            token = ContinuationToken(_binding(extract, state.binding), position=(state.run,))
            return encode_token(token, TokenKeyring(platform.store, clock=platform.clock))
    return None


@dataclass(slots=True)
class _Run:
    """One extraction under way."""

    platform: Platform
    extract: Extract
    plan: ExtractPlan
    table: LakeTable
    load: TableLoad
    on_progress: OnProgress
    started: float

    def full(self, at: LoadState, *, anew: bool) -> ExtractReport:
        copy = FullCopy(self.platform, self.plan, self.load, self.on_progress)
        cursor = None
        if self.extract.section.mode == "incremental":
            # Taken before the first row is read: what changes meanwhile is read again by the next run.
            cursor = text_of(self.plan.table, settled(self.plan).value)
        commit, state = copy.run(at, anew=anew, cursor=cursor)
        ends = [lane.at for lane in state.lanes if lane.at is not None]
        return ExtractReport(
            name=self.extract.name,
            table=self.extract.section.table,
            mode="full",
            rows=state.rows,
            pages=state.pages,
            written=state.rows,
            commits=copy.commits,
            version=commit.version,
            position=state.cursor or (", ".join(map(str, ends[-1])) if ends else None),
            resumed=copy.resumed,
            duration_s=self.platform.clock.monotonic() - self.started,
        )

    def changes(self, at: LoadState, cursor: str) -> ExtractReport:
        changes = Changes(self.platform, self.plan, self.load, self.on_progress)
        state = changes.run(at, cursor)
        return ExtractReport(
            name=self.extract.name,
            table=self.extract.section.table,
            mode="incremental",
            rows=changes.rows,
            pages=changes.pages,
            written=changes.written,
            replaced=changes.replaced,
            commits=changes.commits,
            version=self.table.snapshot().version,
            position=state.cursor,
            duration_s=self.platform.clock.monotonic() - self.started,
            bound=changes.bound,
        )


def _extract(
    platform: Platform,
    extract: Extract,
    *,
    full: bool,
    page_size: int | None,
    resume: str | None,
    on_progress: OnProgress,
) -> ExtractReport:
    started = platform.clock.monotonic()
    plan = plan_extract(extract.database, extract.section, page_size=page_size)
    table = platform.lake.table(extract.section.table)
    load = table.load(extract.app_id)
    if extract.section.mode == "incremental":
        check_cursor(plan)
    if not table.exists():
        table.create(plan.schema, description=extract.section.description or None)
    at = load.state()
    before = ExtractState.from_json(at.details)
    if resume is not None:
        _check_resumable(platform, extract, before, resume)
    load.clear_notes()
    run = _Run(platform, extract, plan, table, load, on_progress, started)
    cursor = None if full or extract.section.mode == "full" else _reached(plan, at, before)
    if cursor is None:
        return run.full(at, anew=full)
    _fit_columns(table, plan)
    return run.changes(load.state(), cursor)


def _reached(plan: ExtractPlan, at: LoadState, before: ExtractState | None) -> str | None:
    """Return the cursor that the table has come to; None if it has to be copied in full first."""
    if before is not None:
        copied = before.finished or before.mode != "full"
        return before.cursor if copied else None
    if at.position is None or plan.section.cursor is None:
        return None
    # The log no longer has the commit that said it, but the rows themselves do.
    highest = at.snapshot.highest(lake_name(plan.section.cursor))
    return None if highest is None else text_of(plan.table, highest)


def _fit_columns(table: LakeTable, plan: ExtractPlan) -> None:
    """Add columns that the source has got since; refuse what would lose something."""
    try:
        table.prepare(plan.schema)
    except SchemaMismatchError as error:
        raise ColumnsDoNotFitError(plan.name, plan.section.table, "; ".join(error.problems)) from error


def _check_resumable(platform: Platform, extract: Extract, state: ExtractState | None, token: str) -> None:
    keyring = TokenKeyring(platform.store, clock=platform.clock)
    if state is None or state.finished:
        raise NotResumableError(extract.name, "no run of it is unfinished")
    said = decode_token(token, keyring)
    expected = _binding(extract, state.binding)
    require_binding(said, expected, source=extract.database.name, table=extract.section.source)
    if said.position != (state.run,):
        raise NotResumableError(extract.name, "the run that the token belongs to is over, and another one has begun")


def _binding(extract: Extract, schema: str) -> TokenBinding:
    return TokenBinding.of(
        source=extract.database.name, table=extract.section.source, filter="extract", order=(), schema=schema
    )


@contextlib.contextmanager
def _alone(platform: Platform, extract: Extract) -> Iterator[None]:
    """Keep other runs of this extract out; a run that is killed keeps them out until its lease ends."""
    owner = f"{socket.gethostname()}/{os.getpid()}"
    lock = LeaseLock(platform.store, internal_key("extract", extract.section.table), owner=owner)
    try:
        lease = lock.acquire(LeaseMode.EXCLUSIVE, timeout_s=0)
    except LeaseTimeoutError as error:
        raise ExtractBusyError(extract.name, ", ".join(error.holders)) from error
    with lease:
        yield
