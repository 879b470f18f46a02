"""Kafka 2.3 or newer as a broker, and what speaks its protocol.

Durability: `acks=all` with an idempotent producer, so an acknowledged record is on every in-sync replica; how many
those are, and whether they fsync, is the cluster's `min.insync.replicas` and flush settings. Retries neither repeat
nor reorder records. Every record's delivery report is looked at before a batch is acknowledged.

Groups are Kafka's own, so other tools show their lag. Offsets only rise as far as this process can see: two processes
that commit for one group at the same moment may leave the lower one, which costs nothing but lag shown for a while,
because the position that counts is in the table.

Nothing is connected before the first call. A forked process makes its own clients; fetching uses none of the library's.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock, InvalidValueError, SystemClock
from dw_platform.log import AppendResult, PartitionClosedError, Records, UnknownPartitionError, check_name
from dw_platform.log.columns import Columns
from dw_platform.store import PersistentStore
from dw_platform.streaming.brokers.kafka_admin import KafkaAdmin
from dw_platform.streaming.brokers.kafka_config import LARGEST_BATCH, check_options, topic_settings
from dw_platform.streaming.brokers.kafka_fetch import KafkaFetcher
from dw_platform.streaming.brokers.kafka_producer import KafkaProducer
from dw_platform.streaming.brokers.kafka_topic import TopicFacts, check_records
from dw_platform.streaming.contract import Capabilities, Fetcher, TopicInfo, TopicSettings
from dw_platform.streaming.settings import BrokerSettings


def open_from(settings: BrokerSettings, _store: PersistentStore | None) -> "KafkaBroker":
    """Return the broker; Kafka keeps the groups' offsets itself."""
    return KafkaBroker(settings)


class KafkaBroker:
    """A Broker on a Kafka cluster; see contract.py for what the methods promise."""

    kind = "kafka"
    capabilities = Capabilities(drops=True)

    def __init__(self, settings: BrokerSettings, *, clock: Clock | None = None) -> None:
        check_options(settings)
        self._settings, self._clock = settings, clock or SystemClock()
        self._admin = KafkaAdmin(settings, self._clock)
        self._lock, self._committing = threading.Lock(), threading.Lock()
        self._producers: dict[int, KafkaProducer] = {}
        self._facts: dict[str, TopicFacts] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self) -> list[str]:
        return self._admin.names()

    def topic(self, topic: str) -> TopicInfo:
        return _info(topic, self._admin.partitions(topic))

    def ensure_topic(self, topic: str, settings: TopicSettings) -> TopicInfo:
        check_name("topic", topic)
        return _info(topic, self._admin.create(topic, settings.partitions, topic_settings(settings.policy)))

    def grow(self, topic: str, partitions: int) -> TopicInfo:
        current = self._admin.partitions(topic)
        if partitions < current:
            raise InvalidValueError("partitions", partitions, f"at least {current}, because a topic does not shrink")
        return _info(topic, current if partitions == current else self._admin.grow(topic, partitions))

    def publish(self, topic: str, partition: int, records: Records) -> AppendResult:
        return self.submit(topic, partition, records).result()

    def submit(self, topic: str, partition: int, records: Records) -> "Future[AppendResult]":
        columns = Columns.of(records)
        facts = self._known(topic, partition)
        check_records(columns, facts, self._clock.now())
        return self._producer(topic, facts.largest_batch).submit(topic, partition, columns)

    def fetcher(self, topic: str, partition: int) -> Fetcher:
        return KafkaFetcher(self._settings, topic, partition, self._clock)

    def start_offsets(self, topic: str) -> dict[int, int]:
        return self._admin.starts(topic)

    def end_offsets(self, topic: str) -> dict[int, int]:
        return self._admin.ends(topic)

    def offsets_at(self, topic: str, when: datetime) -> dict[int, int]:
        return self._admin.at(topic, when)

    def committed(self, topic: str, group: str) -> dict[int, int]:
        check_name("group", group)
        self._admin.partitions(topic)
        return self._admin.committed(group, topic)

    def commit(self, topic: str, group: str, next_offsets: Mapping[int, int]) -> None:
        check_name("group", group)
        self._check_partitions(topic, next_offsets)
        for partition, offset in next_offsets.items():
            if offset < 0:
                raise InvalidValueError(f"offset of partition {partition}", offset, "not negative")
        with self._committing:
            stored = self._admin.committed(group, topic)
            higher = {number: offset for number, offset in next_offsets.items() if offset > stored.get(number, -1)}
            if higher:
                self._admin.commit(group, topic, higher)

    def groups(self, topic: str) -> list[str]:
        self._admin.partitions(topic)
        return [group for group in self._admin.groups() if self._admin.committed(group, topic)]

    def drop_before(self, topic: str, next_offsets: Mapping[int, int]) -> None:
        self._check_partitions(topic, next_offsets)
        starts, ends = self._admin.starts(topic), self._admin.ends(topic)
        wanted = {number: min(offset, ends[number]) for number, offset in next_offsets.items()}
        higher = {number: offset for number, offset in wanted.items() if offset > starts[number]}
        if higher:
            self._admin.delete_before(topic, higher)

    def maintain(self, topic: str) -> None:
        """Do nothing: the servers apply retention and compaction."""
        self._admin.partitions(topic)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            producers, self._producers = list(self._producers.values()), {}
        for producer in producers:
            producer.close()
        self._admin.close()

    def _check_partitions(self, topic: str, numbers: Mapping[int, int]) -> None:
        partitions = self._admin.partitions(topic)
        for number in numbers:
            if not 0 <= number < partitions:
                raise UnknownPartitionError(topic, number, partitions)

    def _known(self, topic: str, partition: int) -> TopicFacts:
        """Return what publishing needs to know of the topic, asked once, and again for a partition that is new."""
        facts = self._facts.get(topic)
        if facts is None or not 0 <= partition < facts.partitions:
            facts = self._facts[topic] = TopicFacts.of(self._admin.partitions(topic), self._admin.config(topic))
        if not 0 <= partition < facts.partitions:
            raise UnknownPartitionError(topic, partition, facts.partitions)
        return facts

    def _producer(self, topic: str, largest_batch: int) -> KafkaProducer:
        size = min(largest_batch, LARGEST_BATCH)
        with self._lock:
            if self._closed:
                raise PartitionClosedError(topic)
            producer = self._producers.get(size)
            if producer is not None and not producer.usable:
                producer.retire()
                producer = None
            if producer is None:
                producer = self._producers[size] = KafkaProducer(self._settings, size)
            return producer


def _info(topic: str, partitions: int) -> TopicInfo:
    return TopicInfo(topic, partitions, partitions)
