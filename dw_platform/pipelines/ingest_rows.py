"""What a task of an ingest does: fetch its ranges from the broker and turn them into rows; runs inside Spark.

Everything here works on Arrow batches. A task reads exactly its ranges, no record more or less, whatever the broker
hands out at once; if the broker does not have one of them any more, RecordsGoneError names it.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dw_platform.log import RecordsExpiredError, RecordsLostError
from dw_platform.pipelines.ingest_errors import RecordsGoneError
from dw_platform.pipelines.ingest_json import parse_values
from dw_platform.pipelines.ingest_plan import OffsetRange
from dw_platform.pipelines.ingest_tables import RAW, REJECTED
from dw_platform.streaming import Broker, BrokerSettings, BrokerUnavailableError, open_broker

ROWS = "rows"
REJECTED_ROWS = "rejected"

FETCH_BYTES = 16 * 1024 * 1024
# The end of a range was acknowledged when it was planned, so silence for this long is a broker that does not answer.
FETCH_WAIT_S = 30.0
_EXAMPLES = 3

Targeted = Generator[tuple[str, pa.RecordBatch], None, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestTask:
    """What one task reads and into what; picklable."""

    broker: BrokerSettings
    topic: str
    ranges: tuple[OffsetRange, ...]
    at: datetime
    """When the commit was planned: the same for all its rows."""

    columns: pa.Schema | None = None
    """Declared columns of a typed stream; None for a raw one."""

    rejected_before: Mapping[int, int] = field(default_factory=dict)
    """Bad records below these offsets, by partition, are in the rejected table already."""


@dataclass(slots=True)
class TaskTally:
    """What a task saw, for the driver's decisions."""

    records: int = 0
    bytes: int = 0
    rejected: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, other: Mapping[str, Any]) -> None:
        """Take in what another task returned."""
        self.records += other["records"]
        self.bytes += other["bytes"]
        self.rejected += other["rejected"]
        self.examples = (self.examples + other["examples"])[:_EXAMPLES]

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "rejected": self.rejected,
            "examples": self.examples[:_EXAMPLES],
        }


def read_task(task: IngestTask) -> Targeted:
    """Yield (ROWS or REJECTED_ROWS, batch); return the tally."""
    tally = TaskTally()
    with open_broker(task.broker) as broker:
        for part in task.ranges:
            for records in read_range(broker, task.broker, task.topic, part):
                tally.records += len(records)
                tally.bytes += _bytes(records)
                if task.columns is None:
                    yield ROWS, raw_rows(task, part.partition, records)
                else:
                    yield from typed_rows(task, part.partition, records, tally)
    return tally.as_json()


def read_range(broker: Broker, settings: BrokerSettings, topic: str, part: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield all records of the range in large batches."""
    fetcher = broker.fetcher(topic, part.partition)
    offset = part.first
    try:
        while offset < part.next:
            batch = fetcher.fetch(offset, max_bytes=FETCH_BYTES, max_records=part.next - offset, wait_s=FETCH_WAIT_S)
            if batch.next_offset <= offset:
                reason = f"{topic}: offset {offset} of partition {part.partition} did not arrive in {FETCH_WAIT_S:g} s"
                raise BrokerUnavailableError(settings.kind, settings.address or settings.directory, reason)
            if len(batch):
                yield _below(batch.to_record_batch(), part.next)
            offset = batch.next_offset
    except RecordsExpiredError as gone:
        expired = not isinstance(gone, RecordsLostError)
        raise RecordsGoneError(part.partition, gone.requested, gone.earliest, expired=expired) from gone
    finally:
        fetcher.close()


def raw_rows(task: IngestTask, partition: int, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records as rows of a raw table."""
    at = _constant(task.at, RAW.field("ingested_at").type, len(records))
    return pa.RecordBatch.from_arrays([*_record(task, partition, records), at], schema=RAW)


def typed_rows(
    task: IngestTask, partition: int, records: pa.RecordBatch, tally: TaskTally
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of the good records, and the bad records that are not yet in the rejected table."""
    assert task.columns is not None
    parsed = parse_values(records.column("value"), task.columns)
    yield ROWS, _typed(partition, parsed.rows, records.filter(parsed.good) if parsed.reasons else records)
    if not parsed.reasons:
        return
    tally.rejected += len(parsed.reasons)
    offsets = records.column("offset")
    for number in list(parsed.reasons)[: _EXAMPLES - len(tally.examples)]:
        tally.examples.append(f"partition {partition}, offset {offsets[number].as_py()}: {parsed.reasons[number]}")
    known = task.rejected_before.get(partition, 0)
    new = [number for number in parsed.reasons if offsets[number].as_py() >= known]
    if new:
        yield REJECTED_ROWS, _rejected(task, partition, records.take(pa.array(new)), [parsed.reasons[n] for n in new])


def _typed(partition: int, rows: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
    where = [_constant(partition, pa.int32(), len(rows)), records.column("offset"), _instant(records)]
    names = [*rows.schema.names, "_partition", "_offset", "_timestamp"]
    return pa.RecordBatch.from_arrays([*rows.columns, *where], names=names)


def _rejected(task: IngestTask, partition: int, records: pa.RecordBatch, reasons: list[str]) -> pa.RecordBatch:
    told = [pa.array(reasons, pa.string()), _constant(task.at, REJECTED.field("rejected_at").type, len(records))]
    return pa.RecordBatch.from_arrays([*_record(task, partition, records), *told], schema=REJECTED)


def _record(task: IngestTask, partition: int, records: pa.RecordBatch) -> list[pa.Array]:
    return [
        records.column("key"),
        records.column("value"),
        records.column("headers"),
        _constant(task.topic, pa.string(), len(records)),
        _constant(partition, pa.int32(), len(records)),
        records.column("offset"),
        _instant(records),
    ]


def _constant(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _instant(records: pa.RecordBatch) -> pa.Array:
    return records.column("timestamp").cast(pa.timestamp("us", "UTC"))


def _below(records: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """Cut what a broker handed out beyond the range."""
    offsets = records.column("offset").to_numpy()
    return records if offsets[-1] < end else records.slice(0, int(np.searchsorted(offsets, end)))


def _bytes(records: pa.RecordBatch) -> int:
    lengths = (pc.sum(pc.binary_length(records.column(name))).as_py() for name in ("key", "value"))
    return sum(length or 0 for length in lengths)
