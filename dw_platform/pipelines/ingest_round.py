"""One commit of a stream: snapshot, plan, one Spark job, commit on that snapshot; see ingest.py for what that gives."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dw_platform.config import StreamSection
from dw_platform.foundation import PlatformError
from dw_platform.lake.commit import CommitConflictError, PositionConflictError
from dw_platform.lake.reports import CommitReport
from dw_platform.lake.staging import PreparedWrite, SplitTasks, Staging, discard, stage
from dw_platform.log import RecordsExpiredError
from dw_platform.pipelines.brokers import stream_broker_settings
from dw_platform.pipelines.ingest_errors import (
    LostRangesError,
    PositionBeyondEndError,
    RecordsGoneError,
    TooManyRejectedError,
)
from dw_platform.pipelines.ingest_intent import finish_reset
from dw_platform.pipelines.ingest_json import json_schema
from dw_platform.pipelines.ingest_plan import IngestPlan, OffsetRange, plan_ranges
from dw_platform.pipelines.ingest_report import IngestCommit
from dw_platform.pipelines.ingest_rows import REJECTED_ROWS, ROWS, IngestTask, TaskTally, read_task
from dw_platform.pipelines.ingest_tables import prepare_rejected, prepare_table
from dw_platform.pipelines.lost import CRASHED, EXPIRED, LostRange, record_lost
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.positions import PositionNames, read_generation, read_positions
from dw_platform.streaming import Broker, ingest_group

log = logging.getLogger(__name__)

# A share of bad records means nothing before some have been seen.
FEWEST_JUDGED = 10
# How often in a row others may be first, or change the table, before the run gives up.
MOST_CONFLICTS = 20
# So small a commit is written in this process: a Spark job would take longer to start than to run.
SMALL_ROWS, SMALL_BYTES = 100_000, 32 * 1024 * 1024
PROBE_BYTES = 256 * 1024
# No commit should take longer than about this; how many rows that is, is known after the first one.
LONGEST_COMMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Bases:
    """What a round is planned from and committed with."""

    rows: PreparedWrite
    rejected: PreparedWrite | None
    positions: Mapping[int, int]
    generation: int


@dataclass(frozen=True, slots=True)
class _Limits:
    """How large a commit may be, and whether Spark may make it."""

    rows: int
    bytes: int
    spark: bool

    def now(self, waiting: int, bytes_per_row: float, rows_per_s: float) -> "_Limits":
        """Return what holds for a backlog: a small one needs no Spark, and nothing should take too long."""
        if not self.spark or (waiting <= SMALL_ROWS and waiting * bytes_per_row <= SMALL_BYTES):
            return _Limits(min(self.rows, SMALL_ROWS), min(self.bytes, SMALL_BYTES), spark=False)
        timely = max(SMALL_ROWS, int(rows_per_s * LONGEST_COMMIT_S)) if rows_per_s else self.rows
        return replace(self, rows=min(self.rows, timely))


class IngestRounds:
    """Commits of one stream, one after the other; remembers how large records are and how fast they go."""

    def __init__(self, platform: Platform, stream: StreamSection, broker: Broker) -> None:
        self.names = PositionNames.of(stream)
        self._platform, self._stream, self._broker = platform, stream, broker
        self._settings = stream_broker_settings(platform.config, stream)
        self._bytes_per_row = self._rows_per_s = 0.0
        # Offsets that the broker knows it has lost, by partition; found by reading, because no bound tells of them.
        self._holes: dict[int, tuple[int, int]] = {}

    def commit_next(
        self, targets: Mapping[int, int], *, max_rows: int, accept_loss: bool, wait_for_spark: bool = True
    ) -> IngestCommit | None:
        """Commit what comes next, up to `targets`; None if everything up to there is in the table.

        Whoever else ingests the stream meanwhile may be first; then this plans again from what they left. Without
        `wait_for_spark`, commits are small and made in this process as long as Spark is not ready.
        """
        limits = _Limits(max_rows, self._stream.commit.size, wait_for_spark or self._platform.spark.ready)
        for _ in range(MOST_CONFLICTS - 1):
            try:
                return self._attempt(targets, limits, accept_loss=accept_loss)
            except (PositionConflictError, CommitConflictError) as conflict:
                log.info("planning again", extra={"stream": self._stream.name, "reason": str(conflict)})
            except RecordsGoneError as gone:
                # What expired is seen in the broker's bounds by the next plan; what a crash took has to be remembered.
                if not gone.expired:
                    self._holes[gone.partition] = (gone.first, gone.next_offset)
        return self._attempt(targets, limits, accept_loss=accept_loss)

    def positions(self, partitions: Mapping[int, int]) -> dict[int, int]:
        """Return where the table reads next, for each of `partitions`."""
        snapshot = self._platform.lake.table(self._stream.table).snapshot()
        return dict.fromkeys(partitions, 0) | read_positions(snapshot, self.names, partitions)

    def _attempt(self, targets: Mapping[int, int], limits: _Limits, *, accept_loss: bool) -> IngestCommit | None:
        clock = self._platform.clock
        started = clock.monotonic()
        bases = self._prepare(targets)
        plan = self._plan(bases, targets, limits)
        if plan.empty:
            return None
        lost = self._lost(plan, bases, accept=accept_loss or not self._stream.durable)
        staging = self._stage(plan, bases)
        tally = self._judged(staging)
        report = self._commit(staging, plan, bases)
        self._tell_broker(plan.positions)
        self._learn(tally, clock.monotonic() - started)
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

    def _plan(self, bases: _Bases, targets: Mapping[int, int], limits: _Limits) -> IngestPlan:
        starts, ends = self._broker.start_offsets(self._stream.topic_name), dict(targets)
        for partition, position in bases.positions.items():
            if position > targets[partition]:
                self._require_end(partition, position)
        for partition, (first, following) in self._holes.items():
            if bases.positions.get(partition, 0) >= first:
                starts[partition] = max(starts.get(partition, 0), following)
            else:
                ends[partition] = min(ends.get(partition, first), first)
        begins = {each: max(bases.positions.get(each, 0), starts.get(each, 0)) for each in ends}
        waiting = {each: max(0, end - begins[each]) for each, end in ends.items()}
        size = self._average(begins, waiting)
        limits = limits.now(sum(waiting.values()), size, self._rows_per_s)
        return plan_ranges(
            bases.positions,
            starts,
            ends,
            max_rows=limits.rows,
            max_bytes=limits.bytes,
            bytes_per_row=size,
            tasks=self._platform.spark.parallelism if limits.spark else 1,
        )

    def _require_end(self, partition: int, position: int) -> None:
        """Refuse a table that is ahead of the broker now; it may be ahead of ends that were read earlier."""
        topic = self._stream.topic_name
        end = self._broker.end_offsets(topic).get(partition, 0)
        if position > end:
            raise PositionBeyondEndError(self._stream.name, topic, partition, position, end)

    def _average(self, begins: Mapping[int, int], waiting: Mapping[int, int]) -> float:
        """Return the average size of a record, by the last commit or, before the first one, by a look at a few."""
        if not self._bytes_per_row and any(waiting.values()):
            fullest = max(waiting, key=lambda each: waiting[each])
            fetcher = self._broker.fetcher(self._stream.topic_name, fullest)
            try:
                batch = fetcher.fetch(begins[fullest], max_bytes=PROBE_BYTES)
            except RecordsExpiredError:
                return 1.0  # the tasks will tell what is gone
            finally:
                fetcher.close()
            size = sum(part["key"].nbytes + part["value"].nbytes for part in batch.batches)
            self._bytes_per_row = size / max(1, len(batch))
        return max(1.0, self._bytes_per_row)

    def _lost(self, plan: IngestPlan, bases: _Bases, *, accept: bool) -> tuple[LostRange, ...]:
        found = [LostRange(part, self._fate(part)) for part in plan.lost]
        if not found:
            return ()
        if not accept:
            raise LostRangesError(self._stream.name, self._stream.topic_name, plan.lost, found[0].reason)
        recorded = record_lost(self._platform, self.names, bases.generation, found)
        for entry in recorded:
            log.warning("records lost", extra={"stream": self._stream.name, "range": str(entry.range)})
        return recorded

    def _fate(self, part: OffsetRange) -> str:
        first, following = self._holes.get(part.partition, (part.next, 0))
        return CRASHED if first <= part.first and following == part.next else EXPIRED

    # Reading and writing

    def _stage(self, plan: IngestPlan, bases: _Bases) -> Staging:
        small = plan.rows <= SMALL_ROWS and plan.rows * max(1.0, self._bytes_per_row) <= SMALL_BYTES
        tasks = SplitTasks([self._task(ranges, bases) for ranges in plan.tasks], read_task)
        targets = {ROWS: bases.rows} | ({REJECTED_ROWS: bases.rejected} if bases.rejected else {})
        return stage(tasks, targets, spark=None if small else self._platform.spark.get)

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

    def _learn(self, tally: TaskTally, duration_s: float) -> None:
        if tally.records:
            self._bytes_per_row = tally.bytes / tally.records
            if tally.records > SMALL_ROWS and duration_s > 0:
                self._rows_per_s = tally.records / duration_s


def _discard_all(staging: Staging) -> None:
    for staged in staging.writes.values():
        discard(staged)
