"""Publish, subscribe, unsubscribe, repartition, resize and reconfigure in any order; then count everything."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from dw_platform.bus import BusLimits, Delivery, Message, ScalableMessageBus, TopicOptions, TopicSubscription
from dw_platform.foundation import FakeClock

TOPIC = "orders"
KEYS = st.sampled_from([b"a", b"b", b"c", None])
GROUPS = st.sampled_from(["billing", "billing", "search"])
MOST_READERS = 4


@dataclass
class Reader:
    subscription: TopicSubscription
    group: str
    taken: list[Delivery] = field(default_factory=list)


class BusMachine(RuleBasedStateMachine):
    """What each group has committed must be a prefix of what was published for it, key by key, and all in the end."""

    readers = Bundle("readers")

    @initialize(target=readers, hot=st.booleans(), partitions=st.sampled_from([None, 1, 2]))
    def open_bus(self, *, hot: bool, partitions: int | None) -> Reader:
        limits = BusLimits(partitions=partitions, ring_size=2)
        self.bus = ScalableMessageBus(limits=limits, topics={TOPIC: TopicOptions(hot=hot)}, clock=FakeClock())
        self.published = 0
        self.expected: dict[str, list[tuple[bytes | None, int]]] = {}
        self.done: dict[str, list[tuple[bytes | None, int]]] = {}
        self.reading = 0
        return self.subscribe("billing")

    @rule(keys=st.lists(KEYS, min_size=4, max_size=16), before=st.integers(1, 4), reader=readers)
    def publish_while_reading(self, keys: list[bytes | None], before: int, reader: Reader) -> None:
        """The steps that matter most, together, because rules drawn one by one seldom meet in this order."""
        self.publish(keys)
        self.take(reader, before)
        self.publish(keys[:before])

    @rule(keys=st.lists(KEYS, min_size=1, max_size=8))
    def publish(self, keys: list[bytes | None]) -> None:
        messages = [Message(self.published + index, key) for index, key in enumerate(keys)]
        self.published += len(keys)
        self.bus.publish_sync(TOPIC, messages)
        for expected in self.expected.values():
            expected += [(message.key, message.value) for message in messages]

    @precondition(lambda self: self.reading < MOST_READERS)
    @rule(target=readers, group=GROUPS)
    def subscribe(self, group: str) -> Reader:
        self.expected.setdefault(group, [])
        self.done.setdefault(group, [])
        self.reading += 1
        return Reader(self.bus.subscribe(TOPIC, group), group)

    @precondition(lambda self: self.reading < MOST_READERS)
    @rule(target=readers, keys=st.lists(KEYS, min_size=4, max_size=16), holder=readers)
    def join_while_another_holds_messages(self, keys: list[bytes | None], holder: Reader) -> Reader:
        self.publish(keys)
        self.take(holder, 3)
        newcomer = self.subscribe(holder.group)
        self.take(newcomer, 8)
        self.commit(newcomer)
        return newcomer

    @rule(reader=readers, count=st.integers(1, 8))
    def take(self, reader: Reader, count: int) -> None:
        reader.taken += reader.subscription.take(count)

    @rule(reader=readers)
    def commit(self, reader: Reader) -> None:
        reader.subscription.commit_sync()
        self.done[reader.group] += [(delivery.message.key, delivery.value) for delivery in reader.taken]
        reader.taken = []

    @rule(reader=consumes(readers))
    def unsubscribe(self, reader: Reader) -> None:
        reader.subscription.close()
        self.reading -= 1

    @rule(partitions=st.integers(1, 3))
    def repartition(self, partitions: int) -> None:
        self.bus.repartition(TOPIC, partitions)

    @rule(size=st.sampled_from([2, 4]))
    def resize_rings(self, size: int) -> None:
        self.bus.reconfigure_limits(replace(self.bus.current_limits(), ring_size=size))

    @rule(partitions=st.sampled_from([None, 1, 4]), queue_size=st.integers(50_000, 60_000))
    def reconfigure(self, partitions: int | None, queue_size: int) -> None:
        limits = replace(self.bus.current_limits(), partitions=partitions, max_message_queue_size=queue_size)
        self.bus.reconfigure_limits(limits)

    @invariant()
    def each_key_is_done_in_order(self) -> None:
        for group, done in getattr(self, "done", {}).items():
            for key in {key for key, _ in done} - {None}:
                values = of_key(done, key)
                assert values == of_key(self.expected[group], key)[: len(values)]

    def teardown(self) -> None:
        if not hasattr(self, "bus"):
            return
        for group, expected in self.expected.items():
            # A reader of an earlier rule may still hold messages; leaving gives them back.
            for member in self.bus._topics.get(TOPIC).groups()[group]:
                assert isinstance(member, TopicSubscription)
                member.close()
            last = Reader(self.bus.subscribe(TOPIC, group), group)
            while got := last.subscription.take(5):
                last.taken += got
                self.commit(last)
            self.each_key_is_done_in_order()
            assert sorted(self.done[group], key=lambda item: item[1]) == expected
        assert self.bus.stats().totals["depth"] == 0
        self.bus.close_sync()


def of_key(items: list[tuple[bytes | None, int]], key: bytes | None) -> list[int]:
    return [value for other, value in items if other == key]


BusMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestBus = pytest.mark.timeout(120)(BusMachine.TestCase)
