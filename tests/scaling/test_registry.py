import json
import logging
import math
import time
from collections.abc import Callable

import pytest

from dw_platform.foundation import FakeClock, InvalidValueError, SystemClock
from dw_platform.scaling import (
    BackpressureAware,
    LimitCatalogue,
    LimitControl,
    LimitStatus,
    PressureLevel,
    PressureThresholds,
    ScalingRegistry,
)
from dw_platform.scaling.managed import ManagedSubsystem
from dw_platform.store.contract import Entry
from dw_platform.store.errors import StoreUnavailableError
from dw_platform.store.memory import MemoryStore
from tests.scaling.sample_queue import QueueLimits, SampleQueue

NODE = "gateway@host1"
KEY = "dw://internal/limits/queue"
DEADLINE_S = 10.0


class FragileStore(MemoryStore):
    """A store whose writes fail while it is away."""

    away = False

    def put(self, key: str, value: bytes) -> Entry:
        if self.away:
            raise StoreUnavailableError("memory://", "pulled plug")
        return super().put(key, value)


class World:
    """One process with one queue, and an operator elsewhere."""

    def __init__(self) -> None:
        self.clock, self.store = FakeClock(), FragileStore()
        self.queue = SampleQueue(clock=self.clock, limits=QueueLimits(partitions=4))
        self.registry = ScalingRegistry(self.store, node=NODE, clock=self.clock)
        self.control = LimitControl(self.store, LimitCatalogue({"queue": QueueLimits(partitions=4)}), clock=self.clock)

    def set(self, **changes: object) -> int:
        return self.control.set("queue", changes, changed_by="operator", reason="more load").version

    def status(self) -> LimitStatus:
        (status,) = self.control.statuses("queue")
        return status


@pytest.fixture
def world() -> World:
    return World()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def test_limits_stored_before_the_process_started_are_applied_by_registering(world: World) -> None:
    version = world.set(partitions=16)
    world.registry.register(world.queue)
    assert world.queue.current_limits() == QueueLimits(partitions=16)
    assert (world.status().version, world.status().applied) == (version, True)


def test_a_change_takes_effect_at_the_next_look_down_to_the_gauge(world: World) -> None:
    world.registry.register(world.queue)
    world.queue.gauge.observe(0.65)
    version = world.set(thresholds={"warning": 0.62}, max_bytes="1MiB")
    world.registry.poll()
    assert world.queue.current_limits() == QueueLimits(
        partitions=4, max_bytes=2**20, thresholds=PressureThresholds(warning=0.62)
    )
    assert world.queue.backpressure_state().level is PressureLevel.WARNING
    assert (world.status().version, world.status().limits["max_bytes"]) == (version, 2**20)


def test_limits_without_a_record_stay_as_configured_and_are_reported(world: World) -> None:
    world.registry.register(world.queue)
    world.registry.poll()
    assert world.queue.current_limits() == QueueLimits(partitions=4)
    assert (world.status().version, world.status().error) == (None, None)


def test_a_deleted_record_gives_back_the_configured_limits(world: World) -> None:
    world.registry.register(world.queue)
    world.set(partitions=16)
    world.registry.poll()
    world.store.delete(KEY)
    world.registry.poll()
    assert world.queue.current_limits() == QueueLimits(partitions=4)
    assert world.status().version is None


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"not json", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"values": {}}', "cannot be read"),
        ({"partitions": 0}, "at least 1"),
        ({"thresholds.warning": 0.9}, "thresholds.critical cannot be 0.85"),
        ({"sample_rate": float("nan")}, "a finite number"),
        ({"no_such_limit": 1}, "there is no such limit"),
        ({"partitions": 2}, "at least 3 hold data"),
    ],
)
def test_a_refused_record_is_reported_and_the_old_limits_stay(
    world: World, caplog: pytest.LogCaptureFixture, value: bytes | dict[str, object], complaint: str
) -> None:
    world.registry.register(world.queue)
    world.set(partitions=8)
    world.registry.poll()
    world.queue.partitions_in_use = 3
    about = {"changes": {}, "changed_by": "someone", "reason": "a try", "at": world.clock.now().isoformat()}
    raw = value if isinstance(value, bytes) else json.dumps({"values": value, **about}).encode()
    version = world.store.put(KEY, raw).version
    with caplog.at_level(logging.WARNING):
        world.registry.poll()
    assert world.queue.current_limits() == QueueLimits(partitions=8)
    assert world.status().version == version
    assert complaint in str(world.status().error)
    assert world.status().limits["partitions"] == 8
    assert "limits refused" in caplog.text


def test_after_a_refused_record_the_next_good_one_is_applied(world: World) -> None:
    world.registry.register(world.queue)
    world.store.put(KEY, b"damaged")
    world.registry.poll()
    world.control.reset("queue", changed_by="operator", reason="damaged")
    world.set(partitions=16)
    world.registry.poll()
    assert world.queue.current_limits() == QueueLimits(partitions=16)
    assert world.status().applied


def test_a_subsystem_that_breaks_does_not_keep_others_from_their_limits(world: World) -> None:
    class Broken(SampleQueue):
        def reconfigure_limits(self, limits: QueueLimits) -> None:
            raise RuntimeError(f"cannot take {limits.partitions}")

    broken = Broken(clock=world.clock, limits=QueueLimits(partitions=4), name="broken")
    catalogue = LimitCatalogue({"broken": QueueLimits(), "queue": QueueLimits()})
    control = LimitControl(world.store, catalogue, clock=world.clock)
    for subsystem in (broken, world.queue):
        world.registry.register(subsystem)
        control.set(subsystem.name, {"partitions": 16}, changed_by="operator", reason="more load")
    world.registry.poll()
    assert world.queue.current_limits().partitions == 16
    assert [status.error for status in control.statuses()] == ["cannot take 16", None]


def test_registering_and_watching_apply_the_same_record_once(world: World) -> None:
    applied: list[QueueLimits] = []

    class Counting(SampleQueue):
        def reconfigure_limits(self, limits: QueueLimits) -> None:
            applied.append(limits)
            super().reconfigure_limits(limits)

    world.set(partitions=16)
    world.registry.register(Counting(clock=world.clock))
    world.registry.poll()
    world.registry.poll()
    assert applied == [QueueLimits(partitions=16)]


def test_a_refused_record_is_reported_once_though_registering_and_watching_both_see_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.store.put(KEY, b"damaged")
    world.registry.register(world.queue)
    world.registry.poll()
    assert [record.message for record in caplog.records] == ["limits refused"]


def test_a_record_that_arrives_after_a_newer_one_is_ignored(world: World) -> None:
    managed = ManagedSubsystem(world.queue, node=NODE, clock=world.clock)
    entries = []
    for count in (10, 20):
        world.set(partitions=count)
        entries.append(world.store.get(KEY))
    for entry in reversed(entries):
        managed.take(entry)
    assert world.queue.current_limits().partitions == 20


def test_limits_of_a_subsystem_that_runs_elsewhere_are_left_alone(world: World) -> None:
    world.registry.register(world.queue)
    world.store.put("dw://internal/limits/elsewhere", b"whatever")
    world.store.put(f"{KEY}/deeper", b"whatever")
    world.registry.poll()
    assert [status.subsystem for status in world.control.statuses()] == ["queue"]
    assert world.status().applied


def test_a_snapshot_carries_numbers_and_pressure(world: World) -> None:
    world.registry.register(world.queue)
    world.queue.metrics = {"items": 12, "publish_p99_s": 0.25}
    world.queue.gauge.observe(0.88)
    assert world.registry.publish() == 1
    (snapshot,) = world.control.metrics()
    assert (snapshot.node, snapshot.subsystem, snapshot.at) == (NODE, "queue", world.clock.now())
    assert snapshot.values == {"items": 12, "publish_p99_s": 0.25}
    assert (snapshot.level, snapshot.occupancy) == (PressureLevel.CRITICAL, 0.88)


def test_numbers_that_json_cannot_carry_are_logged_and_hide_no_other_subsystem(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    odd = SampleQueue(clock=world.clock, name="odd")
    odd.metrics = {"latency_s": math.nan}
    world.registry.register(odd)
    world.registry.register(world.queue)
    assert world.registry.publish() == 1
    assert [snapshot.subsystem for snapshot in world.control.metrics()] == ["queue"]
    assert "latency_s cannot be nan" in caplog.text


def test_while_the_store_is_away_limits_stay_and_the_status_follows_later(world: World) -> None:
    world.registry.register(world.queue)
    version = world.set(partitions=16)
    world.store.away = True
    world.registry.poll()
    with pytest.raises(StoreUnavailableError):
        world.registry.publish()
    assert world.queue.current_limits().partitions == 16
    assert world.status().version is None
    world.store.away = False
    world.registry.publish()
    assert world.status().version == version


def test_a_closed_registry_leaves_no_snapshot_and_no_status_behind(world: World) -> None:
    world.registry.register(world.queue)
    world.registry.publish()
    world.registry.close()
    assert world.control.metrics() == ()
    assert world.control.statuses() == ()


def test_an_unregistered_subsystem_keeps_its_limits_and_follows_no_more(world: World) -> None:
    world.registry.register(world.queue)
    world.registry.unregister("queue")
    world.registry.unregister("queue")
    world.set(partitions=16)
    world.registry.poll()
    assert world.queue.current_limits().partitions == 4


def test_a_second_subsystem_of_the_same_name_is_refused(world: World) -> None:
    world.registry.register(world.queue)
    with pytest.raises(InvalidValueError) as caught:
        world.registry.register(SampleQueue(clock=world.clock))
    assert caught.value.value == "queue"


@pytest.mark.parametrize("bad", [{"node": " "}, {"publish_every_s": 0}, {"publish_every_s": math.nan}])
def test_a_registry_that_could_not_work_is_refused(world: World, bad: dict[str, object]) -> None:
    arguments: dict[str, object] = {"node": NODE, "clock": world.clock, **bad}
    with pytest.raises(InvalidValueError):
        ScalingRegistry(world.store, **arguments)  # type: ignore[arg-type]


def test_a_change_of_pressure_is_published_long_before_the_next_pulse() -> None:
    clock, store = SystemClock(), MemoryStore()
    queue = SampleQueue(clock=clock)
    control = LimitControl(store, LimitCatalogue({"queue": QueueLimits()}), clock=clock)
    assert isinstance(queue, BackpressureAware)
    registry = ScalingRegistry(store, node=NODE, clock=clock, publish_every_s=3600)
    registry.register(queue)
    with registry:
        eventually(lambda: len(control.metrics()) == 1)
        queue.gauge.observe(1.0)
        eventually(lambda: [snapshot.level for snapshot in control.metrics()] == [PressureLevel.SHEDDING])


def test_a_running_registry_applies_changes_by_itself_and_survives_an_outage() -> None:
    clock, store = SystemClock(), FragileStore()
    queue = SampleQueue(clock=clock)
    control = LimitControl(store, LimitCatalogue({"queue": QueueLimits()}), clock=clock)
    with ScalingRegistry(store, node=NODE, clock=clock, publish_every_s=0.01, watch_every_s=0.01) as registry:
        registry.register(queue)
        store.away = True
        queue.metrics = {"items": 5}
        control_record = control.set("queue", {"partitions": 16}, changed_by="operator", reason="more load")
        eventually(lambda: queue.current_limits().partitions == 16)
        store.away = False
        eventually(lambda: [snapshot.values for snapshot in control.metrics()] == [{"items": 5}])
        eventually(lambda: [status.version for status in control.statuses()] == [control_record.version])
