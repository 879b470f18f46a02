"""One commit of a stream: snapshot, plan, one Spark job, commit on that snapshot; see ingest.py for what that gives."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from dw_platform.config import StreamSection
from dw_platform.foundation import PlatformError
from dw_platform.lake.commit import CommitConflictError, PositionConflictError
from dw_platform.lake.reports import CommitReport
from dw_platform.lake.staging import PreparedWrite, SplitTasks, Staging, discard, stage
from dw_platform.pipelines.brokers import stream_broker_settings
from dw_platform.pipelines.ingest_errors import (
    LostRangesError,
    RecordsGoneError,
    TooManyRejectedError,
)
from dw_platform.pipelines.ingest_intent import finish_reset
from dw_platform.pipelines.ingest_plan import IngestPlan, OffsetRange
from dw_platform.pipelines.ingest_report import IngestCommit
from dw_platform.pipelines.ingest_rows import REJECTED_ROWS, ROWS, IngestTask, TaskTally, read_task
from dw_platform.pipelines.ingest_source import CommitLimits, IngestSource
from dw_platform.pipelines.ingest_tables import prepare_rejected, prepare_table
from dw_platform.pipelines.ingest_types import json_schema
from dw_platform.pipelines.lost import LostRange, record_lost
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.positions import PositionNames, read_generation, read_positions
from dw_platform.streaming import Broker, ingest_group

log = logging.getLogger(__name__)

# A share of bad records means nothing before some have been seen.
FEWEST_JUDGED = 10
# How often in a row others may be first, or change the table, before the run gives up.
MOST_CONFLICTS = 20


@dataclass(frozen=True, slots=True)
class _Bases:
    """What a round is planned from and committed with."""

    rows: PreparedWrite
    rejected: PreparedWrite | None
    positions: Mapping[int, int]
    generation: int


class IngestRounds:
    """Commits of one stream, one after the other; used by one thread at a time."""

    def __init__(self, platform: Platform, stream: StreamSection, broker: Broker) -> None:
        self.names = PositionNames.of(stream)
        self._platform, self._stream, self._broker = platform, stream, broker
        self._settings = stream_broker_settings(platform.config, stream)
        self._source = IngestSource(stream, broker, platform.spark)

    def commit_next(
        self, targets: Mapping[int, int], *, max_rows: int, accept_loss: bool, wait_for_spark: bool = True
    ) -> IngestCommit | None:
        """Commit what comes next, up to `targets`; None if everything up to there is in the table.

        Whoever else ingests the stream meanwhile may be first; then this plans again from what they left. Without
        `wait_for_spark`, commits are small and made in this process as long as Spark is not ready.
        """
        limits = CommitLimits(max_rows, self._stream.commit.size, wait_for_spark or self._platform.spark.ready)
        for _ in range(MOST_CONFLICTS - 1):
            try:
                return self._attempt(targets, limits, accept_loss=accept_loss)
            except (PositionConflictError, CommitConflictError) as conflict:
                log.info("planning again", extra={"stream": self._stream.name, "reason": str(conflict)})
            except RecordsGoneError as gone:
                self._source.remember(gone)
        return self._attempt(targets, limits, accept_loss=accept_loss)

    def positions(self, partitions: Mapping[int, int]) -> dict[int, int]:
        """Return where the table reads next, for each of `partitions`."""
        snapshot = self._platform.lake.table(self._stream.table).snapshot()
        return dict.fromkeys(partitions, 0) | read_positions(snapshot, self.names, partitions)

    def _attempt(self, targets: Mapping[int, int], limits: CommitLimits, *, accept_loss: bool) -> IngestCommit | None:
        clock = self._platform.clock
        started = clock.monotonic()
        bases = self._prepare(targets)
        plan, by_spark = self._source.plan(bases.positions, targets, limits)
        if plan.empty:
            return None
        lost = self._lost(plan, bases, accept=accept_loss or not self._stream.durable)
        staging = self._stage(plan, bases, by_spark=by_spark)
        tally = self._judged(staging)
        report = self._commit(staging, plan, bases)
        self._tell_broker(plan.positions)
        self._source.learn(tally, clock.monotonic() - started)
        reached = {**bases.positions, **plan.positions}
        return IngestCommit(
            stream=self._stream.name,
            table=self._stream.table,
            version=report.version,
            rows=staging.writes[ROWS].rows,
            rejected=tally.rejected,
            bytes=tally.bytes,
            positions=plan.positions,
            lag=sum(max(0, end - reached.get(partition, 0)) for partition, end in targets.items()),
            duration_s=clock.monotonic() - started,
            lost=lost,
        )

    # Planning

    def _prepare(self, partitions: Mapping[int, int]) -> _Bases:
        while True:
            rows = prepare_table(self._platform, self._stream)
            rejected = prepare_rejected(self._platform, self._stream) if self._stream.format == "json" else None
            # After the snapshots, so that a reset that begins now conflicts with what is planned from them.
            if not finish_reset(self._platform, self._stream):
                break
        positions = read_positions(rows.snapshot, self.names, partitions)
        return _Bases(rows, rejected, positions, read_generation(rows.snapshot, self.names))

    def _lost(self, plan: IngestPlan, bases: _Bases, *, accept: bool) -> tuple[LostRange, ...]:
        found = [LostRange(part, self._source.fate(part)) for part in plan.lost]
        if not found:
            return ()
        if not accept:
            raise LostRangesError(self._stream.name, self._stream.topic_name, plan.lost, found[0].reason)
        recorded = record_lost(self._platform, self.names, bases.generation, found)
        for entry in recorded:
            log.warning("records lost", extra={"stream": self._stream.name, "range": str(entry.range)})
        return recorded

    # Reading and writing

    def _stage(self, plan: IngestPlan, bases: _Bases, *, by_spark: bool) -> Staging:
        tasks = SplitTasks([self._task(ranges, bases) for ranges in plan.tasks], read_task)
        targets = {ROWS: bases.rows} | ({REJECTED_ROWS: bases.rejected} if bases.rejected else {})
        return stage(tasks, targets, spark=self._platform.spark.get if by_spark else None)

    def _task(self, ranges: tuple[OffsetRange, ...], bases: _Bases) -> IngestTask:
        columns = json_schema(self._stream.columns) if bases.rejected else None
        return IngestTask(
            broker=self._settings,
            topic=self._stream.topic_name,
            ranges=ranges,
            at=self._platform.clock.now(),
            columns=columns,
            rejected_before=self._rejected_before(bases, {part.partition for part in ranges}),
        )

    def _rejected_before(self, bases: _Bases, partitions: set[int]) -> dict[int, int]:
        if bases.rejected is None:
            return {}
        names = {each: self.names.rejected(each, bases.generation) for each in partitions}
        return {each: bases.rejected.snapshot.position(name) or 0 for each, name in names.items()}

    def _judged(self, staging: Staging) -> TaskTally:
        """Return what the tasks saw; too many bad records end the run before anything is committed."""
        tally = TaskTally()
        for note in staging.notes:
            tally.add(note)
        allowed = self._stream.max_rejected
        if tally.records >= FEWEST_JUDGED and tally.rejected > allowed * tally.records:
            _discard_all(staging)
            raise TooManyRejectedError(self._stream.name, tally.rejected, tally.records, allowed, tally.examples)
        return tally

    def _commit(self, staging: Staging, plan: IngestPlan, bases: _Bases) -> CommitReport:
        try:
            if (bad := staging.writes.get(REJECTED_ROWS)) is not None and bad.rows:
                positions = self._rejected_positions(plan, bases)
                self._platform.lake.table(self._stream.rejected_table).commit_staged(bad, positions=positions)
        except BaseException:
            discard(staging.writes[ROWS])
            raise
        positions = {self.names.partition(each): offset for each, offset in plan.positions.items()}
        return self._platform.lake.table(self._stream.table).commit_staged(staging.writes[ROWS], positions=positions)

    def _rejected_positions(self, plan: IngestPlan, bases: _Bases) -> dict[str, int]:
        before = self._rejected_before(bases, set(plan.positions))
        return {
            self.names.rejected(each, bases.generation): offset
            for each, offset in plan.positions.items()
            if offset > before[each]
        }

    # Afterwards

    def _tell_broker(self, positions: Mapping[int, int]) -> None:
        try:
            self._broker.commit(self._stream.topic_name, ingest_group(self._stream.name), positions)
        except PlatformError as error:
            log.warning("group not committed", extra={"stream": self._stream.name, "reason": str(error)})


def _discard_all(staging: Staging) -> None:
    for staged in staging.writes.values():
        discard(staged)
