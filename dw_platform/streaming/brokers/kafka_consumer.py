"""Fetching through the client library, for servers and ways of signing in that the wire does not know."""

from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from dw_platform.foundation import Clock
from dw_platform.log import (
    SCHEMA,
    LogBatch,
    OffsetOutOfRangeError,
    RecordsExpiredError,
    UnknownPartitionError,
)
from dw_platform.streaming.brokers.kafka_config import consumer_settings, request_timeout_s
from dw_platform.streaming.brokers.kafka_errors import error_of, made, translated
from dw_platform.streaming.settings import BrokerSettings

_MOST = 10_000
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - the library's name
_GONE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001


class LibraryFetcher:
    """A Fetcher with a consumer of the library, which is assigned the partition and joins no group."""

    def __init__(self, settings: BrokerSettings, topic: str, partition: int, clock: Clock) -> None:
        self._address, self._topic, self._partition, self._clock = settings.address, topic, partition, clock
        self._name, self._timeout_s = f"{topic}/{partition}", request_timeout_s(settings)
        self._consumer = made(Consumer, consumer_settings(settings))
        # Where the reader stands, and what has come for it and was not asked for yet.
        self._closed, self._position, self._waiting = False, -1, list[Message]()
        self._check_partition()

    def fetch(
        self, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None, wait_s: float = 0.0
    ) -> LogBatch:
        try:
            if offset != self._position:
                self._move_to(offset)
            if not self._waiting:
                self._waiting = self._messages(wait_s)
        except KafkaException as exception:
            self._position = -1
            raise translated(error_of(exception), self._address, topic=self._topic) from exception
        return self._served(max_bytes, max_records if max_records is not None else _MOST)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def _check_partition(self) -> None:
        try:
            found = self._consumer.list_topics(self._topic, self._timeout_s).topics[self._topic]
        except KafkaException as exception:
            self.close()
            raise translated(error_of(exception), self._address, topic=self._topic) from exception
        if found.error is not None:
            self.close()
            raise translated(found.error, self._address, topic=self._topic)
        if self._partition not in found.partitions:
            self.close()
            raise UnknownPartitionError(self._topic, self._partition, len(found.partitions))

    def _move_to(self, offset: int) -> None:
        self._position, self._waiting = -1, []
        self._check_bounds(offset)
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])
        self._position = offset

    def _check_bounds(self, offset: int) -> int:
        """Return the partition's end; raise what is wrong with the offset."""
        place = TopicPartition(self._topic, self._partition)
        start, end = self._consumer.get_watermark_offsets(place, self._timeout_s)
        if not 0 <= offset <= end:
            raise OffsetOutOfRangeError(self._name, offset, end)
        if offset < start:
            raise RecordsExpiredError(self._name, offset, start)
        return end

    def _messages(self, wait_s: float) -> list[Message]:
        """Return what comes first and what else is there then; the last one may be the mark of the end."""
        first = self._consumer.poll(0)
        if first is None:
            # What is there is on its way; the end is worth waiting for only as long as the reader wants to.
            there = self._position < self._check_bounds(self._position)
            first = self._consumer.poll(self._timeout_s if there else wait_s)
        if first is None:
            return []
        found = [first, *self._consumer.consume(_MOST, 0)]
        for message in found:
            error = message.error()
            if error is not None and error.code() != _END:
                raise KafkaException(error)
        return found

    def _served(self, max_bytes: int, max_records: int) -> LogBatch:
        """Return what the limits allow and keep the rest; the marks of the end move the reader on, too."""
        count, size, records = 0, 0, list[Message]()
        for message in self._waiting:
            if message.error() is None:
                size += len(message.value() or b"") + len(message.key() or b"")
                if records and (size > max_bytes or len(records) == max_records):
                    break
                records.append(message)
            count += 1
            self._position = max(self._position, _behind(message))
        self._waiting = self._waiting[count:]
        return LogBatch((_to_arrow(records),) if records else (), self._position)


def _behind(message: Message) -> int:
    """Return where to go on: a mark of the end carries that offset itself."""
    offset = message.offset() or 0
    return offset if message.error() is not None else offset + 1


def _to_arrow(messages: list[Message]) -> Any:
    columns = [
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([message.timestamp()[1] for message in messages], pa.int64()).cast(SCHEMA.field("timestamp").type),
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.array([message.headers() for message in messages], SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
