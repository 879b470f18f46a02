"""An incremental extraction: rows whose cursor is newer, or just a little older, merged into the table by key.

It reads from an overlap before the cursor that the table has come to, up to a bound below which the source has settled
(see extract/horizon.py), in the order of cursor and key. Every so many rows one commit merges them and says how far it
came, so a killed run goes on there. Rows that the overlap reads again and that have not changed are dropped by their
cursor; if nothing is new, nothing is committed.

Guarantee: a row that is written, and committed within the overlap, is in the table after the next run, in its newest
version. Deleted rows stay until they are reconciled; rows without a cursor arrive with a full copy only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dw_platform.extract.conditions import Condition
from dw_platform.extract.horizon import Horizon, cursor_kind, lower_bound, settled_upto
from dw_platform.extract.reader import TableQuery
from dw_platform.extract.source import open_engine, translated
from dw_platform.lake.changes import ChangedRows
from dw_platform.lake.lanes import run_lanes
from dw_platform.lake.load import LoadState, TableLoad
from dw_platform.lake.parquet import WriteJob
from dw_platform.lake.parts import Part
from dw_platform.lake.value_files import ValueFiles
from dw_platform.pipelines.extract_errors import UnusableCursorError
from dw_platform.pipelines.extract_plan import ExtractPlan, lake_name
from dw_platform.pipelines.extract_report import ExtractProgress, OnProgress
from dw_platform.pipelines.extract_state import ExtractState, LaneState
from dw_platform.pipelines.platform import Platform

# A merge writes again every file that loses a row. With changes spread over the table that is all of it, so a long
# backlog is merged in steps of an eighth of the table; but a step's keys are held in memory.
_SHARE_OF_TABLE = 8
_MOST_ROWS_A_MERGE = 2_000_000


def check_cursor(plan: ExtractPlan) -> None:
    """Raise UnusableCursorError for a column that cannot say what is newer."""
    column = plan.section.cursor
    assert column is not None
    kind = next((each.arrow for each in plan.columns if each.name == column), None)
    plan.table.column(column)
    if kind is None or cursor_kind(kind) is None:
        told = plan.table.column(column).type_text or "a column without a type"
        raise UnusableCursorError(plan.name, column, f"is {told}, which does not grow with every change")


def settled(plan: ExtractPlan) -> Horizon:
    """Return up to which cursor the source can be read now."""
    column = plan.section.cursor
    assert column is not None
    kind = cursor_kind(plan.schema.field(lake_name(column)).type)
    assert kind is not None
    engine = open_engine(plan.source)
    try:
        with translated(plan.source, str(plan.table)), engine.connect() as connection:
            return settled_upto(connection, plan.table, column, kind)
    finally:
        engine.dispose()


@dataclass(slots=True)
class Changes:
    """One incremental extraction under way; used by one thread."""

    platform: Platform
    plan: ExtractPlan
    load: TableLoad
    on_progress: OnProgress

    rows: int = 0
    pages: int = 0
    written: int = 0
    replaced: int = 0
    commits: int = 0
    bound: str = ""

    def run(self, at: LoadState, reached: str) -> ExtractState:
        """Merge what is new since the cursor that the table has reached."""
        horizon = settled(self.plan)
        self.bound = horizon.why
        state = ExtractState(
            mode="incremental",
            binding=self.plan.binding,
            began=self.platform.clock.now(),
            first=at.next,
            lanes=(LaneState(start=None, upto=None, at=None),),
            cursor=reached,
        )
        if horizon.value is not None:
            job = self.plan.job(at.snapshot)
            try:
                for parts in self._steps(self._parts(job, self._query(reached, horizon)), at):
                    at, state = self._merge(at, state, parts)
            finally:
                self.load.clear_notes()
        return replace(state, finished=True)

    def _query(self, reached: str, horizon: Horizon) -> TableQuery:
        column = self.plan.section.cursor
        assert column is not None
        lower = lower_bound(self.plan.table, column, reached, self.plan.section.overlap)
        bounds = (Condition(column, ">=", lower), Condition(column, "<=", horizon.value))
        return replace(self.plan.query, order=self.plan.cursor_order, where=bounds)

    def _parts(self, job: WriteJob, query: TableQuery) -> Iterator[Part]:
        pages = self.plan.pages([None], ValueFiles(job.location), query)
        # One lane, so that rows arrive in the order of the cursor: a job of Spark would have one task.
        return run_lanes(job, [(0, None)], pages, workers=1, part_rows=self.plan.section.commit_rows, spark=None)

    def _steps(self, parts: Iterator[Part], at: LoadState) -> Iterator[list[Part]]:
        """Yield as many parts as are merged at once."""
        share = (at.snapshot.row_count or 0) // _SHARE_OF_TABLE
        enough = min(max(self.plan.section.commit_rows, share), _MOST_ROWS_A_MERGE)
        gathered = list[Part]()
        for part in parts:
            gathered.append(part)
            if sum(each.rows for each in gathered) >= enough:
                yield gathered
                gathered = []
        if any(part.rows for part in gathered):
            yield gathered

    def _merge(self, at: LoadState, state: ExtractState, parts: list[Part]) -> tuple[LoadState, ExtractState]:
        cursor = self.plan.section.cursor
        assert cursor is not None
        state = state.with_parts(parts)
        reached = state.lanes[0].at
        # The position begins with the cursor; what follows are the columns of the key.
        state = replace(state, cursor=state.cursor if reached is None else reached[0], finished=parts[-1].last)
        report = self.load.upsert(
            at,
            ChangedRows(
                files=[file for part in parts for file in part.files],
                schema=self.plan.schema,
                keys=self.plan.key_names,
                newest_by=lake_name(cursor),
            ),
            state.to_json(),
            reason=f"{state.rows:,} rows of {self.plan.name} changed",
        )
        self.rows, self.pages = state.rows, state.pages
        self.written, self.replaced = self.written + report.written, self.replaced + report.replaced
        if report.commit is not None:
            self.commits += 1
            at = replace(at, position=at.next)
        self.on_progress(ExtractProgress(rows=state.rows, total=None, committed=True))
        return at, state
