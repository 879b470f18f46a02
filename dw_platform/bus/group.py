"""The subscribers that share a topic's messages, and which of them reads which partition."""

from collections.abc import Hashable, Sequence
from typing import Protocol

from dw_platform.bus.assignment import assign
from dw_platform.bus.generation import Generation
from dw_platform.bus.lane import Lane


class Member(Hashable, Protocol):
    """A subscription, as its group sees it."""

    def notify(self) -> None:
        """Look again: messages or lanes may have come."""

    def end(self) -> None:
        """Close: the group is gone."""


class _Stage:
    """One generation as the group goes through it."""

    def __init__(self, generation: Generation, lanes: Sequence[Lane]) -> None:
        self.generation, self.lanes = generation, tuple(lanes)

    @property
    def done(self) -> bool:
        return self.generation.settled and not any(lane.depth for lane in self.lanes)


class Group:
    """The topic's lock guards it; lanes have their own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: list[Member] = []
        self._stages: list[_Stage] = []
        self._owners: list[Member | None] = []
        self._lanes_of: dict[Member, tuple[Lane, ...]] = {}

    def enter(self, generation: Generation) -> None:
        """Read `generation` after all those entered before."""
        lanes = [Lane(queue, queue.reader(self.name)) for queue in generation.queues]
        self._stages.append(_Stage(generation, lanes))
        if len(self._stages) == 1:
            self._rebalance()

    def join(self, member: Member) -> None:
        """Give the newcomer its share."""
        self.members.append(member)
        self._rebalance()

    def leave(self, member: Member) -> None:
        """Give what it had to the others."""
        self.members = [other for other in self.members if other is not member]
        self._rebalance()

    def _rebalance(self) -> None:
        lanes = self._stages[0].lanes
        self._owners = assign(len(lanes), self.members, self._owners)
        self._lanes_of = {
            member: tuple(lane for lane, owner in zip(lanes, self._owners, strict=True) if owner is member)
            for member in self.members
        }
        for member in self.members:
            member.notify()

    def lanes_of(self, member: Member) -> tuple[Lane, ...]:
        """Return what `member` reads now."""
        if self._stages[0].generation.retired:
            self.advance()
        return self._lanes_of.get(member, ())

    def advance(self) -> None:
        """Go on to the next generation if this one is done to the last message."""
        while len(self._stages) > 1 and self._stages[0].done:
            for lane in self._stages.pop(0).lanes:
                lane.close()
            self._rebalance()

    def arrived(self, generation: Generation, partition: int) -> None:
        """Tell the reader of that partition."""
        if self._stages[0].generation is generation:
            owner = self._owners[partition]
            if owner is not None:
                owner.notify()

    def notify_others(self, member: Member) -> None:
        """Tell the others that `member` has committed, so a lane that was to change hands may be free."""
        for other in self.members:
            if other is not member:
                other.notify()

    def needs(self, generation: Generation) -> bool:
        """Return whether it still has to read from `generation`."""
        return any(stage.generation is generation for stage in self._stages)

    def depths(self, generation: Generation) -> list[int]:
        """Return what it has not done of each partition; nothing for a generation that it has left behind."""
        return next(
            ([lane.depth for lane in stage.lanes] for stage in self._stages if stage.generation is generation), []
        )

    def assignment(self) -> dict[Member, list[int]]:
        """Return the partitions of each member."""
        return {m: [p for p, owner in enumerate(self._owners) if owner is m] for m in self.members}

    def close(self, *, forget: bool) -> None:
        """End all lanes."""
        for stage in self._stages:
            for lane in stage.lanes:
                lane.close(forget=forget)
