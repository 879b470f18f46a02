"""A small StreamPublisher on the embedded broker, for tests of the gateway alone."""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dw_platform.foundation import fnv1a_64
from dw_platform.log import Log, LogBatch, Records, UnknownTopicError
from dw_platform.scaling import PressureLevel
from dw_platform.store import MemoryStore
from dw_platform.streaming import SequenceGapError, TopicInfo, TopicSettings
from dw_platform.streaming.brokers.embedded import EmbeddedBroker
from dw_platform.streaming.publishing import PartitionReceipt, ProducerStamp, PublishReceipt


class LogPublisher:
    """Publishes to the log at once; `level` and `error` say what the next publishers meet."""

    def __init__(self, directory: Path, topics: Sequence[str] = ("orders",), partitions: int = 2) -> None:
        self.directory = directory
        self.broker = EmbeddedBroker(Log(directory), MemoryStore())
        for topic in topics:
            self.broker.ensure_topic(topic, TopicSettings(partitions=partitions))
        self.level = PressureLevel.NORMAL
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None
        """Set: publishers wait for it, and `entered` tells that one does."""
        self.entered = asyncio.Event()
        self._turns = itertools.count()
        self._stamps: dict[tuple[str, str], tuple[int, PublishReceipt]] = {}

    def topics(self) -> list[str]:
        return self.broker.topics()

    def topic(self, topic: str) -> TopicInfo:
        return self.broker.topic(topic)

    async def publish(
        self, topic: str, records: Records, *, stamp: ProducerStamp | None = None, timeout_s: float | None = None
    ) -> PublishReceipt:
        if self.hold is not None:
            self.entered.set()
            await self.hold.wait()
        return await asyncio.to_thread(self.publish_sync, topic, records, stamp=stamp, timeout_s=timeout_s)

    def publish_sync(
        self, topic: str, records: Records, *, stamp: ProducerStamp | None = None, timeout_s: float | None = None
    ) -> PublishReceipt:
        del timeout_s
        if topic not in self.topics():
            raise UnknownTopicError(topic)
        if self.error is not None:
            raise self.error
        number, before = self._stamps.get((topic, stamp.producer), (-1, None)) if stamp else (-1, None)
        if stamp is not None and before is not None and stamp.sequence == number:
            return PublishReceipt(topic, before.records, before.parts, self.level, duplicate=True)
        if stamp is not None and stamp.sequence != number + 1:
            raise SequenceGapError(topic, stamp.producer, number + 1, stamp.sequence)
        receipt = PublishReceipt(topic, len(records), self._write(topic, records), self.level, self._headers())
        if stamp is not None:
            self._stamps[topic, stamp.producer] = (stamp.sequence, receipt)
        return receipt

    def _headers(self) -> dict[str, str]:
        return {} if self.level is PressureLevel.NORMAL else {"X-Backpressure": self.level.label}

    def _write(self, topic: str, records: Records) -> tuple[PartitionReceipt, ...]:
        partitions, turn = self.topic(topic).partitions, next(self._turns)
        keys = _listed(records.keys) or [None] * len(records)
        chosen = [turn % partitions if key is None else fnv1a_64(key) % partitions for key in keys]
        receipts = []
        for partition in sorted(set(chosen)):
            picked = [index for index, each in enumerate(chosen) if each == partition]
            part = Records(
                _pick(records.values, picked),
                keys=_pick(records.keys, picked),
                headers=_pick(records.headers, picked),
                timestamps_ms=_pick(records.timestamps_ms, picked),
            )
            result = self.broker.publish(topic, partition, part)
            receipts.append(PartitionReceipt(partition, result.base_offset, result.next_offset))
        return tuple(receipts)

    def read(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None
    ) -> LogBatch:
        fetcher = self.broker.fetcher(topic, partition)
        try:
            return fetcher.fetch(offset, max_bytes=max_bytes, max_records=max_records)
        finally:
            fetcher.close()

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        starts, ends = self.broker.start_offsets(topic), self.broker.end_offsets(topic)
        return {partition: (starts[partition], ends[partition]) for partition in ends}

    def close(self) -> None:
        self.broker.close()


def _listed(column: object) -> list[bytes | None]:
    return column.to_pylist() if isinstance(column, pa.Array) else list(column or ())  # type: ignore[call-overload]


def _pick(column: object, picked: list[int]) -> object:
    if column is None:
        return None
    if isinstance(column, pa.Array):
        return column.take(pa.array(picked))
    return [column[index] for index in picked]  # type: ignore[index]
