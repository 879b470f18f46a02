"""A broker in memory that fulfils the contract, and fails when it is told to.

`fail` makes the next publishes fail, before or after their records were written, or in the middle; `hold` keeps
acknowledgements back until `release`; `down` is a broker that does not answer.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from dw_platform.foundation import InvalidValueError
from dw_platform.log import (
    SCHEMA,
    AppendResult,
    LogBatch,
    LogPolicy,
    OffsetOutOfRangeError,
    PartitionClosedError,
    Records,
    RecordsExpiredError,
    UnknownPartitionError,
    UnknownTopicError,
    check_name,
)
from dw_platform.log.columns import Columns
from dw_platform.log.contract import HEADERS
from dw_platform.streaming import BrokerUnavailableError, Capabilities, TopicInfo, TopicSettings


@dataclass(eq=False)
class _Partition:
    batches: list[Any] = field(default_factory=list)
    start: int = 0
    end: int = 0


@dataclass(eq=False)
class _Topic:
    policy: LogPolicy
    partitions: list[_Partition]
    version: int = 1
    groups: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """What happens to one publish to a partition: `error` after the first `written` records."""

    error: Exception
    partition: int | None = None
    written: int = 0


class MemoryBroker:
    kind = "memory"

    def __init__(self, capabilities: Capabilities | None = None) -> None:
        self.capabilities = capabilities or Capabilities(drops=True)
        self.down = False
        self.appended = 0
        """Batches that were written, wholly or in part."""
        self._topics: dict[str, _Topic] = {}
        self._changed = threading.Condition()
        self._failures: deque[Failure] = deque()
        self._held: list[Callable[[], None]] | None = None
        self._closed = False

    # What tests say.

    def fail(self, error: Exception, *, partition: int | None = None, written: int = 0) -> None:
        """Let the next publish (to `partition`) fail after its first `written` records."""
        with self._changed:
            self._failures.append(Failure(error, partition, written))

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep acknowledgements of `submit` back while the block runs."""
        with self._changed:
            self._held = []
        try:
            yield
        finally:
            with self._changed:
                held, self._held = self._held or [], None
            for answer in held:
                answer()

    def held(self) -> int:
        """Return how many acknowledgements are kept back."""
        with self._changed:
            return len(self._held or ())

    def values(self, topic: str) -> dict[int, list[Any]]:
        """Return everything that is there, by partition."""
        with self._changed:
            partitions = list(enumerate(self._topic(topic).partitions))
            return {
                number: [value for batch in partition.batches for value in batch["value"].to_pylist()]
                for number, partition in partitions
            }

    # The contract.

    def topics(self) -> list[str]:
        with self._changed:
            self._check()
            return sorted(self._topics)

    def topic(self, topic: str) -> TopicInfo:
        with self._changed:
            found = self._topic(topic)
            return TopicInfo(topic, len(found.partitions), found.version)

    def ensure_topic(self, topic: str, settings: TopicSettings) -> TopicInfo:
        check_name("topic", topic)
        if settings.partitions < 1:
            raise InvalidValueError("partitions", settings.partitions, "at least 1")
        with self._changed:
            self._check()
            partitions = [_Partition() for _ in range(settings.partitions)]
            self._topics.setdefault(topic, _Topic(settings.policy, partitions))
            return self.topic(topic)

    def grow(self, topic: str, partitions: int) -> TopicInfo:
        with self._changed:
            found = self._topic(topic)
            if partitions < len(found.partitions):
                raise InvalidValueError("partitions", partitions, f"at least {len(found.partitions)}")
            if partitions > len(found.partitions):
                found.partitions += [_Partition() for _ in range(partitions - len(found.partitions))]
                found.version += 1
            return self.topic(topic)

    def publish(self, topic: str, partition: int, records: Records) -> AppendResult:
        with self._changed:
            return self._append(topic, partition, records)

    def submit(self, topic: str, partition: int, records: Records) -> "Future[AppendResult]":
        future: Future[AppendResult] = Future()
        with self._changed:
            self._checked(topic, partition, records)
            try:
                result = self._append(topic, partition, records)
            except Exception as error:  # noqa: BLE001  the future carries it
                answer = _answer(future, error)
            else:
                answer = _answer(future, result)
            if self._held is not None:
                self._held.append(answer)
                return future
        answer()
        return future

    def _append(self, topic: str, partition: int, records: Records) -> AppendResult:
        columns, place = self._checked(topic, partition, records)
        failure = next((one for one in self._failures if one.partition in {None, partition}), None)
        if failure is not None:
            self._failures.remove(failure)
        count = len(columns) if failure is None else min(failure.written, len(columns))
        base = place.end
        if count:
            place.batches.append(_batch(columns, base).slice(0, count))
            place.end += count
            self.appended += 1
            self._changed.notify_all()
        if failure is not None:
            raise failure.error
        return AppendResult(base, place.end)

    def _checked(self, topic: str, partition: int, records: Records) -> tuple[Columns, _Partition]:
        if self._closed:
            raise PartitionClosedError(f"{topic}/{partition}")
        place = self._partition(topic, partition)
        columns = Columns.of(records)
        columns.check_sizes(self._topics[topic].policy.max_record_bytes)
        return columns, place

    def fetcher(self, topic: str, partition: int) -> "MemoryFetcher":
        with self._changed:
            return MemoryFetcher(self, f"{topic}/{partition}", self._partition(topic, partition))

    def start_offsets(self, topic: str) -> dict[int, int]:
        with self._changed:
            return {number: partition.start for number, partition in enumerate(self._topic(topic).partitions)}

    def end_offsets(self, topic: str) -> dict[int, int]:
        with self._changed:
            return {number: partition.end for number, partition in enumerate(self._topic(topic).partitions)}

    def offsets_at(self, topic: str, when: datetime) -> dict[int, int]:
        with self._changed:
            return {
                number: _first_at(partition, when) for number, partition in enumerate(self._topic(topic).partitions)
            }

    def committed(self, topic: str, group: str) -> dict[int, int]:
        with self._changed:
            return dict(self._topic(topic).groups.get(check_name("group", group), {}))

    def commit(self, topic: str, group: str, next_offsets: Mapping[int, int]) -> None:
        with self._changed:
            found = self._topic(topic)
            for partition, offset in next_offsets.items():
                self._partition(topic, partition)
                if offset < 0:
                    raise InvalidValueError(f"offset of partition {partition}", offset, "not negative")
            stored = found.groups.setdefault(check_name("group", group), {})
            for partition, offset in next_offsets.items():
                stored[partition] = max(offset, stored.get(partition, 0))

    def groups(self, topic: str) -> list[str]:
        with self._changed:
            return sorted(self._topic(topic).groups)

    def drop_before(self, topic: str, next_offsets: Mapping[int, int]) -> None:
        with self._changed:
            for number, offset in next_offsets.items():
                partition = self._partition(topic, number)
                partition.start = max(partition.start, min(offset, partition.end))
                kept = [batch for batch in partition.batches if batch["offset"][-1].as_py() >= partition.start]
                partition.batches = [
                    batch.slice(max(partition.start - batch["offset"][0].as_py(), 0)) for batch in kept
                ]

    def maintain(self, topic: str) -> None:
        """Keep everything."""
        self.topic(topic)

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self.down:
            raise BrokerUnavailableError(self.kind, "memory", "a test said so")

    def _topic(self, topic: str) -> _Topic:
        self._check()
        found = self._topics.get(check_name("topic", topic))
        if found is None:
            raise UnknownTopicError(topic)
        return found

    def _partition(self, topic: str, partition: int) -> _Partition:
        partitions = self._topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise UnknownPartitionError(topic, partition, len(partitions))
        return partitions[partition]


class MemoryFetcher:
    def __init__(self, broker: MemoryBroker, name: str, partition: _Partition) -> None:
        self._broker, self._name, self._partition, self._closed = broker, name, partition, False

    def fetch(
        self, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None, wait_s: float = 0.0
    ) -> LogBatch:
        limit = max_records if max_records is not None else 1 << 62
        if max_bytes < 1 or limit < 1:
            raise InvalidValueError("limit", min(max_bytes, limit), "at least 1")
        deadline = time.monotonic() + wait_s
        with self._broker._changed:
            while True:
                self._broker._check()
                self._check(offset)
                left = deadline - time.monotonic()
                if offset < self._partition.end or left <= 0 or self._closed:
                    return self._read(offset, max_bytes, limit)
                self._broker._changed.wait(left)

    def _check(self, offset: int) -> None:
        if not 0 <= offset <= self._partition.end:
            raise OffsetOutOfRangeError(self._name, offset, self._partition.end)
        if offset < self._partition.start:
            raise RecordsExpiredError(self._name, offset, self._partition.start)

    def _read(self, offset: int, max_bytes: int, limit: int) -> LogBatch:
        found, size = [], 0
        for batch in self._partition.batches:
            first, last = batch["offset"][0].as_py(), batch["offset"][-1].as_py()
            if last < offset:
                continue
            part = batch.slice(max(offset - first, 0), limit)
            found.append(part)
            size += part.nbytes
            limit -= part.num_rows
            offset = part["offset"][-1].as_py() + 1
            if limit <= 0 or size >= max_bytes:
                break
        return LogBatch(tuple(found), offset)

    def close(self) -> None:
        with self._broker._changed:
            self._closed = True
            self._broker._changed.notify_all()


def _batch(columns: Columns, base: int) -> Any:
    count = len(columns)
    now = int(datetime.now(UTC).timestamp() * 1000)
    times = columns.times if columns.times is not None else pa.array(np.full(count, now))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(base, base + count)),
            times.cast(SCHEMA.field("timestamp").type),
            columns.keys if columns.keys is not None else pa.nulls(count, pa.binary()),
            columns.values,
            columns.headers if columns.headers is not None else pa.nulls(count, HEADERS),
        ],
        schema=SCHEMA,
    )


def _first_at(partition: _Partition, when: datetime) -> int:
    rows = (row for batch in partition.batches for row in batch.select(["offset", "timestamp"]).to_pylist())
    return next((row["offset"] for row in rows if row["timestamp"] >= when), partition.end)


def _answer(future: "Future[AppendResult]", outcome: AppendResult | Exception) -> Callable[[], None]:
    if isinstance(outcome, Exception):
        return lambda: future.set_exception(outcome)
    return lambda: future.set_result(outcome)
