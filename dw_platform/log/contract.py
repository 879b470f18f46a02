"""What a partition's writer and its readers promise; the bus and the streams are built against this.

    with PartitionLog.open(directory, LogPolicy(), clock=SystemClock()) as log:   # a PartitionWriter
        result = log.append(Records([b"one", b"two"]))          # durable when it returns
        future = log.submit(Records([b"three"], keys=[b"k"]))   # await asyncio.wrap_future(future)
    reader = PartitionReader(directory)                         # a PartitionReading, in any process
    batch = reader.read(result.base_offset, max_bytes=1 << 20)
    for record_batch in batch.batches: ...                      # pa.RecordBatch with SCHEMA
    offset = batch.next_offset

Offsets number the records of a partition from 0, never change, and are given once: only a power cut under a policy
that does not fsync every acknowledgement can make the last ones be given again. They can have gaps: compaction
removes older values of a key, and offsets of records that are known to be lost are not used again.
"""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from dw_platform.log.records import Records

HEADERS = pa.map_(pa.string(), pa.binary())
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The offsets [base_offset, next_offset) that an appended batch got, in its order."""

    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Records in the order of their offsets, and where to read on.

    `batches` share memory with what was read from disk; none of them is empty. `next_offset` may be beyond the
    last record's offset plus one where compaction left a gap.
    """

    batches: tuple[Any, ...]
    """pa.RecordBatch each, with SCHEMA."""

    next_offset: int

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def to_table(self) -> Any:
        """Return a pa.Table over the same memory."""
        return pa.Table.from_batches(self.batches, SCHEMA)

    def to_record_batch(self) -> Any:
        """Return one pa.RecordBatch; copies if there is more than one part."""
        return pa.concat_batches(self.batches) if self.batches else pa.RecordBatch.from_pylist([], SCHEMA)


@dataclass(frozen=True, slots=True)
class TornTail:
    """What recovery cut from the end of the last file, because it was not wholly written."""

    file: str
    position: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a partition found and did."""

    clean: bool
    """Whether the last writer closed it; then only the last file was checked record by record."""

    segments: int
    checked_bytes: int
    end_offset: int
    torn: TornTail | None = None
    lost: tuple[int, int] | None = None
    """Offsets [first, end) that had been acknowledged and are gone with the tail; readers get RecordsLostError."""

    foreign: tuple[str, ...] = ()
    """Names in the folder that are not the log's; they were left alone."""


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """A snapshot of one writer."""

    start_offset: int
    end_offset: int
    """Next offset to be acknowledged."""

    segments: int
    bytes: int
    pending: int
    """Batches that wait for their fsync."""

    appended_records: int
    appended_batches: int
    fsyncs: int
    stopped: bool


class PartitionWriter(Protocol):
    """The one writer of a partition; safe to use from many threads."""

    @property
    def recovery(self) -> RecoveryReport:
        """Return what opening found."""

    def append(self, records: Records) -> AppendResult:
        """Return once the records are acknowledged under the fsync policy; raise if they are not.

        A batch gets consecutive offsets and is read wholly or not at all. RecordTooLargeError and
        InvalidRecordsError concern this batch only. PartitionStoppedError means that the disk failed: it is
        raised for every batch that was not acknowledged, and for all later ones until the partition is reopened.
        """

    def submit(self, records: Records) -> "Future[AppendResult]":
        """Do the same without waiting: a wrong batch raises at once, the rest is told by the future.

        Batches are written in the order in which `append` and `submit` were called.
        """

    def sync(self) -> None:
        """Force everything acknowledged so far to disk, whatever the policy."""

    def stats(self) -> PartitionStats:
        """Return a snapshot; never waits for the disk."""

    def close(self) -> None:
        """Write and fsync what is pending, then release the lock; closing twice is harmless."""


class PartitionReading(Protocol):
    """A reader of a partition; it needs no lock, never blocks the writer, and sees acknowledged batches only.

    One reader belongs to one thread at a time; any number of them may read the same partition.
    """

    def read(self, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None) -> LogBatch:
        """Return records from `offset` on, as many as the limits allow; empty when `offset` is the end.

        At least one record comes when there is one, even if it alone is above `max_bytes`. Raise
        RecordsExpiredError below the start, OffsetOutOfRangeError for a negative offset or one beyond the end,
        CorruptSegmentError for acknowledged records that are damaged.
        """

    def start_offset(self) -> int:
        """Return the lowest offset that can be read."""

    def end_offset(self) -> int:
        """Return the offset that the next acknowledged record will have at least."""

    def close(self) -> None:
        """Release files; closing twice is harmless."""
