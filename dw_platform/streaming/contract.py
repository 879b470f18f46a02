"""What the platform needs from a message broker, whichever it is.

A topic has partitions, a partition has records with rising offsets, and a reader keeps the offset that it reads next.
Records go in and come out as Arrow (`Records`, `LogBatch` of the log); nothing here looks at one record at a time.

Offsets can have gaps: a compacted topic, an aborted transaction, ids that a broker numbers in strides. So a reader
goes on at `LogBatch.next_offset`, never at the last offset plus one, and counts records only where it has them.

Where brokers differ, the least of them is promised: a record without headers may come back with an empty map of them,
times are milliseconds after 1970 and not older than the topic's retention, which may go by them, and names of topics
and groups are those that `check_name` takes.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from dw_platform.log import AppendResult, LogBatch, LogPolicy, Records

DEFAULT_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a broker can do beyond the least; callers ask for the capability, not for a broker's name."""

    grows: bool = True
    """Whether partitions can be added to a topic."""

    drops: bool = False
    """Whether the oldest records of a topic can be dropped on demand; see `drop_before`."""

    shared_by_processes: bool = True
    """Whether several processes may publish to one topic; if not, others publish through the gateway."""

    whole_batches: bool = False
    """Whether a batch to one partition is written wholly or not at all, whatever fails."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How a topic is made if it is not there; one that is there keeps its own settings."""

    partitions: int = DEFAULT_PARTITIONS
    policy: LogPolicy = field(default_factory=LogPolicy)
    """Retention and record size for every broker; fsync and segments for the embedded log."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it is now."""

    name: str
    partitions: int
    version: int
    """Of the partition map: rises with each growth; brokers that keep none use the number of partitions."""


class Fetcher(Protocol):
    """A reader of one partition; one thread at a time uses it."""

    def fetch(
        self, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None, wait_s: float = 0.0
    ) -> LogBatch:
        """Return records from `offset` on, as many as the limits allow; empty when none came within `wait_s`.

        A record that was acknowledged before the call comes without waiting. At least one comes when there is one,
        even if it alone is above `max_bytes`, and records that were published together may come together. The first
        record's offset may be above `offset` where there is a gap, and a gap alone moves `next_offset` only.

        Raise RecordsExpiredError for an offset that retention has removed, OffsetOutOfRangeError for a negative one
        or one beyond the end, and BrokerUnavailableError if the broker does not answer.
        """

    def close(self) -> None:
        """Release what reading needs; closing twice is harmless."""


class Broker(Protocol):
    """Any thread may use it; what it opens it keeps until `close`.

    UnknownTopicError where a topic is not there, BrokerUnavailableError (transient) where the broker does not
    answer: each method may raise both.
    """

    @property
    def kind(self) -> str:
        """Its name in `broker.kind`."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted; the broker's internal ones are left out."""

    def topic(self, topic: str) -> TopicInfo:
        """Return the topic as it is now."""

    def ensure_topic(self, topic: str, settings: TopicSettings) -> TopicInfo:
        """Make the topic unless it is there, and return it; safe to call from several processes at once."""

    def grow(self, topic: str, partitions: int) -> TopicInfo:
        """Give the topic that many partitions; fewer raise InvalidValueError, the same number changes nothing.

        Records stay where they are, keys may now belong elsewhere: who needs order within a key drains first.
        """

    def publish(self, topic: str, partition: int, records: Records) -> AppendResult:
        """Return once every record is durable under the topic's policy; raise if any is not, or may not be.

        Offsets rise in the order of `records`. Where other processes publish too, theirs may lie between.
        InvalidRecordsError and RecordTooLargeError: nothing was written. After any other error some may have been.
        """

    def submit(self, topic: str, partition: int, records: Records) -> "Future[AppendResult]":
        """Do the same without waiting: a wrong batch raises at once, the rest is told by the future.

        Batches to one partition are written in the order of the calls.
        """

    def fetcher(self, topic: str, partition: int) -> Fetcher:
        """Return a new reader of the partition; raise UnknownPartitionError if there is none of that number."""

    def start_offsets(self, topic: str) -> dict[int, int]:
        """Return for each partition the lowest offset that can be read."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return for each partition the offset that the next durable record will have at least."""

    def offsets_at(self, topic: str, when: datetime) -> dict[int, int]:
        """Return for each partition the offset of the first record at or after `when`; the end if there is none."""

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """Return where `group` reads next in each partition that it has committed; nothing if it is unknown."""

    def commit(self, topic: str, group: str, next_offsets: Mapping[int, int]) -> None:
        """Remember where `group` reads next; an offset lower than the stored one is ignored.

        Raise UnknownPartitionError or InvalidValueError for what cannot be an offset, and then remember nothing.
        """

    def groups(self, topic: str) -> list[str]:
        """Return the groups that have committed an offset of the topic, sorted."""

    def drop_before(self, topic: str, next_offsets: Mapping[int, int]) -> None:
        """Make everything below these offsets unreadable, at once; beyond the end means all that is there.

        A fetcher may still hand out what it had received before. Needs the capability `drops`; without it raise
        UnsupportedByBrokerError.
        """

    def maintain(self, topic: str) -> None:
        """Apply the topic's retention and compaction where that is the client's work; else do nothing."""

    def close(self) -> None:
        """Finish what was submitted and release everything; closing twice is harmless.

        Publishing afterwards raises PartitionClosedError.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def ingest_group(stream: str) -> str:
    """Return the group under which the ingest of a stream commits; its lag is what the stream's pressure is made of."""
    return f"ingest.{stream}"
