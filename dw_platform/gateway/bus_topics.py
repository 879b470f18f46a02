"""Topics of the message bus, offered the way streams are.

Only declared topics are offered: callers from outside must not fill the bus with names of their own. The bus gives
out no offsets and knows no producers' stamps, so an answer has no partitions and a stamp is refused.

Messages are read by groups, at most once: what is taken is committed before the answer leaves.
"""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any

from dw_platform.bus import Delivery, Message, ScalableMessageBus, TopicOptions
from dw_platform.gateway.errors import InvalidParameterError
from dw_platform.log import LogBatch, Records, UnknownTopicError
from dw_platform.streaming import TopicInfo
from dw_platform.streaming.publishing import ProducerStamp, PublishReceipt


class BusPublisher:
    """The declared topics of a bus; fulfils the publishing half of StreamPublisher."""

    def __init__(self, bus: ScalableMessageBus, topics: Mapping[str, TopicOptions]) -> None:
        self._bus, self._topics = bus, dict(topics)

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def topic(self, topic: str) -> TopicInfo:
        options = self._options(topic)
        stats = self._bus.stats().topics.get(topic)
        if stats is not None:
            return TopicInfo(topic, stats.partitions, stats.version)
        return TopicInfo(topic, options.partitions or self._bus.current_limits().partitions or 1, 1)

    def _options(self, topic: str) -> TopicOptions:
        try:
            return self._topics[topic]
        except KeyError:
            raise UnknownTopicError(topic) from None

    async def publish(
        self, topic: str, records: Records, *, stamp: ProducerStamp | None = None, timeout_s: float | None = None
    ) -> PublishReceipt:
        """Return once the bus has the records, and a durable topic's log too; raise if it refuses them.

        The longest wait under pressure is the bus's own limit, so `timeout_s` is left to the caller's deadline.
        """
        del timeout_s
        self._options(topic)
        if stamp is not None:
            raise InvalidParameterError("X-Producer-Id", "left out for a topic of the bus, which knows no producers")
        decision = await self._bus.publish_batch(topic, _messages(records))
        return PublishReceipt(topic, len(records), (), decision.level, decision.headers)

    def read(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None
    ) -> LogBatch:
        """Refuse: messages of the bus are taken by groups."""
        del partition, offset, max_bytes, max_records
        raise InvalidParameterError("topic", f"a stream's; {topic} is one of the bus, whose messages groups take")

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return nothing: the bus keeps its places to itself."""
        self._options(topic)
        return {}

    async def take(self, topic: str, group: str, limit: int) -> list[dict[str, Any]]:
        """Return up to `limit` messages that the group has not read, and commit them."""
        self._options(topic)
        return await asyncio.to_thread(self._take, topic, group, limit)

    def _take(self, topic: str, group: str, limit: int) -> list[dict[str, Any]]:
        subscription = self._bus.subscribe(topic, group)
        try:
            taken: list[Delivery] = []
            while len(taken) < limit and (got := subscription.take(limit - len(taken))):
                taken += got
            subscription.commit_sync()
        finally:
            subscription.close()
        return [_shown(delivery) for delivery in taken]


def _messages(records: Records) -> list[Message]:
    values, keys = _listed(records.values), _listed(records.keys)
    headers: Sequence[Any] = records.headers or [None] * len(values)
    return [
        Message(value or b"", key, {name: text.decode(errors="replace") for name, text in (each or {}).items()})
        for value, key, each in zip(values, keys or [None] * len(values), headers, strict=True)
    ]


def _listed(part: Any) -> list[Any]:
    return [] if part is None else part if isinstance(part, list) else part.to_pylist()


def _shown(delivery: Delivery) -> dict[str, Any]:
    message = delivery.message
    key, key_encoding = as_text(message.key)
    value, encoding = as_text(message.value if isinstance(message.value, bytes) else str(message.value).encode())
    return {
        "partition": delivery.partition,
        "offset": delivery.offset,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "encoding": encoding,
        "headers": dict(message.headers),
    }


def as_text(content: bytes | None) -> tuple[str | None, str]:
    """Return bytes as JSON can carry them, and how: `utf-8` as they are, or `base64`."""
    if content is None:
        return None, "utf-8"
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"
