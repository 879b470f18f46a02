"""What a publisher hands in and gets back; the gateway and the command line are written against `StreamPublisher`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dw_platform.log import LogBatch, Records
from dw_platform.scaling import PressureLevel
from dw_platform.streaming.contract import TopicInfo


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """Marks a batch of an idempotent producer: the same stamp published again writes nothing twice."""

    producer: str
    """Unique among producers; letters, digits, '.', '_' and '-'."""

    sequence: int
    """0 for the producer's first batch to the topic, then one more with each batch."""


@dataclass(frozen=True, slots=True)
class PartitionReceipt:
    """The offsets [base_offset, next_offset) that one partition gave; where several processes publish, with gaps."""

    partition: int
    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class DegradationDirective:
    """What the pipeline should leave out while a stream that degrades is under pressure."""

    skip_enrichment: bool = False
    """Write what arrives as it is; derived columns stay empty."""

    batch_factor: int = 1
    """Make batches and commits this many times as large."""

    relaxed_acknowledgement: bool = False
    """Acknowledge after the write instead of after the fsync; only where the stream is not durable."""


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """What became of a batch that was taken."""

    topic: str
    records: int
    parts: tuple[PartitionReceipt, ...]
    level: PressureLevel = PressureLevel.NORMAL
    headers: Mapping[str, str] = field(default_factory=dict)
    """For the producer's eyes, such as X-Backpressure: warning."""

    duplicate: bool = False
    """Whether all of it had been published before, under the same stamp; the offsets are those of then."""

    directive: DegradationDirective | None = None


class StreamPublisher(Protocol):
    """Publishing and reading by topic, whichever broker keeps it; any thread and any event loop may use it."""

    def topics(self) -> list[str]:
        """Return the topics that it serves, sorted."""

    def topic(self, topic: str) -> TopicInfo:
        """Return the topic; raise UnknownTopicError for one that it does not serve."""

    async def publish(
        self, topic: str, records: Records, *, stamp: ProducerStamp | None = None, timeout_s: float | None = None
    ) -> PublishReceipt:
        """Return once every record is durable; raise if any is not.

        Under pressure it waits, or raises StreamRejectedError, as the stream's strategy says; PublishTimedOutError
        after `timeout_s` without room. SequenceGapError for a stamp that skips a number. A wrong batch raises
        InvalidRecordsError or RecordTooLargeError and writes nothing.
        """

    def publish_sync(
        self, topic: str, records: Records, *, stamp: ProducerStamp | None = None, timeout_s: float | None = None
    ) -> PublishReceipt:
        """Do the same for callers without an event loop."""

    def read(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None
    ) -> LogBatch:
        """Return records from `offset` on, as a Fetcher does."""

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return for each partition the lowest offset that can be read, and the next one to be written."""
