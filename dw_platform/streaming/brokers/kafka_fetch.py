"""Fetching from Kafka as Arrow: the Fetch request over a socket, because the client library makes an object a record.

The next request is on its way while the records of the last one are taken apart, once a reader has come back for more.
What a server of another version or a special way of signing in would need goes through the library instead; the records
are the same, but fewer a second.
"""

from collections.abc import Iterator
from typing import Any

from dw_platform.foundation import Clock, InvalidValueError
from dw_platform.log import LogBatch, OffsetOutOfRangeError, RecordsExpiredError
from dw_platform.streaming.brokers import kafka_protocol as protocol
from dw_platform.streaming.brokers.kafka_batches import DamagedError, OldFormatError, parts_in, visible
from dw_platform.streaming.brokers.kafka_columns import to_arrow
from dw_platform.streaming.brokers.kafka_config import client_settings
from dw_platform.streaming.brokers.kafka_connection import Connection, TooOldError
from dw_platform.streaming.brokers.kafka_leader import Leader
from dw_platform.streaming.brokers.kafka_protocol import Fetched
from dw_platform.streaming.brokers.kafka_security import Security
from dw_platform.streaming.contract import Fetcher
from dw_platform.streaming.errors import DamagedRecordsError
from dw_platform.streaming.settings import BrokerSettings

# The longest that a server is asked to wait; readers that wait longer ask again.
_LONGEST_WAIT_S = 5.0
# Kafka counts bytes in 32 bits; nobody wants more at once.
_MOST_BYTES = 1 << 30
_COMMITTED, _UNCOMMITTED = 1, 0


class KafkaFetcher:
    """A Fetcher of one partition: by the wire, or by the client library where that cannot be."""

    def __init__(self, settings: BrokerSettings, topic: str, partition: int, clock: Clock) -> None:
        self._settings, self._topic, self._partition, self._clock = settings, topic, partition, clock
        self._inner = self._first_choice()

    def fetch(
        self, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None, wait_s: float = 0.0
    ) -> LogBatch:
        if max_bytes < 1 or (max_records is not None and max_records < 1):
            raise InvalidValueError("limit", min(max_bytes, max_records or max_bytes), "at least 1")
        try:
            return self._inner.fetch(offset, max_bytes=max_bytes, max_records=max_records, wait_s=wait_s)
        except (OldFormatError, TooOldError):
            self._inner.close()
            self._inner = self._by_library()
        return self._inner.fetch(offset, max_bytes=max_bytes, max_records=max_records, wait_s=wait_s)

    def close(self) -> None:
        self._inner.close()

    def _first_choice(self) -> Fetcher:
        chosen = client_settings(self._settings)
        security = Security.of(chosen)
        if security is None:
            return self._by_library()
        leader = Leader(self._settings, security, self._topic, self._partition, self._clock)
        try:
            leader.call(lambda _: None)
        except TooOldError:
            return self._by_library()
        uncommitted = str(chosen.get("isolation.level", "")).lower() == "read_uncommitted"
        return WireFetcher(leader, self._clock, isolation=_UNCOMMITTED if uncommitted else _COMMITTED)

    def _by_library(self) -> Fetcher:
        from dw_platform.streaming.brokers.kafka_consumer import LibraryFetcher  # noqa: PLC0415 - rarely needed

        return LibraryFetcher(self._settings, self._topic, self._partition, self._clock)


class WireFetcher:
    """A Fetcher that asks the partition's leader itself; it raises OldFormatError and TooOldError, too."""

    def __init__(self, leader: Leader, clock: Clock, *, isolation: int = _COMMITTED) -> None:
        self._leader, self._clock, self._isolation = leader, clock, isolation
        self._name = f"{leader.topic}/{leader.partition}"
        # Where the reader is expected next, what it has not taken yet of the last answer, and where that ends.
        self._expected, self._rest, self._end = -1, iter(list[Any]()), -1
        self._first: Any = None
        # On which connection which offset has been asked for, and not been received.
        self._asked: tuple[Connection, int] | None = None

    def fetch(
        self, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None, wait_s: float = 0.0
    ) -> LogBatch:
        if offset != self._expected or self._first is None:
            deadline = self._clock.monotonic() + wait_s
            left = min(wait_s, _LONGEST_WAIT_S)
            while not self._read(offset, max_bytes, left) and left > 0:
                left = min(max(0.0, deadline - self._clock.monotonic()), _LONGEST_WAIT_S)
        return self._served(max_bytes, max_records if max_records is not None else 1 << 62)

    def close(self) -> None:
        self._leader.close()

    def _served(self, max_bytes: int, max_records: int) -> LogBatch:
        """Return records of the last answer, as many as the limits allow, and keep the others for the next call.

        The server limits the bytes of batches that may be compressed, so here they are counted once more.
        """
        taken, size = list[Any](), 0
        while self._first is not None and max_records > 0 and (not taken or size < max_bytes):
            batch = self._first.slice(0, max_records)
            taken.append(batch)
            max_records -= batch.num_rows
            size += batch["key"].nbytes + batch["value"].nbytes
            rest = self._first.slice(batch.num_rows)
            self._first = rest if rest.num_rows else self._next()
        self._expected = self._end if self._first is None else self._first["offset"][0].as_py()
        return LogBatch(tuple(taken), self._expected)

    def _next(self) -> Any:
        """Return the next records of the last answer; None if that was all."""
        try:
            return next(self._rest, None)
        except DamagedError as error:
            self._expected = -1
            raise DamagedRecordsError(self._name, error.offset, error.reason) from error

    def _read(self, offset: int, max_bytes: int, wait_s: float) -> bool:
        """Receive what one answer holds from `offset` on; return whether it leads any further."""
        # First of all: the next answer comes into the memory that the rest of the last one is in.
        coming_back, self._expected, self._first, self._end = offset == self._expected, -1, None, offset
        if offset < 0:
            raise OffsetOutOfRangeError(self._name, offset, self._bound(protocol.LATEST))
        data, answer = self._leader.call(lambda connection: self._answer(connection, offset, max_bytes, wait_s))
        if answer.error == protocol.OFFSET_OUT_OF_RANGE:
            self._check_bounds(offset)
            return False
        try:
            parts = list(parts_in(data, answer.records_at, answer.records_end))
        except DamagedError as error:
            raise DamagedRecordsError(self._name, error.offset, error.reason) from error
        if not parts:
            return False
        self._end = max(parts[-1].next_offset, offset)
        if coming_back and self._end < answer.end:
            self._leader.attempt(lambda connection: self._ask(connection, self._end, max_bytes, 0.0))
        # Taken apart piece by piece, as the reader asks for it.
        self._rest = _from(to_arrow(data, visible(data, parts, answer.aborted)), offset)
        self._first = self._next()
        return self._end > offset

    def _answer(self, connection: Connection, offset: int, max_bytes: int, wait_s: float) -> tuple[bytearray, Fetched]:
        """Return the answer for `offset`, which may have been asked for before."""
        self._leave_unless(connection, offset)
        if self._asked is None:
            self._ask(connection, offset, max_bytes, wait_s)
        self._asked = None
        answer = connection.receive(wait_s)
        fetched = protocol.read_fetch(answer, self._isolation)
        if fetched.error == protocol.CORRUPT:
            raise DamagedRecordsError(self._name, offset, "the server cannot read them")
        if fetched.error not in {protocol.NO_ERROR, protocol.OFFSET_OUT_OF_RANGE}:
            self._leader.check(fetched.error)
        return answer.data, fetched

    def _ask(self, connection: Connection, offset: int, max_bytes: int, wait_s: float) -> None:
        body = protocol.fetch_body(
            self._leader.topic,
            self._leader.partition,
            offset,
            max_bytes=min(max_bytes, _MOST_BYTES),
            wait_ms=int(wait_s * 1000),
            isolation=self._isolation,
        )
        connection.send(protocol.FETCH, body)
        self._asked = (connection, offset)

    def _leave_unless(self, connection: Connection, offset: int) -> None:
        """Forget what was asked for, unless it is the answer for `offset`."""
        if self._asked is None or self._asked == (connection, offset):
            return
        if self._asked[0] is connection:
            self._asked = None
            connection.receive()
        self._asked = None

    def _check_bounds(self, offset: int) -> None:
        """Raise what is wrong with an offset that the server does not have; it may have become right in between."""
        start, end = self._bound(protocol.EARLIEST), self._bound(protocol.LATEST)
        if offset < start:
            raise RecordsExpiredError(self._name, offset, start)
        if offset > end:
            raise OffsetOutOfRangeError(self._name, offset, end)

    def _bound(self, which: int) -> int:
        # Whatever was asked for is answered first, and nobody waits for it.
        self._leader.call(lambda connection: self._leave_unless(connection, -1))
        return self._leader.bound(which, self._isolation)


def _from(batches: Iterator[Any], offset: int) -> Iterator[Any]:
    """Yield the records from `offset` on: a server sends whole batches, and the first may begin before."""
    for batch in batches:
        if batch["offset"][0].as_py() >= offset:
            yield batch
        elif rest := batch.slice(int(batch["offset"].to_numpy().searchsorted(offset))):
            yield rest
