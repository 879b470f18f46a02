import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dw_platform.bus import (
    BusClosedError,
    BusLimits,
    InMemoryMessageBus,
    InvalidMessageError,
    Message,
    MessageTooLargeError,
    ScalableMessageBus,
    SubscriptionClosedError,
    TooManySubscribersError,
    TooManyTopicsError,
    TopicDeclaredError,
    TopicOptions,
    TopicSubscription,
    hot,
)
from dw_platform.foundation import FakeClock, InvalidValueError, SystemClock, fnv1a_64
from dw_platform.log import InvalidNameError
from dw_platform.scaling import LimitCatalogue, LimitControl, ScalingRegistry
from dw_platform.store.open import open_store
from tests.bus.loops import in_event_loop


def values(subscription: TopicSubscription) -> list[Any]:
    found = []
    while taken := subscription.take():
        found += [delivery.value for delivery in taken]
        subscription.commit_sync()
    return found


def bus_with(partitions: int | None = 4, **options: Any) -> ScalableMessageBus:
    return ScalableMessageBus(limits=BusLimits(partitions=partitions, ring_size=4), **options)


def test_a_key_always_goes_to_the_partition_of_its_hash() -> None:
    bus = bus_with(8)
    reader = bus.subscribe("orders")
    keys = [f"customer-{number}".encode() for number in range(50)]
    bus.publish_sync("orders", [Message(key, key) for key in keys])
    assert {(d.message.key, d.partition) for d in reader.take(100)} == {(key, fnv1a_64(key) % 8) for key in keys}


def test_messages_without_a_key_go_to_the_partitions_in_turn() -> None:
    bus = bus_with(4)
    reader = bus.subscribe("orders")
    bus.publish_sync("orders", [Message(number) for number in range(8)])
    assert Counter(delivery.partition for delivery in reader.take()) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_every_group_gets_every_message_and_members_share_them() -> None:
    bus = bus_with(4)
    first, second, other = bus.subscribe("orders", "a"), bus.subscribe("orders", "a"), bus.subscribe("orders", "b")
    bus.publish_sync("orders", [Message(number) for number in range(20)])
    shares = values(first), values(second)
    assert sorted(shares[0] + shares[1]) == sorted(values(other)) == list(range(20))
    assert len(shares[0]) == len(shares[1]) == 10


def test_a_subscriber_that_comes_takes_over_only_its_share_of_the_partitions() -> None:
    bus = bus_with(6)
    first, second = bus.subscribe("orders", "a"), bus.subscribe("orders", "a")
    before = set(first.assigned()), set(second.assigned())
    third = bus.subscribe("orders", "a")
    assert set(first.assigned()) < before[0]
    assert set(second.assigned()) < before[1]
    third.close()
    assert (set(first.assigned()), set(second.assigned())) == before


def test_a_partition_that_changes_hands_waits_until_its_holder_has_committed() -> None:
    bus = bus_with(2)
    holder = bus.subscribe("orders", "a")
    bus.publish_sync("orders", [Message(number) for number in range(4)])
    assert len(holder.take(4)) == 4
    newcomer = bus.subscribe("orders", "a")
    bus.publish_sync("orders", [Message(4), Message(5)])
    assert newcomer.take() == []
    holder.commit_sync()
    assert len(newcomer.take()) == 1


def test_what_was_not_committed_is_delivered_again_in_order_when_its_holder_leaves() -> None:
    bus = bus_with(1)
    holder = bus.subscribe("orders", "a")
    bus.publish_sync("orders", [Message(number) for number in range(5)])
    assert [delivery.value for delivery in holder.take(3)] == [0, 1, 2]
    holder.close()
    assert values(bus.subscribe("orders", "a")) == [0, 1, 2, 3, 4]


def test_a_named_group_keeps_its_messages_without_members_and_a_private_one_ends() -> None:
    bus = bus_with()
    bus.subscribe("orders", "a").close()
    bus.subscribe("orders").close()
    bus.publish_sync("orders", [Message(1)])
    assert bus.stats().totals["depth"] == 1
    assert values(bus.subscribe("orders", "a")) == [1]


def test_a_message_nobody_is_there_to_read_is_counted_as_dropped() -> None:
    bus = bus_with()
    bus.publish_sync("orders", [Message(1)])
    assert bus.scaling_metrics()["dropped_total"] == 1
    assert values(bus.subscribe("orders")) == []


def test_a_full_ring_falls_back_to_the_standard_queue_without_loss_or_reordering() -> None:
    bus = bus_with(1, topics={"ticks": TopicOptions(hot=True)})
    slow, quick = bus.subscribe("ticks", "slow"), bus.subscribe("ticks", "quick")
    seen = []
    for number in range(0, 30, 3):
        bus.publish_sync("ticks", [Message(number), Message(number + 1), Message(number + 2)])
        seen += [delivery.value for delivery in quick.take(2)]
        quick.commit_sync()
    metrics = bus.scaling_metrics()
    assert metrics["queue.ticks.p0.ring_published"] == 4
    assert metrics["queue.ticks.p0.ring_spilled"] == 26
    assert seen + values(quick) == values(slow) == list(range(30))
    bus.publish_sync("ticks", [Message(30)])
    assert bus.scaling_metrics()["queue.ticks.p0.ring_published"] == 5  # all was read, so the ring is used again
    assert values(slow) == [30]


def test_a_message_of_a_hot_class_gives_its_topic_a_ring_behind_what_waits_already() -> None:
    @hot
    @dataclass(frozen=True)
    class Tick:
        number: int

    bus = bus_with(1)
    reader = bus.subscribe("ticks", "a")
    bus.publish_sync("ticks", [Message("early")])
    bus.publish_sync("ticks", [Message(Tick(1))])
    assert bus.stats().topics["ticks"].queues["p0.ring_published"] == 1
    assert values(reader) == ["early", Tick(1)]


def test_partitions_follow_the_number_of_subscribers_where_the_limit_is_none() -> None:
    bus = bus_with(None)
    readers = [bus.subscribe("orders", "a")]
    assert bus.stats().topics["orders"].partitions == 1
    readers += [bus.subscribe("orders", "a") for _ in range(2)]
    assert bus.stats().topics["orders"].partitions == 4
    assert all(reader.assigned() for reader in readers)
    for reader in readers:
        reader.close()
    assert bus.stats().topics["orders"].partitions == 4


def test_a_group_reads_the_new_partitions_only_after_the_old_ones_are_done() -> None:
    bus = bus_with(1)
    reader = bus.subscribe("orders", "a")
    bus.publish_sync("orders", [Message(1, b"k")])
    bus.repartition("orders", 5)
    bus.publish_sync("orders", [Message(2, b"k")])
    old = reader.take()
    assert [(delivery.value, delivery.version) for delivery in old] == [(1, 1)]
    assert reader.take() == []
    reader.commit_sync()
    assert [(delivery.value, delivery.version) for delivery in reader.take()] == [(2, 2)]


def test_limits_below_what_is_in_use_are_refused_and_change_nothing() -> None:
    bus = bus_with()
    for topic in ("a", "b"):
        bus.subscribe(topic, "g")
        bus.subscribe(topic, "g")
    before = bus.current_limits()
    for change in ({"max_topics": 1}, {"max_subscribers_per_topic": 1}):
        with pytest.raises(InvalidValueError, match="at least the 2"):
            bus.reconfigure_limits(replace(before, partitions=8, **change))
    assert bus.current_limits() == before
    assert bus.stats().topics["a"].partitions == 4


def test_limits_set_in_the_control_store_reach_a_running_bus() -> None:
    store, clock = open_store("memory://"), SystemClock()
    bus = bus_with(2)
    reader = bus.subscribe("orders", "a")
    bus.publish_sync("orders", [Message(number, b"k") for number in range(5)])
    LimitControl(store, LimitCatalogue({"bus": bus.current_limits()}), clock=clock).set(
        "bus", {"partitions": "6", "longest_delay": "2s"}, changed_by="operator", reason="more readers"
    )
    registry = ScalingRegistry(store, node="test", clock=clock)
    registry.register(bus)
    registry.publish()
    assert bus.stats().topics["orders"].partitions == 6
    assert values(reader) == [0, 1, 2, 3, 4]
    store.close()


@pytest.mark.parametrize("name", ["", "..", "../etc", "a/b", "x" * 201, "tab\there", ".hidden"])
def test_names_that_cannot_be_folders_are_refused(name: str) -> None:
    bus = bus_with()
    with pytest.raises(InvalidNameError):
        bus.publish_sync(name, [Message(1)])
    with pytest.raises(InvalidNameError):
        bus.subscribe(name)
    if name:
        with pytest.raises(InvalidNameError):
            bus.subscribe("orders", name)


def test_a_name_as_long_as_allowed_works() -> None:
    bus = bus_with()
    reader = bus.subscribe("x" * 200)
    bus.publish_sync("x" * 200, [Message(1)])
    assert values(reader) == [1]


def test_a_bad_message_is_refused_with_its_whole_batch() -> None:
    bus = ScalableMessageBus(limits=BusLimits(max_record_bytes=10))
    reader = bus.subscribe("orders")
    with pytest.raises(MessageTooLargeError) as error:
        bus.publish_sync("orders", [Message(b"small"), Message(b"12345678", b"key")])
    assert (error.value.size, error.value.limit) == (11, 10)
    for bad in (b"bytes", Message(1, "key")):  # type: ignore[arg-type]
        with pytest.raises(InvalidMessageError):
            bus.publish_sync("orders", [Message(1), bad])  # type: ignore[list-item]
    assert values(reader) == []


def test_too_many_topics_and_subscribers_are_refused() -> None:
    bus = ScalableMessageBus(limits=BusLimits(max_topics=1, max_subscribers_per_topic=1))
    bus.subscribe("orders")
    with pytest.raises(TooManyTopicsError):
        bus.publish_sync("more", [Message(1)])
    with pytest.raises(TooManySubscribersError):
        bus.subscribe("orders")


def test_a_topic_is_declared_once_and_before_it_is_used() -> None:
    bus = bus_with(topics={"ticks": TopicOptions(hot=True)})
    bus.declare("ticks", TopicOptions(hot=True))
    with pytest.raises(TopicDeclaredError):
        bus.declare("ticks", TopicOptions(critical=True))
    bus.subscribe("orders")
    with pytest.raises(TopicDeclaredError):
        bus.declare("orders", TopicOptions(hot=True))
    with pytest.raises(InvalidValueError, match="log storage"):
        bus.declare("kept", TopicOptions(durable=True))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"ring_size": 1000}, "ring_size"),
        ({"partitions": 0}, "partitions"),
        ({"max_topics": 0}, "max_topics"),
        ({"max_message_queue_size": 0}, "max_message_queue_size"),
        ({"max_record_bytes": 0}, "max_record_bytes"),
    ],
)
def test_limits_that_make_no_sense_are_refused_when_built(wrong: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        BusLimits(**wrong)  # type: ignore[arg-type]
    assert error.value.field == field


@pytest.mark.parametrize("make", [InMemoryMessageBus, ScalableMessageBus])
def test_after_close_nothing_is_published_or_read(make: type[InMemoryMessageBus | ScalableMessageBus]) -> None:
    async def scenario() -> None:
        bus = make()
        reader = bus.subscribe("orders")
        waiting = asyncio.create_task(reader.receive())
        await asyncio.sleep(0)
        await bus.close()
        await bus.close()
        with pytest.raises(SubscriptionClosedError):
            await waiting
        with pytest.raises(BusClosedError):
            await bus.publish("orders", Message(1))
        with pytest.raises(BusClosedError):
            bus.publish_sync("orders", [Message(1)])
        with pytest.raises(BusClosedError):
            bus.subscribe("orders")

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [InMemoryMessageBus, ScalableMessageBus])
def test_both_buses_deliver_to_waiting_coroutines_and_stop_iterating_at_the_end(
    make: type[InMemoryMessageBus | ScalableMessageBus],
) -> None:
    async def scenario() -> list[int]:
        bus, seen = make(), list[int]()

        async def consume() -> None:
            async for delivery in bus.subscribe("orders", "a"):
                seen.append(delivery.value)
                if delivery.value == 9:
                    await bus.close()

        consumer = asyncio.create_task(consume())
        await asyncio.sleep(0)
        for number in range(10):
            await bus.publish("orders", Message(number, b"k"))
        async with asyncio.timeout(10):
            await consumer
        return seen

    assert asyncio.run(scenario()) == list(range(10))


@in_event_loop
async def test_a_bus_on_top_of_a_scalable_bus_works_as_well() -> None:
    bus = ScalableMessageBus(ScalableMessageBus(limits=BusLimits(partitions=1)), BusLimits(partitions=3))
    reader = bus.subscribe("orders", "a")
    for number in range(20):
        await bus.publish("orders", Message(number, b"k"))
    assert values(reader) == list(range(20))
    await bus.close()


@pytest.mark.parametrize("is_hot", [False, True])
def test_threads_that_publish_while_partitions_change_lose_nothing_and_keep_their_order(*, is_hot: bool) -> None:
    bus = bus_with(2, topics={"orders": TopicOptions(hot=is_hot)}, clock=FakeClock())
    seen: dict[bytes, list[int]] = {f"t{number}".encode(): [] for number in range(4)}
    done = threading.Event()

    def publish(key: bytes) -> None:
        for number in range(500):
            bus.publish_sync("orders", [Message(number, key)])

    def consume(reader: TopicSubscription) -> None:
        while not (done.is_set() and bus.stats().totals["depth"] == 0):
            for delivery in reader.take(16):
                assert delivery.message.key is not None
                seen[delivery.message.key].append(delivery.value)
            reader.commit_sync()

    consumers = [threading.Thread(target=consume, args=(bus.subscribe("orders", "a"),)) for _ in range(2)]
    publishers = [threading.Thread(target=publish, args=(key,)) for key in seen]
    for thread in [*consumers, *publishers]:
        thread.start()
    for round_number in range(20):
        limits = replace(bus.current_limits(), partitions=1 + round_number % 5, ring_size=2 << round_number % 3)
        bus.reconfigure_limits(limits)
    for thread in publishers:
        thread.join(60)
    done.set()
    for thread in consumers:
        thread.join(60)
    assert seen == {key: list(range(500)) for key in seen}


@in_event_loop
async def test_a_coroutine_wakes_for_messages_from_threads() -> None:
    bus = bus_with(2)
    reader = bus.subscribe("orders", "a")
    threads = [threading.Thread(target=bus.publish_sync, args=("orders", [Message(n)])) for n in range(10)]
    seen: list[int] = []
    async with asyncio.timeout(20):
        for thread in threads:
            thread.start()
        while len(seen) < 10:
            seen += [delivery.value for delivery in await reader.receive()]
            await reader.commit()
    assert sorted(seen) == list(range(10))
    await bus.close()


def test_metrics_name_what_an_operator_asks_for() -> None:
    bus = bus_with(2, topics={"ticks": TopicOptions(hot=True)})
    bus.subscribe("ticks", "a")
    bus.publish_sync("ticks", [Message(number) for number in range(3)])
    metrics = bus.scaling_metrics()
    assert (metrics["topics"], metrics["subscribers"], metrics["depth"], metrics["published_total"]) == (1, 1, 3, 3)
    assert (metrics["depth.ticks.v1.p0"], metrics["depth.ticks.v1.p1"]) == (2, 1)
    assert metrics["queue.ticks.p0.ring_published"] == 2
    assert metrics["published_per_s"] == pytest.approx(0.3)
    assert 0 < metrics["publish_p50_ms"] <= metrics["publish_p99_ms"]
