"""Copy one table of a database into its table of the lake, in full or what is new, and go on where a run was killed.

The table itself says how far it is: every commit of an extraction carries the position, and the next run plans from
the newest one in the log. A lease in the control store keeps a second run of the same table out; if two ran at once
all the same, the one whose position is older would fail at its next commit and change nothing.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    NotIncrementalError,
    NotResumableError,
    UnknownExtractError,
)
from dw_platform.pipelines.extract_full import FullCopy
from dw_platform.pipelines.extract_plan import ExtractPlan, check_key, cut, describe_plan, lake_name, plan_extract
from dw_platform.pipelines.extract_report import ExtractProgress, ExtractReport, OnProgress
from dw_platform.pipelines.extract_state import ExtractState, shown_position
from dw_platform.pipelines.health import record_outcome
from dw_platform.pipelines.limits import effective_database_limits
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.reconcile import Reconciliation
from dw_platform.store import LeaseLock, LeaseMode, LeaseTimeoutError, internal_key
from dw_platform.store.owner import is_dead, process_owner

__all__ = [
    "ExtractProgress",
    "ExtractReport",
    "extract_name",
    "extract_names",
    "extract_table",
    "find_extract",
    "plan_of",
    "reconcile_table",
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
    with _alone(platform, extract), _counted(platform, extract):
        run = _open(platform, extract, page_size=page_size, on_progress=on_progress)
        if resume is not None:
            run.check_resumable(resume)
        return run.bring_up_to_date(full=full)


def reconcile_table(platform: Platform, name: str, *, on_progress: OnProgress = lambda _: None) -> ExtractReport:
    """Bring an incremental table up to date, then find rows that the source no longer has and remove them."""
    extract = find_extract(platform, name)
    if extract.section.mode != "incremental":
        raise NotIncrementalError(extract.name)
    with _alone(platform, extract), _counted(platform, extract):
        run = _open(platform, extract, on_progress=on_progress)
        before = run.bring_up_to_date(full=False)
        return run.reconcile(before)


def plan_of(platform: Platform, name: str, *, page_size: int | None = None) -> dict[str, Any]:
    """Return what an extraction would read, and how; nothing is read but the key's bounds."""
    extract = find_extract(platform, name)
    plan = _plan(platform, extract, page_size)
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

    def check_resumable(self, token: str) -> None:
        """Raise unless there is an unfinished run, and it is the one that the token was given out for."""
        state = ExtractState.from_json(self.load.state().details)
        if state is None or state.finished:
            raise NotResumableError(self.extract.name, "no run of it is unfinished")
        said = decode_token(token, TokenKeyring(self.platform.store, clock=self.platform.clock))
        database, section = self.extract.database, self.extract.section
        require_binding(said, _binding(self.extract, state.binding), source=database.name, table=section.source)
        if said.position != (state.run,):
            raise NotResumableError(self.extract.name, "the run of that token is over, and another one has begun")

    def bring_up_to_date(self, *, full: bool) -> ExtractReport:
        """Copy everything, or what is new."""
        at = self.load.state()
        incremental = self.extract.section.mode == "incremental"
        reached = self._reached(at) if incremental and not full else None
        if reached is not None:
            self._fit_columns()
            return self._copy_changes(self.load.state(), reached)
        copied = self._copy_all(at, anew=full)
        if not copied.resumed or not incremental:
            return copied
        # Its first half may be days old; what has changed since then is newer than the cursor that it began with.
        at = self.load.state()
        reached = self._reached(at)
        return copied if reached is None else _together(copied, self._copy_changes(at, reached))

    def reconcile(self, before: ExtractReport) -> ExtractReport:
        """Compare keys after the table was brought up to date, which `before` tells about."""
        at = self.load.state()
        state = ExtractState.from_json(at.details)
        assert state is not None
        told = Reconciliation(self.platform, self.plan, self.load).run(at, state)
        return replace(
            before,
            mode="reconcile",
            rows=before.rows + told.rows,
            pages=before.pages + told.pages,
            written=before.written + told.written,
            deleted=told.deleted,
            commits=before.commits + (told.version is not None),
            version=before.version if told.version is None else told.version,
            duration_s=self.platform.clock.monotonic() - self.started,
            bound=f"{told.differing:,} of {told.buckets:,} parts of the key differed",
        )

    def _reached(self, at: LoadState) -> str | None:
        """Return the cursor that the table has come to; None if it has to be copied in full first."""
        before = ExtractState.from_json(at.details)
        if before is not None:
            copied = before.finished or before.mode != "full"
            return before.cursor if copied else None
        if at.position is None or self.extract.section.cursor is None:
            return None
        # The log no longer has the commit that said it, but the rows themselves do.
        highest = at.snapshot.highest(lake_name(self.extract.section.cursor))
        return None if highest is None else text_of(self.plan.table, highest)

    def _fit_columns(self) -> None:
        """Add columns that the source has got since; refuse what would lose something."""
        try:
            self.table.prepare(self.plan.schema)
        except SchemaMismatchError as error:
            problems = "; ".join(error.problems)
            raise ColumnsDoNotFitError(self.extract.name, self.extract.section.table, problems) from error

    def _copy_all(self, at: LoadState, *, anew: bool) -> ExtractReport:
        copy = FullCopy(self.platform, self.plan, self.load, self.on_progress)
        cursor = None
        if self.extract.section.mode == "incremental":
            # Taken before the first row is read: what changes meanwhile is read again by the next run.
            cursor = text_of(self.plan.table, settled(self.plan).value)
        commit, state = copy.run(at, anew=anew, cursor=cursor)
        return ExtractReport(
            name=self.extract.name,
            table=self.extract.section.table,
            mode="full",
            rows=state.rows,
            pages=state.pages,
            written=state.rows,
            commits=copy.commits,
            version=commit.version,
            position=shown_position(state),
            resumed=copy.resumed,
            duration_s=self.platform.clock.monotonic() - self.started,
        )

    def _copy_changes(self, at: LoadState, reached: str) -> ExtractReport:
        changes = Changes(self.platform, self.plan, self.load, self.on_progress)
        state = changes.run(at, reached)
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
            position=shown_position(state),
            duration_s=self.platform.clock.monotonic() - self.started,
            bound=changes.bound,
        )


def _together(copied: ExtractReport, changed: ExtractReport) -> ExtractReport:
    """Return the report of a copy and of the changes that were read behind it."""
    return replace(
        copied,
        rows=copied.rows + changed.rows,
        pages=copied.pages + changed.pages,
        written=copied.written + changed.written,
        replaced=changed.replaced,
        commits=copied.commits + changed.commits,
        version=changed.version,
        position=changed.position,
        duration_s=changed.duration_s,
    )


def _plan(platform: Platform, extract: Extract, page_size: int | None) -> ExtractPlan:
    plan = plan_extract(extract.database, extract.section, page_size=page_size)
    most = effective_database_limits(platform).max_connections
    source = replace(plan.source, max_connections=min(most or plan.source.max_connections, plan.source.max_connections))
    return replace(plan, source=source)


def _open(
    platform: Platform, extract: Extract, *, page_size: int | None = None, on_progress: OnProgress = lambda _: None
) -> _Run:
    """Look at the source and make the table unless it is there."""
    started = platform.clock.monotonic()
    plan = _plan(platform, extract, page_size)
    if extract.section.mode == "incremental":
        check_cursor(plan)
    table = platform.lake.table(extract.section.table)
    if not table.exists():
        table.create(plan.schema, description=extract.section.description or None)
    load = table.load(extract.app_id)
    load.clear_notes()
    return _Run(platform, extract, plan, table, load, on_progress, started)


@contextlib.contextmanager
def _counted(platform: Platform, extract: Extract) -> Iterator[None]:
    """Let the health of the database know how it went."""
    try:
        yield
    except PlatformError as error:
        record_outcome(platform, extract.database.name, error)
        raise
    record_outcome(platform, extract.database.name, None)


def _binding(extract: Extract, schema: str) -> TokenBinding:
    return TokenBinding.of(
        source=extract.database.name, table=extract.section.source, filter="extract", order=(), schema=schema
    )


@contextlib.contextmanager
def _alone(platform: Platform, extract: Extract) -> Iterator[None]:
    """Keep other runs of this extract out; what a killed run of this machine held is taken over at once."""
    lock = LeaseLock(platform.store, internal_key("extract", extract.section.table), owner=process_owner())
    lock.forget(is_dead)
    try:
        lease = lock.acquire(LeaseMode.EXCLUSIVE, timeout_s=0)
    except LeaseTimeoutError as error:
        raise ExtractBusyError(extract.name, ", ".join(error.holders)) from error
    with lease:
        yield
