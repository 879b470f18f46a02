"""Adding partitions while records flow: order within a key, nothing lost, and a reason where it does not happen."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.log import Records
from dw_platform.scaling import ScalabilityConfig
from dw_platform.store import MemoryStore, PersistentStore
from dw_platform.streaming import (
    Broker,
    BrokerUnavailableError,
    Capabilities,
    ConsumersWanted,
    PublishTimedOutError,
    StreamingLimits,
    StreamingScalingManager,
)
from tests.streaming.streams import ALONE, SOON_S, definition, embedded, eventually, keyed, memory, serving

LIMITS = StreamingLimits(growth_wait=timedelta(seconds=20))


class Reader:
    """Reads everything of a topic as a group, partition after partition in random order, and commits."""

    def __init__(self, broker: Broker, seed: int, group: str = "g") -> None:
        self.broker, self.group, self.chance = broker, group, random.Random(seed)
        self.seen: list[bytes] = []
        self.stop = threading.Event()

    def run(self) -> None:
        fetchers: dict[int, object] = {}
        positions: dict[int, int] = {}
        while not self.stop.is_set() or self._unread(positions):
            partitions = list(range(self.broker.topic("orders").partitions))
            self.chance.shuffle(partitions)
            for number in partitions[: self.chance.randint(1, len(partitions))]:
                fetcher = fetchers.setdefault(number, self.broker.fetcher("orders", number))
                batch = fetcher.fetch(positions.get(number, 0), max_records=self.chance.randint(1, 20))  # type: ignore[attr-defined]
                self.seen += batch.to_table()["value"].to_pylist()
                positions[number] = batch.next_offset
                self.broker.commit("orders", self.group, {number: batch.next_offset})
            if self.chance.random() < 0.2:
                time.sleep(0.001)
        for fetcher in fetchers.values():
            fetcher.close()  # type: ignore[attr-defined]

    def _unread(self, positions: dict[int, int]) -> bool:
        return any(end > positions.get(number, 0) for number, end in self.broker.end_offsets("orders").items())


def open_broker(kind: str, directory: Path, store: PersistentStore) -> Broker:
    return memory() if kind == "memory" else embedded(directory / "log", store)


@pytest.mark.parametrize(("kind", "seed"), [("memory", 1), ("memory", 2), ("memory", 3), ("embedded", 4)])
def test_each_key_is_read_in_its_order_while_partitions_are_added_under_load(
    tmp_path: Path, kind: str, seed: int
) -> None:
    store, chance = MemoryStore(), random.Random(seed)
    broker = open_broker(kind, tmp_path, store)
    reader = Reader(broker, seed)
    sizes = [chance.randint(1, 12) for _ in range(60)]

    def publish(publisher: int) -> None:
        number = 0
        for size in sizes:
            pairs = [
                (b"p%d-k%d" % (publisher, (number + n) % 7), b"%d:%d" % (publisher, number + n)) for n in range(size)
            ]
            streams.publish_sync("orders", keyed(*pairs))
            number += size

    with broker, serving(definition(broker, partitions=2, groups=("g",)), store=store, limits=LIMITS) as streams:
        streams.offsets("orders")
        with ThreadPoolExecutor(4) as pool:
            reading = pool.submit(reader.run)
            publishers = [pool.submit(publish, number) for number in range(3)]
            for partitions in (3, 5, 11):
                growth = streams.grow("orders", partitions)
                assert growth.grown, growth.reason
            for publisher in publishers:
                publisher.result(SOON_S)
            reader.stop.set()
            reading.result(SOON_S)
        assert streams.topic("orders").partitions == 11
    total = sum(sizes)
    for publisher in range(3):
        numbers = [int(value.split(b":")[1]) for value in reader.seen if value.startswith(b"%d:" % publisher)]
        assert sorted(numbers) == list(range(total))
        for key in range(7):
            mine = [number for number in numbers if number % 7 == key]
            assert mine == sorted(mine)


def test_a_growth_waits_for_what_is_on_its_way_and_publishers_wait_for_the_growth() -> None:
    broker = memory()
    with serving(definition(broker, partitions=2, groups=("g",)), limits=LIMITS) as streams:
        streams.publish_sync("orders", Records([b"early"]))
        with ThreadPoolExecutor(2) as pool:
            growing = pool.submit(streams.grow, "orders", 4)
            eventually(lambda: streams._streams["orders"].gate.is_shut)
            waiting = pool.submit(streams.publish_sync, "orders", Records([b"late"]))
            with pytest.raises(PublishTimedOutError):
                streams.publish_sync("orders", Records([b"impatient"]), timeout_s=0.01)
            assert sum(broker.end_offsets("orders").values()) == 1
            broker.commit("orders", "g", broker.end_offsets("orders"))
            assert growing.result(SOON_S).grown
            assert waiting.result(SOON_S).records == 1
    assert sum(broker.end_offsets("orders").values()) == 2


def test_a_growth_that_a_group_does_not_drain_for_is_put_off_and_publishing_goes_on() -> None:
    broker = memory()
    hasty = replace(LIMITS, growth_wait=timedelta(milliseconds=20))
    with serving(definition(broker, partitions=2, groups=("g",)), limits=hasty, started=False) as streams:
        streams.publish_sync("orders", Records([b"unread"]))
        growth = streams.grow("orders", 4)
        assert (growth.grown, growth.partitions) == (False, 2)
        assert "1 records were still unread after 0.02 s" in growth.reason
        assert broker.topic("orders").partitions == 2
        streams.publish_sync("orders", Records([b"more"]))
        assert streams.scaling_metrics()["growth_put_off_total"] == 1
        broker.commit("orders", "g", broker.end_offsets("orders"))
        assert streams.grow("orders", 4).grown


def test_nobody_is_paused_for_a_growth_that_has_no_chance() -> None:
    broker = memory()
    with serving(definition(broker, groups=("g",)), started=False) as streams:
        streams.publish_sync("orders", Records([b"x"] * 10_001))
        growth = streams.grow("orders", 8)
        assert not growth.grown
        assert "10,001 records wait" in growth.reason


def test_a_group_of_subscribers_counts_while_it_has_members() -> None:
    broker = memory()
    hasty = replace(LIMITS, growth_wait=timedelta(milliseconds=20))
    with serving(definition(broker), limits=hasty) as streams:
        events = streams.subscribe("orders", "billing", auto_commit=False)
        eventually(events.assigned)
        streams.publish_sync("orders", Records([b"unread"]))
        assert not streams.grow("orders", 8).grown
        events.close_sync()
        assert streams.grow("orders", 8).grown


def test_a_broker_that_fails_in_the_middle_of_a_growth_lets_publishers_go_on_as_before() -> None:
    broker = memory()

    def away(topic: str, partitions: int) -> None:
        raise BrokerUnavailableError("memory", "memory", f"{topic} {partitions}")

    with serving(definition(broker), started=False) as streams:
        streams.offsets("orders")
        broker.grow = away  # type: ignore[method-assign, assignment]
        with pytest.raises(BrokerUnavailableError):
            streams.grow("orders", 8)
        assert streams.publish_sync("orders", Records([b"x"])).records == 1


def test_publishers_keep_the_old_number_after_a_crash_until_everything_was_read() -> None:
    """The topic was grown, and the process died before it wrote down that publishers may use it."""
    broker, store = memory(), MemoryStore()
    one = definition(broker, partitions=1, groups=("g",))
    with serving(one, store=store, started=False) as before:
        before.publish_sync("orders", keyed((b"k", b"1")))
        broker.grow("orders", 8)
    with serving(one, store=store, limits=replace(LIMITS, growth_wait=timedelta(seconds=1)), started=False) as after:
        assert [part.partition for part in after.publish_sync("orders", keyed((b"k", b"2"))).parts] == [0]
        broker.commit("orders", "g", {0: 2})
        after.evaluate()
        assert [part.partition for part in after.publish_sync("orders", keyed((b"k", b"3"))).parts] != [0]
    with serving(one, store=store, started=False) as later:
        assert [part.partition for part in later.publish_sync("orders", keyed((b"k", b"4"))).parts] != [0]


def test_throughput_above_the_threshold_grows_the_topic_by_itself() -> None:
    broker = memory()
    config = ScalabilityConfig(target_throughput_per_partition=10, max_partitions=6)
    with serving(definition(broker, partitions=2, scalability=config), started=False) as streams:
        streams.publish_sync("orders", Records([b"x"] * 200))  # 20 a second over the ten seconds that count
        streams.evaluate()
        assert streams.topic("orders").partitions == 5
        assert streams.scaling_metrics()["grown_total"] == 1
        streams.publish_sync("orders", Records([b"x"] * 10_000))
        streams.evaluate()
        assert streams.topic("orders").partitions == 6
        streams.evaluate()
        assert streams.scaling_metrics()["grown_total"] == 2


def test_a_growth_that_was_put_off_is_not_tried_with_every_look() -> None:
    broker = memory()
    config = ScalabilityConfig(target_throughput_per_partition=1)
    hasty = replace(LIMITS, growth_wait=timedelta(milliseconds=5))
    with serving(definition(broker, scalability=config, groups=("g",)), limits=hasty, started=False) as streams:
        streams.publish_sync("orders", Records([b"x"] * 500))
        for _ in range(5):
            streams.evaluate()
        assert streams.scaling_metrics()["growth_put_off_total"] == 1


def test_a_broker_that_cannot_grow_is_left_alone() -> None:
    broker = memory(Capabilities(grows=False, shared_by_processes=False))
    config = ScalabilityConfig(target_throughput_per_partition=1)
    with serving(definition(broker, scalability=config), started=False) as streams:
        streams.publish_sync("orders", Records([b"x"] * 500))
        streams.evaluate()
        assert streams.topic("orders").partitions == 4


def test_fewer_partitions_are_refused() -> None:
    with serving(definition(memory()), started=False) as streams, pytest.raises(InvalidValueError):
        streams.grow("orders", 3)


def test_consumers_are_asked_for_while_a_group_falls_behind_and_leave_when_fewer_have_long_been_enough() -> None:
    broker, heard, clock = memory(ALONE), list[ConsumersWanted](), FakeClock()

    def look(publish: int, read: int) -> None:
        for _ in range(4):  # batches take turns, so each partition gets one
            streams.publish_sync("orders", Records([b"x"] * (publish // 4)))
        positions = broker.committed("orders", "g")
        ends = broker.end_offsets("orders")
        share = read // len(ends)
        broker.commit("orders", "g", {n: min(positions.get(n, 0) + share, end) for n, end in ends.items()})
        clock.advance(15)
        streams.evaluate()

    stream = definition(broker, partitions=4, groups=("g",), scalability=ScalabilityConfig(max_partitions=4))
    with serving(stream, clock=clock, started=False) as streams:
        streams.on_consumers_wanted(heard.append)
        assert streams.wanted_consumers("orders", "g") is None
        for _ in range(4):
            look(publish=600, read=600)
        assert heard == []
        look(publish=3_000, read=600)
        look(publish=3_000, read=600)
        (wanted,) = heard
        assert (wanted.topic, wanted.group, wanted.current, wanted.wanted) == ("orders", "g", 1, 4)
        assert "records wait" in wanted.reason
        decision = streams.wanted_consumers("orders", "g")
        assert decision is not None
        assert streams.scaling_metrics()["wanted_consumers.orders.g"] == decision.consumers == 4
        for _ in range(30):
            look(publish=40, read=10_000)
        assert [each.wanted for each in heard] == [4, 1]


def test_the_background_threads_do_all_this_by_themselves() -> None:
    broker = memory()
    config = ScalabilityConfig(target_throughput_per_partition=10)
    quick = replace(LIMITS, evaluate_every=timedelta(milliseconds=10))
    streams: StreamingScalingManager
    with serving(definition(broker, partitions=1, scalability=config), limits=quick) as streams:
        streams.publish_sync("orders", Records([b"x"] * 1_000))
        eventually(lambda: streams.scaling_metrics()["grown_total"])
