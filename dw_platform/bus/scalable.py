"""The message bus with partitions, limits, rings, durable topics and backpressure, on top of any plain one.

Order: messages of one key, and messages of one partition, reach each group in the order in which they were
published, through rebalancing, repartitioning, full rings and every change of limits.

Loss: none that was accepted. A message to a topic in memory that no group reads is counted as dropped. Messages
in memory end with the process; those of durable topics are acknowledged when they are on disk, and a restart
replays what a group has not committed.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from dw_platform.bus.backpressure import MessageBusBackpressure, PublishDecision
from dw_platform.bus.catalogue import TopicCatalogue
from dw_platform.bus.contract import MessageBus
from dw_platform.bus.durable import LogStorage
from dw_platform.bus.errors import BusClosedError, PublishRejectedError
from dw_platform.bus.limits import BusLimits, TopicOptions
from dw_platform.bus.memory import InMemoryMessageBus
from dw_platform.bus.message import Message, is_hot
from dw_platform.bus.private import private_name
from dw_platform.bus.stats import BusStats, Traffic, flat_metrics
from dw_platform.bus.subscription import TopicSubscription
from dw_platform.bus.topic import Topic
from dw_platform.bus.validation import check_messages
from dw_platform.foundation import Clock, SystemClock
from dw_platform.log.names import check_name
from dw_platform.scaling import GaugeReading, PressureChanged


class ScalableMessageBus:
    """A MessageBus and a ScalableSubsystem; `inner` holds what waits in memory."""

    may_block = True

    def __init__(
        self,
        inner: MessageBus | None = None,
        limits: BusLimits | None = None,
        *,
        topics: Mapping[str, TopicOptions] | None = None,
        storage: LogStorage | None = None,
        clock: Clock | None = None,
        name: str = "bus",
    ) -> None:
        self.name = name
        self._inner, self._clock = inner or InMemoryMessageBus(), clock or SystemClock()
        limits = limits or BusLimits()
        self._topics = TopicCatalogue(self._inner, limits, topics or {}, storage)
        self._backpressure = MessageBusBackpressure(self._depth, limits, clock=self._clock, name=name)
        self._traffic = Traffic(clock=self._clock)
        self._private = itertools.count(1)
        self._closing = threading.Event()
        self._reconfiguring = threading.Lock()

    def declare(self, topic: str, options: TopicOptions) -> None:
        """Give a topic its options before it is first used."""
        self._topics.declare(topic, options)

    async def publish(self, topic: str, message: Message) -> PublishDecision:
        return await self.publish_batch(topic, [message])

    async def publish_batch(self, topic: str, messages: Sequence[Message]) -> PublishDecision:
        started = time.perf_counter()
        if self._topics.options(topic).durable and not self._topics.opened(topic):
            await asyncio.to_thread(self._topics.get, topic)  # recovery reads files
        target, decision = self._admit(topic, messages)
        if decision.delay:
            await asyncio.sleep(decision.delay.total_seconds())
        if self._inner.may_block and not target.durable:
            futures = await asyncio.to_thread(self._put, target, messages, decision)
        else:
            futures = self._put(target, messages, decision)
        for future in futures:
            # Shielded: who stops waiting must not withdraw what is being written together with others.
            await asyncio.shield(asyncio.wrap_future(future))
        self._traffic.published(len(messages), time.perf_counter() - started, decision)
        return decision

    def publish_sync(self, topic: str, messages: Sequence[Message]) -> PublishDecision:
        started = time.perf_counter()
        target, decision = self._admit(topic, messages)
        if decision.delay and self._clock.wait(self._closing, decision.delay.total_seconds()):
            raise BusClosedError
        for future in self._put(target, messages, decision):
            future.result()
        self._traffic.published(len(messages), time.perf_counter() - started, decision)
        return decision

    def _admit(self, topic: str, messages: Sequence[Message]) -> tuple[Topic, PublishDecision]:
        """Refuse what cannot or may not be published now; nothing has changed then."""
        if self._closing.is_set():
            raise BusClosedError
        check_name("topic", topic)
        options = self._topics.options(topic)
        check_messages(topic, messages, options, self._topics.limits)
        target = self._topics.get(topic)
        decision = self._backpressure.decide(critical=options.critical, messages=len(messages))
        if not decision.accepted:
            self._traffic.rejected(len(messages))
            retry_after = decision.retry_after or timedelta(0)
            raise PublishRejectedError(topic, self._backpressure.reading().occupancy, retry_after.total_seconds())
        if not options.hot and not options.durable and any(map(is_hot, {type(message.value) for message in messages})):
            self._topics.change(topic, hot=True)
        return target, decision

    def _put(self, topic: Topic, messages: Sequence[Message], decision: PublishDecision) -> "list[Future[Any]]":
        if decision.headers:
            messages = [message.with_headers(decision.headers) for message in messages]
        return topic.put(messages)

    def subscribe(self, topic: str, group: str | None = None) -> TopicSubscription:
        if group is not None:
            check_name("group", group)
        target = self._topics.get(topic)
        subscription = TopicSubscription(
            target,
            group or private_name(next(self._private)),
            limit=self._topics.limits.max_subscribers_per_topic,
            batching=self._backpressure.batching,
            consumed=self._consumed,
        )
        self._topics.fit(target)
        return subscription

    def remove_group(self, topic: str, group: str) -> None:
        if self._topics.opened(topic) or self._topics.options(topic).durable:
            self._topics.get(topic).remove_group(group)

    def repartition(self, topic: str, partitions: int) -> None:
        """Give one topic its own number of partitions, while messages flow."""
        self._topics.change(topic, partitions=partitions)

    def maintain(self) -> None:
        """Let durable topics drop what was read or is too old; call it now and then, it reads and removes files."""
        for topic in self._topics.all():
            topic.maintain()

    async def close(self) -> None:
        await asyncio.to_thread(self.close_sync)
        await self._inner.close()

    def close_sync(self) -> None:
        """Do the same for callers without an event loop; the bus underneath is left to its owner."""
        self._closing.set()
        self._topics.close()

    def current_limits(self) -> BusLimits:
        """Return the limits that it works with now."""
        return self._topics.limits

    def reconfigure_limits(self, limits: BusLimits) -> None:
        """Work with `limits` from now on; no message is lost, and none overtakes another of its key."""
        with self._reconfiguring:
            self._topics.reconfigure(limits)
            self._backpressure.reconfigure(limits)

    def scaling_metrics(self) -> Mapping[str, float]:
        """Return totals, rates, latencies, and the depths of the fullest partitions."""
        return flat_metrics(self.stats())

    def stats(self) -> BusStats:
        """Return a snapshot of every topic."""
        return self._traffic.stats(self._topics.all())

    def backpressure_state(self) -> GaugeReading:
        """Return its pressure; an idle bus is looked at now."""
        return self._backpressure.reading()

    def on_pressure_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        """Call `listener` at each change of level; return a function that ends this."""
        return self._backpressure.on_change(listener)

    def _depth(self) -> int:
        return sum(topic.depth() for topic in self._topics.all())

    def _consumed(self, messages: int) -> None:
        self._traffic.consumed(messages)
        self._backpressure.note()
