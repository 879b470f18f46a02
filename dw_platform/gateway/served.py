"""The topics behind the gateway: those of streams and those of the bus, found by name."""

from typing import Protocol

from dw_platform.gateway.bus_topics import BusPublisher
from dw_platform.gateway.threads import Threads
from dw_platform.log import LogBatch, Records, UnknownTopicError
from dw_platform.streaming import TopicInfo
from dw_platform.streaming.publishing import ProducerStamp, PublishReceipt, StreamPublisher


class Target(Protocol):
    """What a topic is published to and read from; StreamPublisher and BusPublisher fulfil it."""

    def topic(self, topic: str) -> TopicInfo: ...

    async def publish(
        self, topic: str, records: Records, *, stamp: ProducerStamp | None = None, timeout_s: float | None = None
    ) -> PublishReceipt: ...

    def read(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None
    ) -> LogBatch: ...

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]: ...


class ServedTopics:
    """Looks up topics; a name that was seen once is not asked for again, because publishing says if it is gone."""

    def __init__(self, streams: StreamPublisher, bus: BusPublisher | None, threads: Threads) -> None:
        self.streams, self.bus, self._threads = streams, bus, threads
        self._bus_topics = frozenset(bus.topics() if bus else ())
        self._known: frozenset[str] = frozenset()

    async def find(self, topic: str) -> Target:
        """Return who serves the topic; raise UnknownTopicError if nobody does."""
        if topic in self._bus_topics and self.bus is not None:
            return self.bus
        if topic not in self._known:
            self._known = frozenset(await self._threads.run(self.streams.topics))
            if topic not in self._known:
                raise UnknownTopicError(topic)
        return self.streams

    def find_bus(self, topic: str) -> BusPublisher:
        """Return the bus if it serves the topic; raise UnknownTopicError if not."""
        if self.bus is None or topic not in self._bus_topics:
            raise UnknownTopicError(topic)
        return self.bus

    def all(self) -> list[tuple[str, str, Target]]:
        """Return name, kind and server of every topic, sorted; asks the brokers, so not for the event loop."""
        found: list[tuple[str, str, Target]] = [(name, "stream", self.streams) for name in self.streams.topics()]
        if self.bus is not None:
            found += [(name, "bus", self.bus) for name in self._bus_topics]
        return sorted(found, key=lambda entry: entry[0])
