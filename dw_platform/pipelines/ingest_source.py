"""What is known about a stream's topic between two commits, and the next plan made of it.

The broker tells where partitions begin and end. What it does not tell is learned: how large records are, how fast they
are written, and which offsets a crash of the broker has taken, which shows only when they are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dw_platform.config import StreamSection
from dw_platform.lake.session import SparkProvider
from dw_platform.log import RecordsExpiredError
from dw_platform.pipelines.ingest_errors import PositionBeyondEndError, RecordsGoneError
from dw_platform.pipelines.ingest_plan import IngestPlan, OffsetRange, plan_ranges
from dw_platform.pipelines.ingest_rows import TaskTally
from dw_platform.pipelines.lost import CRASHED, EXPIRED
from dw_platform.streaming import Broker

# So small a commit is written in this process: a Spark job would take longer to start than to run.
SMALL_ROWS, SMALL_BYTES = 100_000, 32 * 1024 * 1024
PROBE_BYTES = 256 * 1024
# No commit should take longer than about this; how many rows that is, is known after the first one.
LONGEST_COMMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """How large a commit may be, and whether Spark may make it."""

    rows: int
    bytes: int
    spark: bool = True

    def now(self, waiting: int, bytes_per_row: float, rows_per_s: float) -> "CommitLimits":
        """Return what holds for a backlog: a small one needs no Spark, and nothing should take too long."""
        rows = min(waiting, self.rows)
        if not self.spark or (rows <= SMALL_ROWS and rows * bytes_per_row <= SMALL_BYTES):
            return CommitLimits(min(self.rows, SMALL_ROWS), min(self.bytes, SMALL_BYTES), spark=False)
        timely = max(SMALL_ROWS, int(rows_per_s * LONGEST_COMMIT_S)) if rows_per_s else self.rows
        return replace(self, rows=min(self.rows, timely))


class IngestSource:
    """The topic of one stream, as its ingest sees it; used by one thread at a time."""

    def __init__(self, stream: StreamSection, broker: Broker, spark: SparkProvider) -> None:
        self._stream, self._broker, self._spark = stream, broker, spark
        self._bytes_per_row = self._rows_per_s = 0.0
        self._holes: dict[int, tuple[int, int]] = {}

    def plan(
        self, positions: Mapping[int, int], targets: Mapping[int, int], limits: CommitLimits
    ) -> tuple[IngestPlan, bool]:
        """Return what comes next, up to `targets`, and whether Spark should read it.

        PositionBeyondEndError if the table is ahead of the topic.
        """
        starts, ends = self._bounds(positions, targets)
        begins = {each: max(positions.get(each, 0), starts.get(each, 0)) for each in ends}
        waiting = {each: max(0, end - begins[each]) for each, end in ends.items()}
        size = self._average(begins, waiting)
        chosen = limits.now(sum(waiting.values()), size, self._rows_per_s)
        plan = plan_ranges(
            positions,
            starts,
            ends,
            max_rows=chosen.rows,
            max_bytes=chosen.bytes,
            bytes_per_row=size,
            tasks=self._spark.parallelism if chosen.spark else 1,
        )
        return plan, chosen.spark

    def remember(self, gone: RecordsGoneError) -> None:
        """Take in that a task did not find its records.

        What expired is seen in the broker's bounds by the next plan; what a crash took has to be remembered here.
        """
        if not gone.expired:
            self._holes[gone.partition] = (gone.first, gone.next_offset)

    def learn(self, tally: TaskTally, duration_s: float) -> None:
        """Take in what a commit had and how long it took."""
        if tally.records:
            self._bytes_per_row = tally.bytes / tally.records
            if tally.records > SMALL_ROWS and duration_s > 0:
                self._rows_per_s = tally.records / duration_s

    def fate(self, part: OffsetRange) -> str:
        """Return why a range is gone."""
        first, following = self._holes.get(part.partition, (part.next, 0))
        return CRASHED if first <= part.first and following == part.next else EXPIRED

    def _bounds(
        self, positions: Mapping[int, int], targets: Mapping[int, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return what can be read now: a hole ends a partition for a reader before it, and begins it for one in it."""
        starts, ends = self._broker.start_offsets(self._stream.topic_name), dict(targets)
        for partition, position in positions.items():
            if position > targets[partition]:
                self._require_end(partition, position)
        for partition, (first, following) in self._holes.items():
            if positions.get(partition, 0) >= first:
                starts[partition] = max(starts.get(partition, 0), following)
            else:
                ends[partition] = min(ends.get(partition, first), first)
        return starts, ends

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
