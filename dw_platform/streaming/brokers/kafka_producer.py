"""Publishing to Kafka: acknowledged by all in-sync replicas, in order, and nothing twice by a retry of the library.

Every record has a report of its own, and a batch is acknowledged once all of its reports have come without an error.
A report that does not come within `delivery.timeout.ms` is an error, so a publisher never waits longer for a server
that is away; its records may then be there or not.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from dw_platform.log import AppendResult, PartitionClosedError
from dw_platform.log.columns import Columns
from dw_platform.streaming.brokers.kafka_config import abandon, number, producer_settings
from dw_platform.streaming.brokers.kafka_errors import error_of, made, translated
from dw_platform.streaming.brokers.kafka_reports import Batch, Chunk
from dw_platform.streaming.brokers.kafka_room import Room
from dw_platform.streaming.settings import BrokerSettings

# What is handed to the library at once, and what room is asked and given back for.
_CHUNK_RECORDS, _CHUNK_BYTES = 5_000, 16 << 20
_POLL_S = 0.1
_LATE = {KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE}  # noqa: SLF001


class KafkaProducer:
    """One producer of the library and the thread that serves its reports; any thread may submit."""

    def __init__(self, settings: BrokerSettings, largest_batch: int) -> None:
        self._settings, self._pid = settings, os.getpid()
        chosen = producer_settings(settings, largest_batch)
        self._patience_s = number(chosen, "delivery.timeout.ms") / 1000
        self._client = made(Producer, chosen)
        self._room, self._fatal = Room(), False
        self._lock = threading.Lock()
        self._orders: dict[tuple[str, int], threading.Lock] = {}
        self._known: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="dw-kafka-reports", daemon=True)
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Return whether it can go on: not after an error that the library calls fatal, nor in a forked process."""
        return not self._fatal and self._pid == os.getpid()

    def submit(self, topic: str, partition: int, columns: Columns) -> "Future[AppendResult]":
        """Hand the batch to the library, waiting for room if need be; the future tells what became of it."""
        future: Future[AppendResult] = Future()
        # The records are on their way: who stops waiting cannot call them back.
        future.set_running_or_notify_cancel()
        batch = Batch(len(columns), lambda done: self._tell(done, topic, future))
        with self._lock:
            order = self._orders.setdefault((topic, partition), threading.Lock())
        with order:
            handed = 0
            try:
                self._learn(topic, partition)
                for start, stop, size in _chunks(columns):
                    self._room.take(topic, stop - start, size)
                    chunk = batch.chunk(stop - start, partial(self._room.release, stop - start, size))
                    handed = stop
                    self._send(topic, partition, chunk, _cut(columns, start, stop))
            except (KafkaException, BufferError, PartitionClosedError) as exception:
                batch.fail(exception, len(columns) - handed)
        return future

    def retire(self) -> None:
        """Give way to another producer; what is still waiting here gets its reports, or is the parent's business."""
        if self._pid != os.getpid():
            abandon(self)
        self._stopping.set()

    def close(self) -> None:
        """Wait for all reports, at most as long as a delivery may take; what has none then has failed."""
        if self._pid != os.getpid():
            abandon(self)
            return
        self._room.close()
        with contextlib.suppress(KafkaException):
            self._client.flush(self._patience_s + _POLL_S)
        with contextlib.suppress(KafkaException):
            # Whatever is left gets its report now: that it was given up.
            self._client.purge()
        self._stopping.set()
        self._thread.join()

    def _learn(self, topic: str, partition: int) -> None:
        """Let the library look at a topic that was smaller before: it refuses partitions that are news to it."""
        if partition >= self._known.get(topic, 0):
            self._known[topic] = len(self._client.list_topics(topic, self._patience_s).topics[topic].partitions)

    def _serve(self) -> None:
        while len(self._client) or not self._stopping.is_set():
            self._client.poll(_POLL_S)

    def _send(self, topic: str, partition: int, chunk: Chunk, columns: Columns) -> None:
        """Hand a chunk over; count what the library refuses and raise its reason."""
        if columns.headers is None and columns.times is None:
            self._send_together(topic, partition, chunk, columns)
        else:
            self._send_each(topic, partition, chunk, columns)

    def _send_together(self, topic: str, partition: int, chunk: Chunk, columns: Columns) -> None:
        values, keys = columns.values.to_pylist(), _listed(columns.keys, len(columns))
        messages: list[dict[str, Any]] = [{"value": value, "key": key} for value, key in zip(values, keys, strict=True)]
        try:
            taken = self._client.produce_batch(topic, messages, partition, on_delivery=chunk.report)
        except (KafkaException, BufferError) as exception:
            chunk.refuse(exception, len(messages))
            raise
        if taken < len(messages):
            refusal = KafkaException(next(message["_error"] for message in messages if "_error" in message))
            chunk.refuse(refusal, len(messages) - taken)
            raise refusal

    def _send_each(self, topic: str, partition: int, chunk: Chunk, columns: Columns) -> None:
        """Do it one by one: the library has no call for many records that have headers or times of their own."""
        count = len(columns)
        values, keys, headers = (
            columns.values.to_pylist(),
            _listed(columns.keys, count),
            _listed(columns.headers, count),
        )
        # To the library 0 means now.
        times = [0] * count if columns.times is None else columns.times.to_pylist()
        for place in range(count):
            try:
                self._client.produce(
                    topic, values[place], keys[place], partition, chunk.report, None, times[place], headers[place]
                )
            except (KafkaException, BufferError) as exception:
                chunk.refuse(exception, count - place)
                raise

    def _tell(self, batch: Batch, topic: str, future: "Future[AppendResult]") -> None:
        if batch.error is None:
            future.set_result(AppendResult(batch.base, batch.last + 1))
        elif isinstance(batch.error, PartitionClosedError):
            future.set_exception(batch.error)
        else:
            error = error_of(batch.error)
            self._fatal = self._fatal or error.fatal()
            hint = f"no acknowledgement within {self._patience_s:g} s" if error.code() in _LATE else ""
            future.set_exception(translated(error, self._settings.address, topic=topic, hint=hint))


def _listed(column: Any, count: int) -> list[Any]:
    return [None] * count if column is None else list(column.to_pylist())


def _chunks(columns: Columns) -> Iterator[tuple[int, int, int]]:
    """Yield start, stop and bytes of pieces that are small enough each."""
    sizes = pc.fill_null(pc.binary_length(columns.values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if columns.keys is not None:
        sizes = sizes + pc.fill_null(pc.binary_length(columns.keys), 0).to_numpy(zero_copy_only=False)
    ends, start = np.cumsum(sizes), 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + _CHUNK_BYTES, "right"))
        stop = min(max(fitting, start + 1), start + _CHUNK_RECORDS, len(ends))
        yield start, stop, int(ends[stop - 1]) - before
        start = stop


def _cut(columns: Columns, start: int, stop: int) -> Columns:
    parts = (columns.values, columns.keys, columns.headers, columns.times)
    values, keys, headers, times = (None if part is None else part.slice(start, stop - start) for part in parts)
    return Columns(values=values, keys=keys, headers=headers, times=times)
