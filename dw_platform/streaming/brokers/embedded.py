"""The platform's own log as a broker: no server, one publishing process, any number of readers.

Durability: as the topic's fsync policy says; an acknowledgement never comes earlier. A partition's writer is opened
with the first publish and kept, so this process is the only one that publishes until `close`. Others get
PartitionLockedError, which names it.

A partition whose disk failed is opened again, which checks it, with the next publish.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock, SystemClock
from dw_platform.log import (
    AppendResult,
    Log,
    LogBatch,
    PartitionClosedError,
    PartitionLog,
    PartitionReader,
    PartitionStoppedError,
    Records,
    SubscriberOffsets,
    TopicDescription,
    TopicExistsError,
    UnknownPartitionError,
)
from dw_platform.store import MemoryStore, PersistentStore
from dw_platform.streaming.contract import Capabilities, TopicInfo, TopicSettings
from dw_platform.streaming.settings import BrokerSettings

# Readers look for new records this often; a look is one read of 64 bytes.
_LOOK_EVERY_S = 0.005


def open_from(settings: BrokerSettings, store: PersistentStore | None) -> "EmbeddedBroker":
    """Return the broker of the log in `settings.directory`."""
    return EmbeddedBroker(Log(settings.directory), store)


class EmbeddedBroker:
    """A Broker on the log; see contract.py for what the methods promise."""

    kind = "embedded"
    capabilities = Capabilities(drops=True, shared_by_processes=False, whole_batches=True)

    def __init__(self, log: Log, store: PersistentStore | None = None, *, clock: Clock | None = None) -> None:
        self._log, self._clock = log, clock or SystemClock()
        self._offsets = SubscriberOffsets(store if store is not None else MemoryStore())
        self._lock = threading.Lock()
        self._writers: dict[tuple[str, int], PartitionLog] = {}
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self) -> list[str]:
        return [topic.name for topic in self._log.topics()]

    def topic(self, topic: str) -> TopicInfo:
        return _info(self._log.describe(topic))

    def ensure_topic(self, topic: str, settings: TopicSettings) -> TopicInfo:
        with contextlib.suppress(TopicExistsError):
            self._log.create_topic(topic, partitions=settings.partitions, policy=settings.policy)
        return self.topic(topic)

    def grow(self, topic: str, partitions: int) -> TopicInfo:
        return _info(self._log.grow(topic, partitions))

    def publish(self, topic: str, partition: int, records: Records) -> AppendResult:
        return self._writer(topic, partition).append(records)

    def submit(self, topic: str, partition: int, records: Records) -> "Future[AppendResult]":
        return self._writer(topic, partition).submit(records)

    def fetcher(self, topic: str, partition: int) -> "EmbeddedFetcher":
        return EmbeddedFetcher(self._log.reader(topic, partition), self._clock)

    def start_offsets(self, topic: str) -> dict[int, int]:
        return {number: reader.start_offset() for number, reader in self._readers(topic)}

    def end_offsets(self, topic: str) -> dict[int, int]:
        return {number: reader.end_offset() for number, reader in self._readers(topic)}

    def offsets_at(self, topic: str, when: datetime) -> dict[int, int]:
        return {number: _first_at(reader, when) for number, reader in self._readers(topic)}

    def committed(self, topic: str, group: str) -> dict[int, int]:
        self._log.describe(topic)
        return self._offsets.committed(topic, group)

    def commit(self, topic: str, group: str, next_offsets: Mapping[int, int]) -> None:
        partitions = self._log.describe(topic).partitions
        for partition in next_offsets:
            if not 0 <= partition < partitions:
                raise UnknownPartitionError(topic, partition, partitions)
        self._offsets.commit(topic, group, next_offsets)

    def groups(self, topic: str) -> list[str]:
        self._log.describe(topic)
        return sorted(self._offsets.groups(topic))

    def drop_before(self, topic: str, next_offsets: Mapping[int, int]) -> None:
        for partition, offset in next_offsets.items():
            self._writer(topic, partition).drop_before(offset)

    def recover(self, topic: str) -> None:
        """Open every partition for writing; what a crash left unacknowledged in the files can be read from then on."""
        for partition in range(self.topic(topic).partitions):
            self._writer(topic, partition)

    def maintain(self, topic: str) -> None:
        for partition in range(self.topic(topic).partitions):
            writer = self._writer(topic, partition)
            writer.retain(self._offsets.lowest(topic, partition))
            writer.compact()

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            writers, self._writers = list(self._writers.values()), {}
        for writer in writers:
            writer.close()

    def _readers(self, topic: str) -> Iterator[tuple[int, PartitionReader]]:
        for partition in range(self._log.describe(topic).partitions):
            with self._log.reader(topic, partition) as reader:
                yield partition, reader

    def _writer(self, topic: str, partition: int) -> PartitionLog:
        key = (topic, partition)
        with self._lock:
            # Under the lock: a writer that were opened after `close` would keep its partition to itself forever.
            if self._closed.is_set():
                raise PartitionClosedError(f"{topic}/{partition}")
            writer = self._writers.get(key)
            if writer is not None and writer.stats().stopped:
                with contextlib.suppress(PartitionStoppedError):
                    writer.close()
                writer = None
            if writer is None:
                writer = self._writers[key] = self._log.writer(topic, partition)
            return writer


class EmbeddedFetcher:
    """A Fetcher that reads the partition's files."""

    def __init__(self, reader: PartitionReader, clock: Clock) -> None:
        self._reader, self._clock = reader, clock
        self._closed = threading.Event()

    def fetch(
        self, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None, wait_s: float = 0.0
    ) -> LogBatch:
        deadline = self._clock.monotonic() + wait_s
        while True:
            batch = self._reader.read(offset, max_bytes=max_bytes, max_records=max_records)
            left = deadline - self._clock.monotonic()
            if batch.next_offset > offset or left <= 0 or self._closed.is_set():
                return batch
            self._clock.wait(self._closed, min(left, _LOOK_EVERY_S))

    def close(self) -> None:
        self._closed.set()
        self._reader.close()


def _info(description: TopicDescription) -> TopicInfo:
    return TopicInfo(description.name, description.partitions, description.version)


def _first_at(reader: PartitionReader, when: datetime) -> int:
    """Return the first offset at or after `when` by halving; times within a partition rise, give or take a clock."""
    low, high = reader.start_offset(), reader.end_offset()
    while low < high:
        middle = (low + high) // 2
        batch = reader.read(middle, max_records=1)
        # An empty batch: nothing but a gap up to there.
        if not len(batch) or batch.batches[0]["timestamp"][0].as_py() >= when:
            high = middle
        else:
            low = max(batch.next_offset, middle + 1)
    return low
