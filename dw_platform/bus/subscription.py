"""One subscriber of a partitioned topic."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

from dw_platform.bus.contract import DEFAULT_BATCH
from dw_platform.bus.errors import SubscriptionClosedError
from dw_platform.bus.iteration import deliveries
from dw_platform.bus.lane import Lane
from dw_platform.bus.message import Delivery
from dw_platform.bus.topic import Topic
from dw_platform.bus.waker import Waker
from dw_platform.foundation import InvalidValueError


class TopicSubscription:
    """Reads the partitions that its group has assigned to it, in turn.

    `batching` says whether several messages may be taken at once; `consumed` is called with each number of messages
    that were committed.
    """

    def __init__(
        self,
        topic: Topic,
        group: str,
        *,
        limit: int,
        batching: Callable[[], bool],
        consumed: Callable[[int], None],
    ) -> None:
        self.topic, self.group = topic.name, group
        self._topic, self._batching, self._consumed = topic, batching, consumed
        self._lock = threading.RLock()
        self._waker = Waker()
        self._holding: dict[Lane, None] = {}
        self._taken = self._turn = 0
        self._closed = False
        self._group = topic.subscribe(group, self, limit=limit)

    def take(self, max_messages: int = DEFAULT_BATCH) -> list[Delivery]:
        if max_messages < 1:
            raise InvalidValueError("max_messages", max_messages, "at least 1")
        taken: list[Delivery] = []
        with self._lock:
            if self._closed:
                raise SubscriptionClosedError(self.topic, self.group)
            room = max_messages if self._batching() else 1
            for lane in self._in_turn(self._topic.lanes_of(self._group, self)):
                if got := lane.take(self, room - len(taken)):
                    self._holding[lane] = None
                    taken += got
                if len(taken) >= room:
                    break
            self._taken += len(taken)
        return taken

    def _in_turn(self, lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
        """Begin with another lane each time, so that a busy partition does not starve the rest."""
        if not lanes:
            return ()
        self._turn = (self._turn + 1) % len(lanes)
        return lanes[self._turn :] + lanes[: self._turn]

    async def receive(self, max_messages: int = DEFAULT_BATCH) -> list[Delivery]:
        return await self._waker.first(lambda: self.take(max_messages))

    def commit_sync(self) -> None:
        with self._lock:
            if self._closed:
                raise SubscriptionClosedError(self.topic, self.group)
            for lane in self._holding:
                lane.commit(self)
            count, self._taken = self._taken, 0
            self._holding.clear()
        if count:
            self._topic.committed(self._group, self)
            self._consumed(count)

    async def commit(self) -> None:
        if self._topic.durable:
            await asyncio.to_thread(self.commit_sync)
        else:
            self.commit_sync()

    def assigned(self) -> list[int]:
        """Return the partitions that it reads now."""
        return self._topic.groups().get(self.group, {}).get(self, [])

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for lane in self._holding:
                lane.release(self)
            self._holding.clear()
        self._topic.unsubscribe(self._group, self)
        self._waker.notify()

    def notify(self) -> None:
        """Look again: messages or lanes may have come."""
        self._waker.notify()

    def end(self) -> None:
        """Close: the group is gone."""
        self._closed = True
        self._waker.notify()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return deliveries(self)
