import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dw_platform.bus import (
    HEADER,
    BusLimits,
    Message,
    MessageBusBackpressure,
    PublishRejectedError,
    ScalableMessageBus,
    TopicOptions,
    decide_publish,
)
from dw_platform.foundation import FakeClock, TransientError
from dw_platform.scaling import GaugeReading, PressureChanged, PressureLevel, PressureThresholds
from tests.bus.loops import in_event_loop

NORMAL, WARNING, CRITICAL, SHEDDING = PressureLevel
LIMITS = BusLimits()
MS = timedelta(milliseconds=1)


def reading(level: PressureLevel, occupancy: float) -> GaugeReading:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return GaugeReading(subsystem="bus", level=level, occupancy=occupancy, latest=occupancy, at=now)


@pytest.mark.parametrize(
    ("level", "occupancy", "critical", "accepted", "delay_ms", "header"),
    [
        (NORMAL, 0.3, False, True, 0, None),
        (NORMAL, 0.3, True, True, 0, None),
        (WARNING, 0.72, False, True, 0, "warning"),
        (CRITICAL, 0.78, False, True, 10, "critical"),  # on its way down: the shortest delay
        (CRITICAL, 0.85, False, True, 10, "critical"),
        (CRITICAL, 0.90, False, True, 100, "critical"),
        (CRITICAL, 0.95, True, True, 1000, "critical"),
        (SHEDDING, 0.97, False, False, 0, "shedding"),
        (SHEDDING, 0.97, True, True, 1000, "shedding"),
        (SHEDDING, 1.0, True, True, 1000, "shedding"),
    ],
)
def test_what_a_publisher_gets_at_each_level(  # noqa: PLR0917 - a table
    level: PressureLevel,
    occupancy: float,
    critical: bool,  # noqa: FBT001
    accepted: bool,  # noqa: FBT001
    delay_ms: int,
    header: str | None,
) -> None:
    decision = decide_publish(reading(level, occupancy), LIMITS, critical=critical)
    assert (decision.accepted, decision.level, decision.headers.get(HEADER)) == (accepted, level, header)
    assert decision.delay / MS == pytest.approx(delay_ms)
    assert decision.retry_after == (None if accepted else LIMITS.longest_delay)


def test_the_delay_grows_with_occupancy_within_its_bounds() -> None:
    delays = [decide_publish(reading(CRITICAL, o / 100), LIMITS, critical=False).delay for o in range(85, 96)]
    assert delays == sorted(set(delays))
    assert (delays[0], delays[-1]) == (LIMITS.shortest_delay, LIMITS.longest_delay)


def gauge_at(depth: int, limits: BusLimits) -> tuple[MessageBusBackpressure, FakeClock]:
    clock = FakeClock()
    return MessageBusBackpressure(lambda: depth, limits, clock=clock), clock


def test_thresholds_and_delays_changed_while_it_runs_count_at_once() -> None:
    limits = BusLimits(max_message_queue_size=100)
    pressure, _ = gauge_at(50, limits)
    assert pressure.decide(critical=False).level is NORMAL
    early = PressureThresholds(
        warning=0.2, critical=0.4, shedding=0.9, warning_exit=0.1, critical_exit=0.3, shedding_exit=0.8
    )
    pressure.reconfigure(replace(limits, thresholds=early, shortest_delay=20 * MS))
    decision = pressure.decide(critical=False)
    assert decision.level is CRITICAL
    assert decision.delay >= 20 * MS


def test_changes_of_level_are_announced() -> None:
    heard: list[PressureChanged] = []
    pressure, _ = gauge_at(99, BusLimits(max_message_queue_size=100))
    pressure.on_change(heard.append)
    pressure.decide(critical=False)
    assert [(change.before, change.after) for change in heard] == [(NORMAL, SHEDDING)]


def test_an_idle_bus_is_sampled_when_somebody_looks_so_its_pressure_falls() -> None:
    depths = [99, 0]
    clock = FakeClock()
    pressure = MessageBusBackpressure(
        lambda: depths.pop(0) if depths else 0, BusLimits(max_message_queue_size=100), clock=clock
    )
    assert pressure.reading().level is SHEDDING
    for _ in range(10):
        clock.advance(1)
        level = pressure.reading().level
    assert level is NORMAL


def test_a_burst_within_one_sampling_period_is_seen() -> None:
    depth = 0
    pressure = MessageBusBackpressure(lambda: depth, BusLimits(max_message_queue_size=1_000), clock=FakeClock())
    pressure.decide(critical=False)
    depth = 990
    assert pressure.decide(critical=False, messages=10).accepted is False


def filled(count: int, *, capacity: int = 20, **limits: timedelta) -> ScalableMessageBus:
    """A bus with `count` messages that nobody has read yet, and delays too short to be felt."""
    quick = {"shortest_delay": timedelta(microseconds=100), "longest_delay": timedelta(milliseconds=1)}
    bus = ScalableMessageBus(
        limits=BusLimits(max_message_queue_size=capacity, partitions=2, **(quick | limits)),
        topics={"alarms": TopicOptions(critical=True)},
    )
    bus.subscribe("orders", "billing")
    bus.publish_sync("orders", [Message(number) for number in range(count)])
    return bus


def settle(bus: ScalableMessageBus, level: PressureLevel) -> None:
    """Let the average reach what the bus holds; samples are 10 ms apart."""
    deadline = time.monotonic() + 10
    while bus.backpressure_state().level is not level:
        assert time.monotonic() < deadline, bus.backpressure_state()
        time.sleep(0.005)


def test_a_full_bus_refuses_other_topics_and_takes_critical_ones_after_the_longest_delay() -> None:
    bus = filled(20, longest_delay=timedelta(milliseconds=30))
    settle(bus, SHEDDING)
    with pytest.raises(PublishRejectedError, match=r"Try again in 0\.03 s") as refused:
        bus.publish_sync("orders", [Message("x")])
    assert isinstance(refused.value, TransientError)
    assert (refused.value.topic, refused.value.retry_after_s) == ("orders", 0.03)
    started = time.monotonic()
    assert bus.publish_sync("alarms", [Message("fire")]).accepted
    assert time.monotonic() - started >= 0.03
    totals = bus.stats().totals
    assert (totals["rejected_total"], totals["delayed_total"], totals["depth"]) == (1, 1, 20)


def test_at_warning_messages_carry_the_header_and_so_does_the_decision() -> None:
    bus = filled(15)
    settle(bus, WARNING)
    reader = bus.subscribe("notes")
    decision = bus.publish_sync("notes", [Message("hello", headers={"id": "7"})])
    assert decision.headers == {"X-Backpressure": "warning"}
    assert reader.take()[0].message.headers == {"id": "7", "X-Backpressure": "warning"}


def test_consumers_take_one_at_a_time_from_critical_on_and_batches_again_below() -> None:
    bus = filled(18)
    reader = bus.subscribe("orders", "search")
    bus.remove_group("orders", "billing")
    bus.publish_sync("orders", [Message(number) for number in range(18)])
    settle(bus, CRITICAL)
    sizes = [len(reader.take(10)) for _ in range(5)]
    reader.commit_sync()
    settle(bus, WARNING)
    assert sizes == [1] * 5
    assert len(reader.take(10)) == 10


@in_event_loop
async def test_a_delayed_publisher_does_not_hold_up_the_event_loop() -> None:
    bus = filled(18, shortest_delay=timedelta(milliseconds=50), longest_delay=timedelta(milliseconds=50))
    settle(bus, CRITICAL)
    publishing = asyncio.create_task(bus.publish("orders", Message("late")))
    turns = 0
    while not publishing.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert (await publishing).delay == timedelta(milliseconds=50)
    assert turns > 3


@in_event_loop
async def test_a_publisher_that_gives_up_while_it_waits_has_published_nothing() -> None:
    bus = filled(18, shortest_delay=timedelta(seconds=30), longest_delay=timedelta(seconds=30))
    settle(bus, CRITICAL)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await bus.publish("orders", Message("never"))
    assert bus.stats().totals["depth"] == 18
