"""Publishers under pressure, on streams that hold a hundred records."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dw_platform.foundation import FakeClock, InvalidValueError, SystemClock
from dw_platform.log import Records
from dw_platform.scaling import (
    LimitCatalogue,
    LimitControl,
    PressureChanged,
    PressureLevel,
    ScalingRegistry,
)
from dw_platform.store import MemoryStore
from dw_platform.streaming import (
    Capabilities,
    DegradationDirective,
    PublishTimedOutError,
    StreamingLimits,
    StreamingScalingManager,
    StreamRejectedError,
    StreamsClosedError,
    UnsupportedByBrokerError,
    current_directive,
)
from tests.fakes.memory_broker import MemoryBroker
from tests.streaming.streams import ALONE, SOON_S, definition, eventually, memory, serving

QUICK = StreamingLimits(shortest_delay=timedelta(milliseconds=1), longest_delay=timedelta(milliseconds=20))


def records(count: int) -> Records:
    return Records([b"x"] * count)


def fill(streams: StreamingScalingManager, broker: MemoryBroker, waiting: int) -> None:
    """Let so many of a hundred records wait, and let the gauge see that for long enough to believe it."""
    broker.publish("orders", 0, records(waiting))
    for _ in range(30):
        streams.refresh()


def read_all(broker: MemoryBroker) -> None:
    broker.commit("orders", "g", broker.end_offsets("orders"))


@pytest.fixture
def broker() -> MemoryBroker:
    return memory()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def open_streams(broker: MemoryBroker, store: MemoryStore) -> Iterator[Any]:
    """Return a function that opens the stream `orders` with a strategy; nothing runs in the background."""
    opened: list[StreamingScalingManager] = []

    def open_with(strategy: str, **more: Any) -> StreamingScalingManager:
        limits = more.pop("limits", QUICK)
        one = definition(broker, strategy=strategy, capacity=100, groups=("g",), **more)
        streams = StreamingScalingManager([one], store=store, limits=limits)
        streams.offsets("orders")
        opened.append(streams)
        return streams

    yield open_with
    for streams in opened:
        streams.close()


def test_depth_is_what_the_slowest_counting_group_has_not_read(broker: MemoryBroker) -> None:
    with serving(definition(broker, groups=("slow", "quick"), capacity=100), started=False) as streams:
        for _ in range(4):
            streams.publish_sync("orders", records(5))
        broker.commit("orders", "quick", broker.end_offsets("orders"))
        broker.commit("orders", "slow", {0: 5})
        broker.commit("orders", "nobody-cares", {0: 1})
        streams.refresh()
        assert streams.backpressure("orders").depth.depth() == 15


def test_what_this_process_publishes_counts_before_the_broker_is_asked_again(broker: MemoryBroker) -> None:
    with serving(definition(broker, groups=("g",), capacity=1_000), started=False) as streams:
        streams.publish_sync("orders", records(7))
        streams.publish_sync("orders", records(3))
        assert streams.backpressure("orders").depth.depth() == 10
        streams.refresh()
        assert streams.backpressure("orders").depth.depth() == 10


def test_a_publish_that_failed_does_not_count_once_the_broker_was_asked(broker: MemoryBroker) -> None:
    with serving(definition(broker, groups=("g",), capacity=1_000), started=False) as streams:
        streams.offsets("orders")
        broker.fail(ConnectionError("away"))
        with pytest.raises(ConnectionError):
            streams.publish_sync("orders", records(7))
        streams.refresh()
        assert streams.backpressure("orders").depth.depth() == 0
        assert streams.scaling_metrics()["failed_total"] == 7


def test_a_stream_that_nobody_has_to_read_is_never_full(broker: MemoryBroker) -> None:
    with serving(definition(broker, capacity=1), started=False) as streams:
        for _ in range(20):
            assert streams.publish_sync("orders", records(5)).level is PressureLevel.NORMAL


def test_at_warning_the_receipt_carries_the_header(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("block")
    fill(streams, broker, 75)
    receipt = streams.publish_sync("orders", records(1))
    assert receipt.level is PressureLevel.WARNING
    assert receipt.headers == {"X-Backpressure": "warning"}


def test_block_lets_a_publisher_in_when_depth_falls(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("block")
    fill(streams, broker, 100)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(streams.publish_sync, "orders", records(1))
        eventually(lambda: streams.scaling_metrics()["waited_total"])
        assert broker.end_offsets("orders")[0] == 100
        read_all(broker)
        assert waiting.result(SOON_S).records == 1


def test_block_gives_up_after_the_publishers_own_time(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("block")
    fill(streams, broker, 100)
    with pytest.raises(PublishTimedOutError) as error:
        streams.publish_sync("orders", records(1), timeout_s=0.01)
    assert error.value.topic == "orders"
    assert error.value.waited_s >= 0.01
    with pytest.raises(PublishTimedOutError):
        asyncio.run(streams.publish("orders", records(1), timeout_s=0.01))
    assert sum(broker.end_offsets("orders").values()) == 100
    assert streams.scaling_metrics()["timed_out_total"] == 2


def test_a_waiting_publisher_that_is_cancelled_has_published_nothing(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("block")
    fill(streams, broker, 100)

    async def scenario() -> None:
        waiting = asyncio.create_task(streams.publish("orders", records(1)))
        await asyncio.to_thread(eventually, lambda: streams.scaling_metrics()["waited_total"])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        read_all(broker)
        await streams.publish("orders", records(1))

    asyncio.run(scenario())
    assert sum(broker.end_offsets("orders").values()) == 101


def test_closing_wakes_whoever_waits(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("block")
    fill(streams, broker, 100)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(streams.publish_sync, "orders", records(1))
        eventually(lambda: streams.scaling_metrics()["waited_total"])
        streams.close()
        with pytest.raises(StreamsClosedError):
            waiting.result(SOON_S)
    with pytest.raises(StreamsClosedError):
        streams.publish_sync("orders", records(1))


def test_shed_load_refuses_when_full_and_says_when_to_come_back(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("shed_load")
    fill(streams, broker, 100)
    with pytest.raises(StreamRejectedError) as error:
        streams.publish_sync("orders", records(3))
    assert (error.value.topic, error.value.occupancy, error.value.retry_after_s) == ("orders", 1.0, 0.02)
    assert streams.scaling_metrics()["rejected_total"] == 3
    assert sum(broker.end_offsets("orders").values()) == 100


def test_shed_load_lets_a_critical_stream_wait_instead(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("shed_load", critical=True)
    fill(streams, broker, 100)
    assert streams.publish_sync("orders", records(1)).level is PressureLevel.SHEDDING
    assert streams.scaling_metrics()["delayed_total"] == 1


def test_a_delay_longer_than_the_publishers_time_ends_with_it(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("shed_load", critical=True)
    fill(streams, broker, 100)
    with pytest.raises(PublishTimedOutError):
        streams.publish_sync("orders", records(1), timeout_s=0.001)
    assert sum(broker.end_offsets("orders").values()) == 100


def test_a_burst_is_felt_before_the_broker_is_asked_again(open_streams: Any) -> None:
    streams = open_streams("shed_load", limits=StreamingLimits())
    streams.publish_sync("orders", records(96))
    with pytest.raises(StreamRejectedError):
        streams.publish_sync("orders", records(1))


def test_degrade_puts_a_directive_on_the_receipt_and_into_the_store(
    open_streams: Any, broker: MemoryBroker, store: MemoryStore
) -> None:
    streams = open_streams("degrade")
    assert current_directive(store, "orders") is None
    fill(streams, broker, 90)
    full = DegradationDirective(skip_enrichment=True, batch_factor=4)
    assert streams.publish_sync("orders", records(1)).directive == full
    assert streams.directive("orders") == current_directive(store, "orders") == full
    read_all(broker)
    for _ in range(30):
        streams.refresh()
    assert streams.directive("orders") is None
    assert current_directive(store, "orders") is None


def test_a_directive_whose_writer_died_is_void_after_a_while(broker: MemoryBroker) -> None:
    store = MemoryStore()
    clock = FakeClock()
    one = definition(broker, strategy="degrade", capacity=100, groups=("g",))
    with serving(one, store=store, clock=clock, started=False) as streams:
        streams.offsets("orders")
        fill(streams, broker, 75)
        assert current_directive(store, "orders", clock=clock) == DegradationDirective(batch_factor=2)
        clock.advance(20)
        streams.refresh()
        clock.advance(40)
        assert current_directive(store, "orders", clock=clock) is not None
        clock.advance(10)
        assert current_directive(store, "orders", clock=clock) is None


def test_a_directive_that_cannot_be_read_is_none(store: MemoryStore) -> None:
    for garbage in (b"", b"[]", b'{"at": "yesterday"}'):
        store.put("dw://internal/streaming/directive/orders", garbage)
        assert current_directive(store, "orders") is None


def test_drop_oldest_makes_room_and_says_what_is_gone(
    open_streams: Any, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    streams = open_streams("drop_oldest", durable=False)
    broker.publish("orders", 0, records(60))
    broker.publish("orders", 1, records(40))
    with caplog.at_level(logging.WARNING):
        streams.refresh()
    # A quarter of each partition goes, down to where Critical ends.
    assert broker.start_offsets("orders") == {0: 15, 1: 10, 2: 0, 3: 0}
    assert streams.scaling_metrics()["dropped_total"] == 25
    said = next(record for record in caplog.records if record.getMessage() == "oldest records dropped")
    assert (said.records, said.ranges) == (25, {"0": "0..14", "1": "0..9"})  # type: ignore[attr-defined]
    assert streams.publish_sync("orders", records(1)).records == 1


def test_drop_oldest_keeps_publishers_going_on_a_stream_that_nobody_reads(broker: MemoryBroker) -> None:
    one = definition(broker, strategy="drop_oldest", durable=False, capacity=100, groups=("g",))
    with serving(one) as streams:
        for _ in range(300):
            streams.publish_sync("orders", records(5))
        eventually(lambda: streams.backpressure("orders").depth.depth() < 100)
        kept = sum(broker.end_offsets("orders").values()) - sum(broker.start_offsets("orders").values())
        assert streams.scaling_metrics()["dropped_total"] == 1_500 - kept


def test_a_durable_stream_cannot_drop_and_neither_can_a_broker_without_the_ability(broker: MemoryBroker) -> None:
    with pytest.raises(InvalidValueError, match="durable"):
        definition(broker, strategy="drop_oldest")
    with pytest.raises(UnsupportedByBrokerError):
        definition(memory(Capabilities()), strategy="drop_oldest", durable=False)
    with serving(definition(broker), started=False) as streams:
        with pytest.raises(InvalidValueError, match="durable"):
            streams.set_strategy("orders", "drop_oldest")
        assert streams.current_limits().strategies == ()


@pytest.mark.parametrize("strategy", ["shed_load", "degrade", "adaptive"])
def test_switching_the_strategy_makes_those_who_wait_decide_again(
    open_streams: Any, broker: MemoryBroker, strategy: str
) -> None:
    streams = open_streams("block")
    fill(streams, broker, 100)
    with ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(streams.publish_sync, "orders", records(1)),
            pool.submit(lambda: asyncio.run(streams.publish("orders", records(1)))),
        ]
        eventually(lambda: streams.scaling_metrics()["waited_total"] == 2)
        streams.set_strategy("orders", strategy)
        if strategy == "degrade":
            assert all(one.result(SOON_S).directive for one in waiting)
        else:
            for one in waiting:
                with pytest.raises(StreamRejectedError):
                    one.result(SOON_S)
    assert streams.backpressure("orders").strategy == strategy


def test_switching_to_block_ends_a_delay(open_streams: Any, broker: MemoryBroker) -> None:
    slow = replace(QUICK, longest_delay=timedelta(hours=1), longest_wait=timedelta(hours=2))
    streams = open_streams("degrade", limits=slow)
    fill(streams, broker, 100)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(streams.publish_sync, "orders", records(1))
        eventually(lambda: streams.scaling_metrics()["delayed_total"])
        streams.set_strategy("orders", "block")
        eventually(lambda: streams.scaling_metrics()["waited_total"])
        read_all(broker)
        assert waiting.result(SOON_S).directive is None


def test_a_strategy_set_in_the_control_store_reaches_a_running_stream(open_streams: Any, store: MemoryStore) -> None:
    streams = open_streams("block")
    clock = SystemClock()
    control = LimitControl(store, LimitCatalogue({"streaming": streams.current_limits()}), clock=clock)
    registry = ScalingRegistry(store, node="test", clock=clock)
    registry.register(streams)
    changes = {"strategies": "orders=shed_load", "capacity_factor": "2"}
    control.set("streaming", changes, changed_by="operator", reason="a test")
    registry.poll()
    assert streams.backpressure("orders").strategy == "shed_load"
    assert streams.backpressure("orders").capacity == 200
    control.set("streaming", {"strategies": "nothing=block"}, changed_by="operator", reason="a mistake")
    registry.poll()
    assert streams.backpressure("orders").strategy == "shed_load"
    assert registry.publish() == 1


def test_changes_of_level_are_announced_with_the_subsystems_name(open_streams: Any, broker: MemoryBroker) -> None:
    streams = open_streams("block")
    heard, heard_of_orders = list[PressureChanged](), list[PressureChanged]()
    streams.on_pressure_change(heard.append)
    streams.backpressure("orders").on_change(heard_of_orders.append)
    fill(streams, broker, 100)
    assert (heard[-1].subsystem, heard[-1].after) == ("streaming", PressureLevel.SHEDDING)
    assert (heard_of_orders[-1].subsystem, heard_of_orders[-1].after) == ("streaming.orders", PressureLevel.SHEDDING)
    assert streams.backpressure_state().level is PressureLevel.SHEDDING


def test_many_publishers_share_the_room_that_a_slow_reader_makes(broker: MemoryBroker) -> None:
    """Eight threads publish ten times the capacity; depth stays near it and nothing is lost."""
    stop = threading.Event()
    one = definition(broker, strategy="block", capacity=100, groups=("g",))

    def read() -> None:
        while not stop.is_set():
            ends = broker.end_offsets("orders")
            committed = broker.committed("orders", "g")
            broker.commit("orders", "g", {p: min(committed.get(p, 0) + 10, end) for p, end in ends.items()})
            stop.wait(0.002)

    with serving(one) as streams, ThreadPoolExecutor(9) as pool:
        reader = pool.submit(read)
        publishers = [
            pool.submit(lambda: [streams.publish_sync("orders", records(1)) for _ in range(125)]) for _ in range(8)
        ]
        for publisher in publishers:
            publisher.result(SOON_S)
        stop.set()
        reader.result(SOON_S)
    assert sum(broker.end_offsets("orders").values()) == 1_000


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"max_streams": 0}, "max_streams"),
        ({"capacity_factor": 0.0}, "capacity_factor"),
        ({"strategies": ("orders",)}, "strategies"),
        ({"strategies": ("orders=panic",)}, "strategies"),
        ({"strategies": ("=block",)}, "strategies"),
        ({"shortest_delay": timedelta(seconds=2)}, "shortest_delay"),
        ({"longest_wait": timedelta(0)}, "longest_wait"),
        ({"session_timeout": timedelta(0)}, "session_timeout"),
        ({"max_producers": 0}, "max_producers"),
    ],
)
def test_limits_that_make_no_sense_are_refused_when_built(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        StreamingLimits(**wrong)
    assert error.value.field == field


def test_streams_of_one_topic_count_together_and_must_agree() -> None:
    broker = memory(ALONE)
    one = definition(broker, groups=("a",), capacity=50)
    other = definition(broker, groups=("b", "a"), capacity=20, critical=True, partitions=8)
    with serving(one, other, started=False) as streams:
        assert streams.topic("orders").partitions == 8
        assert broker.groups("orders") == ["a", "b"]
        assert streams.backpressure("orders").capacity == 20
    with pytest.raises(InvalidValueError, match="the same for all streams of orders"):
        StreamingScalingManager([one, replace(other, strategy="adaptive")], store=MemoryStore())
