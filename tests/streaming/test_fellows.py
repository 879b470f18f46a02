"""Publishers in several processes pause together when one of them adds partitions."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from dw_platform.foundation import FakeClock
from dw_platform.log import Records
from dw_platform.store import MemoryStore, StoreUnavailableError, internal_key, internal_prefix
from dw_platform.streaming import Capabilities, StreamingLimits
from dw_platform.streaming.fellows import Fellows
from dw_platform.streaming.gate import PartitionGate
from dw_platform.streaming.partition_map import CorruptMapError, PartitionMap
from dw_platform.streaming.waits import run
from tests.fakes.memory_broker import MemoryBroker
from tests.streaming.streams import SOON_S, definition, keyed, memory, serving
from tests.streaming.test_growth import Reader

SHARED = Capabilities(drops=True)
WAIT = timedelta(seconds=5)


class Process:
    """The gate of one publishing process and what keeps it in step."""

    def __init__(self, store: MemoryStore, clock: FakeClock, partitions: int = 2) -> None:
        self.gate = PartitionGate("orders", 1)
        self.fellows = Fellows(store, self.gate, shared=True, clock=clock)
        self.fellows.open(partitions)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_everybody_uses_the_number_of_the_map(store: MemoryStore, clock: FakeClock) -> None:
    assert [Process(store, clock, partitions).gate.partitions for partitions in (2, 5, 3)] == [2, 2, 2]


def test_a_pause_is_obeyed_when_nothing_is_on_its_way_any_more(store: MemoryStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    assert run(other.gate.enter(0.0)) == 2
    paused = one.fellows.pause(WAIT)
    assert paused is not None
    other.fellows.follow()
    assert other.gate.is_shut
    assert len(one.fellows.publishing(paused)) == 1
    other.gate.leave()
    other.fellows.follow()
    assert one.fellows.publishing(paused) == []
    assert one.fellows.resume(paused, 6)
    other.fellows.follow()
    assert (one.gate.partitions, other.gate.partitions, other.gate.is_shut) == (6, 6, False)


def test_a_newcomer_is_waited_for_or_finds_the_pause(store: MemoryStore, clock: FakeClock) -> None:
    one = Process(store, clock)
    paused = one.fellows.pause(WAIT)
    assert paused is not None
    assert Process(store, clock).gate.is_shut
    assert one.fellows.publishing(paused) == []


def test_two_do_not_grow_a_topic_at_once(store: MemoryStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    paused = one.fellows.pause(WAIT)
    assert paused is not None
    assert other.fellows.pause(WAIT) is None
    assert one.fellows.resume(paused)
    assert other.fellows.pause(WAIT) is not None


def test_who_died_while_pausing_the_others_holds_them_up_for_a_while_only(store: MemoryStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    paused = one.fellows.pause(WAIT)
    assert paused is not None
    other.fellows.follow()
    assert other.gate.is_shut
    clock.advance(5)
    other.fellows.follow()
    assert not other.gate.is_shut
    # It comes back too late, and changes nothing.
    assert not one.fellows.resume(paused, 6)
    assert (one.gate.partitions, one.gate.is_shut) == (2, False)


def test_a_silent_publisher_is_not_waited_for_and_looks_before_it_publishes_again(
    store: MemoryStore, clock: FakeClock
) -> None:
    one, other = Process(store, clock), Process(store, clock)
    assert other.fellows.up_to_date
    clock.advance(5)
    assert not other.fellows.up_to_date
    clock.advance(5)
    paused = one.fellows.pause(WAIT)
    assert paused is not None
    assert one.fellows.publishing(paused) == []


def test_who_leaves_is_forgotten(store: MemoryStore, clock: FakeClock) -> None:
    one = Process(store, clock)
    assert len(store.list_versions(internal_prefix("streaming", "publishers", "orders"))) == 1
    one.fellows.leave()
    assert not store.list_versions(internal_prefix("streaming", "publishers", "orders"))


@pytest.mark.parametrize("shared", [True, False])
def test_nobody_gets_in_with_the_old_number_while_the_new_one_is_being_written(
    store: MemoryStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    gate = PartitionGate("orders", 1)
    fellows = Fellows(store, gate, shared=shared, clock=clock)
    fellows.open(2)
    paused = fellows.pause(WAIT)
    assert paused is not None
    write = store.compare_and_set

    def slow(*args: Any, **more: Any) -> Any:
        assert fellows.up_to_date
        fellows.follow()  # as a publisher or another thread would
        assert gate.is_shut
        return write(*args, **more)

    monkeypatch.setattr(store, "compare_and_set", slow)
    assert fellows.resume(paused, 6)
    assert (gate.is_shut, gate.partitions) == (False, 6)


def test_after_a_failed_store_nobody_publishes_before_it_was_asked(
    store: MemoryStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shared in (True, False):
        gate = PartitionGate("orders", 1)
        fellows = Fellows(store, gate, shared=shared, clock=clock)
        fellows.open(2)
        paused = fellows.pause(WAIT)
        assert paused is not None

        def away(*_args: object, **_more: object) -> None:
            raise StoreUnavailableError("memory://", "a test said so")

        with monkeypatch.context() as patch:
            patch.setattr(store, "compare_and_set", away)
            with pytest.raises(StoreUnavailableError):
                fellows.resume(paused, 6)
        assert not fellows.up_to_date
        clock.advance(6)
        fellows.follow()
        assert (gate.is_shut, gate.partitions) == (False, 2)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"partitions": 0}', b'{"partitions": 2, "pause": 3}'])
def test_a_map_that_is_none_is_named(store: MemoryStore, content: bytes) -> None:
    store.put(internal_key("streaming", "map", "orders"), content)
    with pytest.raises(CorruptMapError, match="delete the key"):
        PartitionMap(store, "orders").load(2)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_key_keeps_its_order_while_one_of_two_processes_adds_partitions(seed: int) -> None:
    """Publishers of two processes take turns with the same keys, so that only the order of publishing counts."""
    broker, store, chance = memory(SHARED), MemoryStore(), random.Random(seed)
    limits = StreamingLimits(growth_wait=timedelta(seconds=20))
    one = definition(broker, partitions=2, groups=("g",))
    reader = Reader(broker, seed)
    with (
        serving(one, store=store, limits=limits) as first,
        serving(one, store=store, limits=limits) as second,
        ThreadPoolExecutor(2) as pool,
    ):
        first.offsets("orders")
        second.offsets("orders")
        reading = pool.submit(reader.run)

        def publish() -> None:
            for number in range(300):
                streams = chance.choice([first, second])
                streams.publish_sync("orders", keyed((b"k%d" % (number % 5), b"%d" % number)))

        publishing = pool.submit(publish)
        for partitions in (3, 7):
            growth = first.grow("orders", partitions)
            assert growth.grown, growth.reason
        publishing.result(SOON_S)
        reader.stop.set()
        reading.result(SOON_S)
        assert {streams._streams["orders"].gate.partitions for streams in (first, second)} == {7}
    numbers = [int(value) for value in reader.seen]
    assert sorted(numbers) == list(range(300))
    for key in range(5):
        mine = [number for number in numbers if number % 5 == key]
        assert mine == sorted(mine)


def test_a_process_that_was_asleep_catches_up_with_the_map_before_it_publishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker: MemoryBroker = memory(SHARED)
    store = MemoryStore()
    with (
        serving(definition(broker, partitions=1), store=store, started=False) as awake,
        serving(definition(broker, partitions=1), store=store, started=False) as asleep,
    ):
        asleep.publish_sync("orders", keyed((b"k", b"1")))
        asleep._follower.stop()
        monkeypatch.setattr(asleep._streams["orders"].fellows, "_looked_at", -1e9)
        store.delete(asleep._streams["orders"].fellows._key)  # as it is after ten seconds of silence
        assert awake.grow("orders", 8).grown
        parts = asleep.publish_sync("orders", keyed((b"k", b"2"))).parts
        assert parts[0].partition == awake.publish_sync("orders", keyed((b"k", b"3"))).parts[0].partition != 0
        assert asleep.publish_sync("orders", Records([b"x"])).records == 1
