"""What a message bus promises, and what one partition of it needs to keep its messages in."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from dw_platform.bus.backpressure import PublishDecision
from dw_platform.bus.message import Delivery, Message

DEFAULT_BATCH = 256


class Subscription(Protocol):
    """One member of a group that reads one topic; any thread may use it.

    What was taken stays with this member until it commits. Closing gives back what it has not committed, so the
    group's next reader gets it again: at least once, and in order.
    """

    @property
    def topic(self) -> str:
        """The topic it reads."""

    @property
    def group(self) -> str:
        """The group it belongs to."""

    async def receive(self, max_messages: int = DEFAULT_BATCH) -> list[Delivery]:
        """Wait for messages and return at least one; raise SubscriptionClosedError once it is closed."""

    def take(self, max_messages: int = DEFAULT_BATCH) -> list[Delivery]:
        """Return what is there now, which may be nothing."""

    async def commit(self) -> None:
        """Declare everything taken so far as done; on a durable topic return once that is stored."""

    def commit_sync(self) -> None:
        """Do the same for callers without an event loop."""

    def close(self) -> None:
        """Leave the group; closing twice is harmless."""


class MessageBus(Protocol):
    """Topics that any number of groups read, each group every message; within a group each message has one reader.

    A group exists from its first subscription on and keeps its unread messages while it has no member; one that was
    made for a single subscriber (no name given) ends with it.
    """

    @property
    def may_block(self) -> bool:
        """Whether `publish_sync` can wait, for a disk or for room; an event loop must then call it in a thread."""

    async def publish(self, topic: str, message: Message) -> PublishDecision:
        """Return once the message is in the topic, and on a durable one on disk; raise if it is not."""

    async def publish_batch(self, topic: str, messages: Sequence[Message]) -> PublishDecision:
        """Publish all messages in their order, as one unit to backpressure and to each partition."""

    def publish_sync(self, topic: str, messages: Sequence[Message]) -> PublishDecision:
        """Do the same from any thread, for callers without an event loop."""

    def subscribe(self, topic: str, group: str | None = None) -> Subscription:
        """Add a reader to `group`, or to a group of its own; a new group begins with what is published next.

        On a durable topic a new group begins with the oldest message there is.
        """

    def remove_group(self, topic: str, group: str) -> None:
        """Forget a group and what it has not read; its subscriptions are closed. A group that is not there is fine."""

    async def close(self) -> None:
        """End all subscriptions and refuse further messages; closing twice is harmless."""


class GroupReader(Protocol):
    """One group's place in one partition; used by one thread at a time."""

    def take(self, max_messages: int) -> list[Delivery]:
        """Return the next messages in order, or nothing; each is returned once."""

    def commit(self, next_offset: int) -> None:
        """Remember that everything below `next_offset` is done."""

    @property
    def committed(self) -> int:
        """The offset up to which everything is done."""

    def close(self) -> None:
        """Release what reading needs; a durable place is kept."""

    def forget(self) -> None:
        """Give up the place for good."""


class PartitionQueue(Protocol):
    """The messages of one partition; safe to use from many threads."""

    def put(self, messages: Sequence[Message]) -> "Future[Any] | None":
        """Add all messages in order; None means that they are in, a future tells when they are, or why not."""

    def reader(self, group: str) -> GroupReader:
        """Return the place of `group`, which begins with what is put next, or where it was on a durable queue."""

    @property
    def end(self) -> int:
        """The offset that the next message will have at least."""

    def metrics(self) -> dict[str, float]:
        """Return numbers of its own kind, by name."""
