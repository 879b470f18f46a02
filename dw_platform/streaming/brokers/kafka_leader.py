"""The server that leads a partition: found by any server of the cluster, and found again when it moves or is away."""

import struct
import threading
from collections.abc import Callable
from typing import TypeVar

from dw_platform.foundation import Clock
from dw_platform.log import UnknownPartitionError, UnknownTopicError
from dw_platform.streaming.brokers import kafka_protocol as protocol
from dw_platform.streaming.brokers.kafka_config import request_timeout_s
from dw_platform.streaming.brokers.kafka_connection import Connection, addresses
from dw_platform.streaming.brokers.kafka_security import Security, SignInError
from dw_platform.streaming.errors import BrokerAccessError, BrokerUnavailableError
from dw_platform.streaming.settings import BrokerSettings

T = TypeVar("T")
_PAUSE_S = 0.05


class PassingError(Exception):
    """The server answered with an error that another try, or another server, may not have."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the server answers with error {code}")


class Leader:
    """A connection to a partition's leader; one thread at a time uses it."""

    def __init__(self, settings: BrokerSettings, security: Security, topic: str, partition: int, clock: Clock) -> None:
        self._servers, self._security, self._clock = settings.address, security, clock
        self.topic, self.partition = topic, partition
        self._timeout_s, self._never = request_timeout_s(settings), threading.Event()
        self._connection: Connection | None = None
        self._found = False

    def call(self, action: Callable[[Connection], T]) -> T:
        """Return what `action` does with the connection; repeat it on a new one while what goes wrong is passing.

        Raise BrokerUnavailableError once that has lasted for the request timeout.
        """
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connected()
                    self._found = True
                return action(self._connection)
            except SignInError as error:
                self.close()
                raise BrokerAccessError("kafka", self._servers, str(error)) from error
            except UnknownTopicError:
                # A server that has just started may not have heard of it yet.
                self.close()
                if not self._found or self._clock.monotonic() > deadline:
                    raise
            except (OSError, ValueError, struct.error, PassingError) as error:
                self.close()
                if self._clock.monotonic() > deadline:
                    raise BrokerUnavailableError("kafka", self._servers, str(error) or type(error).__name__) from error
            self._clock.wait(self._never, _PAUSE_S)

    def attempt(self, action: Callable[[Connection], None]) -> None:
        """Do what is useful and can be left out: without a connection nothing happens."""
        if self._connection is not None:
            try:
                action(self._connection)
            except OSError:
                self.close()

    def bound(self, which: int, isolation: int) -> int:
        """Return the partition's first offset (EARLIEST) or next one (LATEST)."""
        body = protocol.list_offsets_body(self.topic, self.partition, which, isolation)

        def ask(connection: Connection) -> int:
            error, offset = protocol.read_list_offsets(connection.ask(protocol.LIST_OFFSETS, body))
            if error:
                self.check(error)
            return offset

        return self.call(ask)

    def check(self, error: int) -> None:
        """Raise what an error of a topic or partition means."""
        if error in protocol.REFUSED:
            raise BrokerAccessError("kafka", self._servers, f"this user may not read {self.topic}")
        raise PassingError(error)

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        """Return a connection to the leader, by way of the first server that answers."""
        problem: OSError = OSError("there is no address")
        for address in addresses(self._servers):
            try:
                connection = Connection(address, self._security, self._timeout_s)
            except OSError as error:
                problem = error
                continue
            try:
                leader = self._leader(connection)
            except BaseException:
                connection.close()
                raise
            if leader == connection.address:
                return connection
            connection.close()
            return Connection(leader, self._security, self._timeout_s)
        raise problem

    def _leader(self, connection: Connection) -> tuple[str, int]:
        found = protocol.read_metadata(connection.ask(protocol.METADATA, protocol.metadata_body(self.topic)))
        if found.error in {protocol.UNKNOWN_TOPIC_OR_PARTITION, protocol.INVALID_TOPIC}:
            raise UnknownTopicError(self.topic)
        if found.error:
            self.check(found.error)
        if self.partition not in found.addresses:
            raise UnknownPartitionError(self.topic, self.partition, len(found.addresses))
        leader = found.addresses[self.partition]
        if leader is None:
            raise PassingError(protocol.LEADER_NOT_AVAILABLE)
        return leader
