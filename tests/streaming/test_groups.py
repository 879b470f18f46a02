"""Who reads what: the group's document and its transitions, without any reading."""

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dw_platform.foundation import FakeClock
from dw_platform.log import InvalidNameError
from dw_platform.store import MemoryStore
from dw_platform.streaming import GroupFencedError
from dw_platform.streaming.groups import (
    CorruptGroupError,
    GroupMember,
    check_group,
    decode,
    group_key,
    live_groups,
)

TIMEOUT = timedelta(seconds=10)


class World:
    def __init__(self) -> None:
        self.store, self.clock = MemoryStore(), FakeClock()

    def member(self, name: str) -> GroupMember:
        return GroupMember(self.store, "orders", "billing", name, clock=self.clock)

    def owners(self) -> dict[int, str]:
        return dict(decode(self.store.get(group_key("orders", "billing"))).owners)


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_member_reads_everything_and_the_second_gets_its_half_when_it_is_released(world: World) -> None:
    a, b = world.member("a"), world.member("b")
    assert a.join(4).owned == {0, 1, 2, 3}
    assert b.join(4).owned == set()
    leaving = a.keep_up(4, TIMEOUT).leaving
    assert len(leaving) == 2
    assert b.keep_up(4, TIMEOUT).owned == set()
    assert a.keep_up(4, TIMEOUT, released=leaving).owned == {0, 1, 2, 3} - leaving
    assert b.keep_up(4, TIMEOUT).owned == leaving


def test_what_a_member_leaves_behind_goes_to_the_others_and_nothing_else_moves(world: World) -> None:
    members = {name: world.member(name) for name in "abc"}
    for member in members.values():
        member.join(6)
    for _ in range(3):
        for member in members.values():
            leaving = member.keep_up(6, TIMEOUT).leaving
            member.keep_up(6, TIMEOUT, released=leaving)
    before = world.owners()
    assert Counter(before.values()) == {"a": 2, "b": 2, "c": 2}
    members["b"].leave()
    for name in "ac":
        members[name].keep_up(6, TIMEOUT)
    after = world.owners()
    assert Counter(after.values()) == {"a": 3, "c": 3}
    assert all(after[number] == owner for number, owner in before.items() if owner != "b")


def test_a_silent_member_is_put_out_and_finds_that_it_was(world: World) -> None:
    a, b = world.member("a"), world.member("b")
    a.join(2)
    b.join(2)
    world.clock.advance(9)
    b.keep_up(2, TIMEOUT)
    world.clock.advance(2)
    assert b.keep_up(2, TIMEOUT).owned == {0, 1}
    with pytest.raises(GroupFencedError) as error:
        a.keep_up(2, TIMEOUT)
    assert (error.value.topic, error.value.group, error.value.member) == ("orders", "billing", "a")
    a.leave()
    assert world.owners() == {0: "b", 1: "b"}


def test_a_member_that_nobody_misses_comes_back_after_a_long_silence(world: World) -> None:
    a = world.member("a")
    a.join(2)
    world.clock.advance(1_000)
    assert a.keep_up(2, TIMEOUT).owned == {0, 1}


def test_new_partitions_are_shared_out(world: World) -> None:
    a, b = world.member("a"), world.member("b")
    a.join(1)
    b.join(1)
    a.keep_up(4, TIMEOUT)
    b.keep_up(4, TIMEOUT)
    a.keep_up(4, TIMEOUT)
    assert Counter(world.owners().values()) == {"a": 2, "b": 2}


def test_a_beat_is_written_three_times_in_a_timeout_and_not_more_often(world: World) -> None:
    a = world.member("a")
    a.join(1)
    version = world.store.versions_of([group_key("orders", "billing")])
    for _ in range(3):
        world.clock.advance(1)
        a.keep_up(1, TIMEOUT)
    assert world.store.versions_of([group_key("orders", "billing")]) == version
    world.clock.advance(1)
    a.keep_up(1, TIMEOUT)
    assert world.store.versions_of([group_key("orders", "billing")]) != version


def test_live_groups_are_those_with_a_member_that_was_heard_of(world: World) -> None:
    world.member("a").join(1)
    world.clock.advance(5)
    GroupMember(world.store, "orders", "audit", "x", clock=world.clock).join(1)
    assert live_groups(world.store, "orders", since=world.clock.now()) == {"audit": 1}
    assert live_groups(world.store, "other", since=world.clock.now()) == {}


def test_a_document_that_is_none_is_named(world: World) -> None:
    world.store.put(group_key("orders", "billing"), b"[]")
    with pytest.raises(CorruptGroupError, match="delete the key"):
        world.member("a").join(1)


@pytest.mark.parametrize("name", ["", "a/b", ".x", "ingest.orders", "ingest."])
def test_groups_cannot_have_names_of_others(name: str) -> None:
    with pytest.raises(InvalidNameError):
        check_group(name)


class Rebalancing(RuleBasedStateMachine):
    """Members come, go, die, fall silent and come back; no two of them ever read the same partition."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.partitions = 3
        self.members: dict[str, GroupMember] = {}
        self.reading: dict[str, frozenset[int]] = {}
        self.count = 0

    @rule()
    def come(self) -> None:
        name = f"m{self.count}"
        self.count += 1
        self.members[name] = self.world.member(name)
        self.reading[name] = self.members[name].join(self.partitions).owned

    @precondition(lambda self: self.members)
    @rule(data=st.data(), release=st.booleans())
    def keep_up(self, data: st.DataObject, *, release: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.members)))
        member = self.members[name]
        try:
            assignment = member.keep_up(self.partitions, TIMEOUT)
            if release and assignment.leaving:
                self.reading[name] -= assignment.leaving
                assignment = member.keep_up(self.partitions, TIMEOUT, released=assignment.leaving)
            self.reading[name] = assignment.owned
        except GroupFencedError:
            del self.members[name], self.reading[name]

    @precondition(lambda self: self.members)
    @rule(data=st.data(), politely=st.booleans())
    def go(self, data: st.DataObject, *, politely: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.members)))
        member = self.members.pop(name)
        del self.reading[name]
        if politely:
            member.leave()

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        # Whoever is alive is heard of often enough.
        for name in sorted(self.members):
            self.reading[name] = self.members[name].keep_up(self.partitions, TIMEOUT).owned
        self.world.clock.advance(seconds)

    @rule(more=st.integers(1, 3))
    def grow(self, more: int) -> None:
        self.partitions += more

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        read = Counter(partition for owned in self.reading.values() for partition in owned)
        assert not read or max(read.values()) == 1

    def teardown(self) -> None:
        """In the end everything is read, by members that share it evenly."""
        for _ in range(5):
            self.world.clock.advance(3)
            for name, member in self.members.items():
                leaving = member.keep_up(self.partitions, TIMEOUT).leaving
                self.reading[name] = member.keep_up(self.partitions, TIMEOUT, released=leaving).owned
        if self.members:
            sizes = [len(owned) for owned in self.reading.values()]
            assert sum(sizes) == self.partitions
            assert max(sizes) - min(sizes) <= 1


Rebalancing.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestRebalancing = Rebalancing.TestCase
