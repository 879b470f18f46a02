"""One topic: its generations of partitions, the groups that read it, and the step from one generation to the next.

Publishing chooses a generation under the lock and writes outside it, so that publishers of a durable topic share
an fsync. A generation ends once it is replaced, its last writer is done and every group has read it.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from dw_platform.bus.errors import BusClosedError, TooManySubscribersError
from dw_platform.bus.generation import Generation
from dw_platform.bus.group import Group, Member
from dw_platform.bus.home import Layout, TopicHome
from dw_platform.bus.lane import Lane
from dw_platform.bus.message import Message
from dw_platform.bus.private import is_private


class Topic:
    """Any thread may use it."""

    def __init__(self, name: str, home: TopicHome, layout: Layout) -> None:
        self.name, self._home = name, home
        # Reentrant, because a write that is durable at once reports back on the publisher's own thread.
        self._lock = threading.RLock()
        self._settled = threading.Condition(self._lock)
        self._groups: dict[str, Group] = {}
        self._closed = self._switching = False
        self.dropped = 0
        """Messages that no group was there to read."""
        self._generations = home.open(layout)
        self._layout = Layout(len(self._generations[-1].queues), layout.ring_size)

    @property
    def durable(self) -> bool:
        """Whether its messages outlive the process."""
        return self._home.durable

    def put(self, messages: Sequence[Message]) -> list["Future[Any]"]:
        """Write the messages to their partitions; the futures tell when they are durable, none means that they are in.

        The order within each partition is that of `messages`.
        """
        with self._lock:
            self._settled.wait_for(lambda: not self._switching)
            if self._closed:
                raise BusClosedError
            if not self._groups and not self.durable:
                self.dropped += len(messages)
                return []
            generation = self._generations[-1]
            parts = generation.split(messages)
            generation.writers += len(parts)
        pending = list(parts)
        futures = []
        try:
            while pending:
                future = generation.queues[pending[0]].put(parts[pending[0]])
                partition = pending.pop(0)
                if future is None:
                    self._written(generation, [partition])
                else:
                    futures.append(future)
                    future.add_done_callback(lambda _, index=partition: self._written(generation, [index]))  # type: ignore[misc]
        finally:
            self._written(generation, pending)
        return futures

    def _written(self, generation: Generation, partitions: Sequence[int]) -> None:
        """Let readers know, and the next generation begin if this was the last write to a retired one."""
        with self._lock:
            generation.writers -= len(partitions)
            for group in self._groups.values():
                for partition in partitions:
                    group.arrived(generation, partition)
            if generation.writers == 0:
                self._settled.notify_all()
            if generation.settled:
                self._advance()

    def subscribe(self, name: str, member: Member, *, limit: int) -> Group:
        """Add `member` to the group, which is created if it is not there."""
        with self._lock:
            if self._closed:
                raise BusClosedError
            if self.subscribers() >= limit:
                raise TooManySubscribersError(self.name, limit)
            group = self._groups.get(name) or self._open_group(name)
            group.join(member)
            return group

    def _open_group(self, name: str) -> Group:
        group = Group(name)
        for generation in self._generations if self.durable else self._generations[-1:]:
            group.enter(generation)
        self._groups[name] = group
        group.advance()
        return group

    def unsubscribe(self, group: Group, member: Member) -> None:
        """Take `member` out of its group; a private group ends with it."""
        with self._lock:
            group.leave(member)
            if is_private(group.name):
                self.remove_group(group.name)

    def remove_group(self, name: str) -> None:
        """Forget the group and its place."""
        with self._lock:
            group = self._groups.pop(name, None)
            if group is not None:
                group.close(forget=True)
            self._home.forget_group(name)
            self._drop_finished()
        for member in group.members if group else ():
            member.end()

    def lanes_of(self, group: Group, member: Member) -> tuple[Lane, ...]:
        """Return what `member` reads now."""
        with self._lock:
            return group.lanes_of(member)

    def committed(self, group: Group, member: Member) -> None:
        """Hand over lanes that were waiting for this, and go on to the next generation where this was the last."""
        with self._lock:
            group.notify_others(member)
            if len(self._generations) > 1:
                self._advance()

    def resize(self, layout: Layout) -> None:
        """Publish to partitions of this layout from now on; groups follow when they have read the old ones."""
        with self._lock:
            if layout == self._layout or self._closed:
                return
            with self._quiet():
                newest = self._home.create(self._generations[-1].version + 1, layout)
                for group in self._groups.values():
                    group.enter(newest)
                self._generations[-1].retired = True
                self._generations.append(newest)
                self._layout = layout
            self._advance()

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Let a durable topic's writers finish and new ones wait: both maps share a log, so there is one clear cut."""
        if self.durable:
            self._settled.wait_for(lambda: not self._switching)
            self._switching = True
            self._settled.wait_for(lambda: self._generations[-1].writers == 0)
        try:
            yield
        finally:
            self._switching = False
            self._settled.notify_all()

    def _advance(self) -> None:
        for group in self._groups.values():
            group.advance()
        self._drop_finished()

    def _drop_finished(self) -> None:
        for generation in self._generations[:-1]:
            needed = any(group.needs(generation) for group in self._groups.values())
            if needed or not generation.settled or not self._home.finished(generation):
                return  # in order, so that the oldest is always what a new group begins with
            self._generations.remove(generation)
            self._home.discard(generation)

    def subscribers(self) -> int:
        """Return the number of subscriptions."""
        with self._lock:
            return sum(len(group.members) for group in self._groups.values())

    def largest_group(self) -> int:
        """Return the number of members of the largest group."""
        with self._lock:
            return max((len(group.members) for group in self._groups.values()), default=0)

    @property
    def layout(self) -> Layout:
        """How the newest generation is made."""
        return self._layout

    @property
    def version(self) -> int:
        """Of the partition map that publishers use."""
        return self._generations[-1].version

    def depths(self) -> dict[str, int]:
        """Return what waits in each partition for its slowest group, by `v{version}.p{partition}`."""
        with self._lock:
            return {
                f"v{generation.version}.p{partition}": max(waiting)
                for generation in self._generations
                for partition, waiting in enumerate(self._waiting(generation))
            }

    def depth(self) -> int:
        """Return what waits in all partitions."""
        with self._lock:
            return sum(max(waiting) for generation in self._generations for waiting in self._waiting(generation))

    def _waiting(self, generation: Generation) -> list[list[int]]:
        by_group = [depths for group in self._groups.values() if (depths := group.depths(generation))]
        return [[0, *(depths[index] for depths in by_group)] for index in range(len(generation.queues))]

    def queue_metrics(self) -> dict[str, float]:
        """Return the numbers of the queues that publishers use."""
        with self._lock:
            queues = self._generations[-1].queues
        return {f"p{i}.{name}": value for i, queue in enumerate(queues) for name, value in queue.metrics().items()}

    def groups(self) -> dict[str, dict[Member, list[int]]]:
        """Return who reads which partitions, by group."""
        with self._lock:
            return {name: group.assignment() for name, group in self._groups.items()}

    def maintain(self) -> None:
        """Remove what need not be kept any longer; takes as long as the files need."""
        self._home.maintain()
        with self._lock:
            self._drop_finished()

    def close(self) -> None:
        """End all subscriptions and release the partitions; what is durable stays."""
        with self._lock:
            self._closed = True
            groups, self._groups = list(self._groups.values()), {}
        for group in groups:
            group.close(forget=False)
            for member in group.members:
                member.end()
        self._home.close()
