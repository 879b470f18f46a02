"""The plain message bus: topics in this process's memory, one queue for each group.

Nothing is limited and nothing outlives the process; `ScalableMessageBus` adds partitions, limits and durability.
Members of one group compete for its queue.
"""

import heapq
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence

from dw_platform.bus.backpressure import PublishDecision
from dw_platform.bus.contract import DEFAULT_BATCH
from dw_platform.bus.errors import BusClosedError, SubscriptionClosedError
from dw_platform.bus.iteration import deliveries
from dw_platform.bus.message import Delivery, Message
from dw_platform.bus.private import is_private, private_name
from dw_platform.bus.waker import Waker
from dw_platform.log.names import check_name
from dw_platform.scaling import PressureLevel

_ACCEPTED = PublishDecision(accepted=True, level=PressureLevel.NORMAL)


class InMemoryMessageBus:
    """A MessageBus without limits; every call is short, so an event loop may make all of them."""

    may_block = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, dict[str, _GroupQueue]] = {}
        self._private = itertools.count(1)
        self._closed = False

    async def publish(self, topic: str, message: Message) -> PublishDecision:
        return self.publish_sync(topic, [message])

    async def publish_batch(self, topic: str, messages: Sequence[Message]) -> PublishDecision:
        return self.publish_sync(topic, messages)

    def publish_sync(self, topic: str, messages: Sequence[Message]) -> PublishDecision:
        check_name("topic", topic)
        with self._lock:
            if self._closed:
                raise BusClosedError
            queues = tuple(self._topics.setdefault(topic, {}).values())
            for queue in queues:
                queue.extend(messages)
        for queue in queues:
            queue.arrived.notify()
        return _ACCEPTED

    def subscribe(self, topic: str, group: str | None = None) -> "MemorySubscription":
        check_name("topic", topic)
        if group is not None:
            check_name("group", group)
        with self._lock:
            if self._closed:
                raise BusClosedError
            name = group or private_name(next(self._private))
            queue = self._topics.setdefault(topic, {}).setdefault(name, _GroupQueue(topic, self._lock))
        return MemorySubscription(self, queue, topic, name)

    def remove_group(self, topic: str, group: str) -> None:
        with self._lock:
            queue = self._topics.get(topic, {}).pop(group, None)
        if queue:
            queue.end()

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            queues = [queue for groups in self._topics.values() for queue in groups.values()]
            self._topics.clear()
        for queue in queues:
            queue.end()


class _GroupQueue:
    """What one group has not taken yet, under the bus's lock."""

    def __init__(self, topic: str, lock: threading.Lock) -> None:
        self.topic, self.lock = topic, lock
        self.ended = False
        self.arrived = Waker()
        self._waiting: deque[Delivery] = deque()
        self._next_offset = 0

    def extend(self, messages: Sequence[Message]) -> None:
        self._waiting.extend(
            Delivery(self.topic, 1, 0, offset, message) for offset, message in enumerate(messages, self._next_offset)
        )
        self._next_offset += len(messages)

    def take(self, max_messages: int) -> list[Delivery]:
        return [self._waiting.popleft() for _ in range(min(max_messages, len(self._waiting)))]

    def give_back(self, taken: Sequence[Delivery]) -> None:
        # Merged by offset, because another member may have given back later ones before.
        self._waiting = deque(heapq.merge(taken, self._waiting, key=lambda delivery: delivery.offset))

    def end(self) -> None:
        self.ended = True
        self.arrived.notify()


class MemorySubscription:
    """One reader of a group's queue."""

    def __init__(self, bus: InMemoryMessageBus, queue: _GroupQueue, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        self._bus, self._queue = bus, queue
        self._taken: list[Delivery] = []
        self._closed = False

    def take(self, max_messages: int = DEFAULT_BATCH) -> list[Delivery]:
        with self._queue.lock:
            if self._closed or self._queue.ended:
                raise SubscriptionClosedError(self.topic, self.group)
            taken = self._queue.take(max_messages)
            self._taken += taken
        return taken

    async def receive(self, max_messages: int = DEFAULT_BATCH) -> list[Delivery]:
        return await self._queue.arrived.first(lambda: self.take(max_messages))

    def commit_sync(self) -> None:
        with self._queue.lock:
            self._taken.clear()

    async def commit(self) -> None:
        self.commit_sync()

    def close(self) -> None:
        with self._queue.lock:
            if self._closed:
                return
            self._closed = True
            self._queue.give_back(self._taken)
            self._taken = []
        if is_private(self.group):
            self._bus.remove_group(self.topic, self.group)
        self._queue.arrived.notify()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return deliveries(self)
