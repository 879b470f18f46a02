"""Batches with a stamp are in the log once: lost answers, half written batches, crashes, races."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.log import InvalidNameError, InvalidRecordsError, Records
from dw_platform.store import MemoryStore, PersistentStore
from dw_platform.streaming import (
    Broker,
    BrokerUnavailableError,
    Capabilities,
    ProducerStamp,
    PublishTimedOutError,
    SequenceGapError,
    StreamingLimits,
    StreamingScalingManager,
)
from dw_platform.streaming.routing import partition_of
from tests.fakes.memory_broker import MemoryBroker
from tests.streaming.streams import ALONE, SOON_S, definition, embedded, eventually, keyed, memory, serving

AWAY = BrokerUnavailableError("memory", "memory", "a test said so")
HALVES = Capabilities(drops=True, shared_by_processes=False, whole_batches=False)
SHARED = Capabilities(drops=True, shared_by_processes=True, whole_batches=True)


def stamp(sequence: int, producer: str = "p1") -> ProducerStamp:
    return ProducerStamp(producer, sequence)


def batch(number: int, size: int = 20) -> Records:
    return keyed(*((b"key-%d" % key, b"%d.%d" % (number, key)) for key in range(size)))


def contents(number: int, size: int = 20) -> Counter[bytes]:
    return Counter(b"%d.%d" % (number, key) for key in range(size))


def found(broker: Any) -> Counter[bytes]:
    return Counter(value for values in broker.values("orders").values() for value in values)


@pytest.fixture
def broker() -> MemoryBroker:
    return memory()


@pytest.fixture
def streams(broker: MemoryBroker) -> Iterator[StreamingScalingManager]:
    with serving(definition(broker), started=False) as opened:
        yield opened


def test_the_same_stamp_again_writes_nothing_and_returns_the_offsets_of_then(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    first = streams.publish_sync("orders", batch(0), stamp=stamp(0))
    again = streams.publish_sync("orders", batch(0), stamp=stamp(0))
    assert len(first.parts) > 1
    assert not first.duplicate
    assert again.duplicate
    assert (again.parts, again.records) == (first.parts, 20)
    assert found(broker) == contents(0)
    assert streams.scaling_metrics()["duplicates_total"] == 20


def test_an_older_sequence_is_a_duplicate_whose_offsets_are_forgotten(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    for number in range(3):
        streams.publish_sync("orders", batch(number), stamp=stamp(number))
    again = streams.publish_sync("orders", batch(0), stamp=stamp(0))
    assert again.duplicate
    assert again.parts == ()
    assert found(broker) == contents(0) + contents(1) + contents(2)


def test_a_gap_is_refused_and_names_what_comes_next(streams: StreamingScalingManager, broker: MemoryBroker) -> None:
    with pytest.raises(SequenceGapError) as error:
        streams.publish_sync("orders", batch(1), stamp=stamp(1))
    assert (error.value.producer, error.value.expected, error.value.given) == ("p1", 0, 1)
    streams.publish_sync("orders", batch(0), stamp=stamp(0))
    with pytest.raises(SequenceGapError) as error:
        streams.publish_sync("orders", batch(2), stamp=stamp(2))
    assert error.value.expected == 1
    assert found(broker) == contents(0)


def test_producers_do_not_know_each_other(streams: StreamingScalingManager, broker: MemoryBroker) -> None:
    streams.publish_sync("orders", batch(0), stamp=stamp(0, "a"))
    streams.publish_sync("orders", batch(1), stamp=stamp(0, "b"))
    streams.publish_sync("orders", batch(2), stamp=stamp(1, "a"))
    assert found(broker) == contents(0) + contents(1) + contents(2)


@pytest.mark.parametrize("written", [0, 20], ids=["nothing was written", "all was written"])
def test_a_retry_writes_only_what_is_not_there(
    streams: StreamingScalingManager, broker: MemoryBroker, written: int
) -> None:
    streams.offsets("orders")
    broker.fail(AWAY, partition=partition_of(b"key-3", 4), written=written)
    with pytest.raises(BrokerUnavailableError):
        streams.publish_sync("orders", batch(0), stamp=stamp(0))
    again = streams.publish_sync("orders", batch(0), stamp=stamp(0))
    assert found(broker) == contents(0)
    assert sum(part.next_offset - part.base_offset for part in again.parts) == 20
    assert again.duplicate is (written > 0)
    streams.publish_sync("orders", batch(1), stamp=stamp(1))
    assert found(broker) == contents(0) + contents(1)


def test_a_batch_that_is_half_written_cannot_be_followed_by_the_next_one(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    streams.offsets("orders")
    broker.fail(AWAY, partition=partition_of(b"key-3", 4))
    with pytest.raises(BrokerUnavailableError):
        streams.publish_sync("orders", batch(0), stamp=stamp(0))
    with pytest.raises(SequenceGapError) as error:
        streams.publish_sync("orders", batch(1), stamp=stamp(1))
    assert error.value.expected == 0


@pytest.mark.parametrize("size", [20, 500])
def test_where_a_broker_writes_half_a_part_a_retry_writes_the_other_half(size: int) -> None:
    broker = memory(HALVES)
    with serving(definition(broker, partitions=2), started=False) as streams:
        streams.offsets("orders")
        broker.fail(AWAY, partition=1, written=3)
        with pytest.raises(BrokerUnavailableError):
            streams.publish_sync("orders", batch(0, size), stamp=stamp(0))
        broker.fail(AWAY, partition=1, written=2)
        with pytest.raises(BrokerUnavailableError):
            streams.publish_sync("orders", batch(0, size), stamp=stamp(0))
        receipt = streams.publish_sync("orders", batch(0, size), stamp=stamp(0))
        assert found(broker) == contents(0, size)
        assert sum(part.next_offset - part.base_offset for part in receipt.parts) == size
        # In the order of the batch, too.
        values = broker.values("orders")[1]
        assert values == sorted(values, key=lambda value: int(value.split(b".")[1]))


def test_other_records_under_a_stamp_that_is_half_written_are_refused(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    streams.offsets("orders")
    broker.fail(AWAY, partition=partition_of(b"key-3", 4))
    with pytest.raises(BrokerUnavailableError):
        streams.publish_sync("orders", batch(0), stamp=stamp(0))
    with pytest.raises(InvalidRecordsError, match="other records under sequence 0"):
        streams.publish_sync("orders", batch(0, 7), stamp=stamp(0))


def test_records_without_a_key_meet_their_partition_again(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    streams.offsets("orders")
    broker.fail(AWAY, written=3)
    with pytest.raises(BrokerUnavailableError):
        streams.publish_sync("orders", Records([b"a", b"b", b"c"]), stamp=stamp(0))
    streams.publish_sync("orders", Records([b"unstamped"]))
    again = streams.publish_sync("orders", Records([b"a", b"b", b"c"]), stamp=stamp(0))
    assert again.duplicate
    assert found(broker) == Counter([b"a", b"b", b"c", b"unstamped"])


def test_a_retry_after_a_growth_uses_the_split_of_its_first_try(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    streams.offsets("orders")
    broker.fail(AWAY, partition=partition_of(b"key-3", 4))
    with pytest.raises(BrokerUnavailableError):
        streams.publish_sync("orders", batch(0), stamp=stamp(0))
    put_off = streams.grow("orders", 7)
    assert not put_off.grown
    assert "only partly written" in put_off.reason
    broker.grow("orders", 7)
    streams._streams["orders"].gate.open(7)
    streams.publish_sync("orders", batch(0), stamp=stamp(0))
    assert found(broker) == contents(0)
    streams.publish_sync("orders", batch(1), stamp=stamp(1))
    assert any(broker.values("orders")[number] for number in (4, 5, 6))
    assert found(broker) == contents(0) + contents(1)


def test_two_at_once_with_the_same_stamp_append_once(broker: MemoryBroker) -> None:
    async def scenario(streams: StreamingScalingManager) -> list[bool]:
        receipts = await asyncio.gather(*(streams.publish("orders", batch(0), stamp=stamp(0)) for _ in range(8)))
        return [receipt.duplicate for receipt in receipts]

    with serving(definition(broker), started=False) as streams:
        assert sorted(asyncio.run(scenario(streams))) == [False] + [True] * 7
        with ThreadPoolExecutor(8) as pool:
            threads = [pool.submit(streams.publish_sync, "orders", batch(1), stamp=stamp(1)) for _ in range(8)]
            assert sorted(one.result(SOON_S).duplicate for one in threads) == [False] + [True] * 7
    assert found(broker) == contents(0) + contents(1)


def test_a_second_one_takes_over_when_the_first_fails(streams: StreamingScalingManager, broker: MemoryBroker) -> None:
    async def scenario() -> list[Any]:
        broker.fail(AWAY, partition=partition_of(b"key-3", 4))
        attempts = (streams.publish("orders", batch(0), stamp=stamp(0)) for _ in range(2))
        return await asyncio.gather(*attempts, return_exceptions=True)

    streams.offsets("orders")
    failed, taken = asyncio.run(scenario())
    assert isinstance(failed, BrokerUnavailableError)
    assert taken.records == 20
    assert found(broker) == contents(0)


def test_batches_of_a_producer_that_does_not_wait_arrive_in_their_order(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    async def scenario() -> None:
        await asyncio.gather(*(streams.publish("orders", batch(n), stamp=stamp(n)) for n in range(20)))

    asyncio.run(scenario())
    for values in broker.values("orders").values():
        numbers = [int(value.split(b".")[0]) for value in values]
        assert numbers == sorted(numbers)


def test_whoever_waits_for_its_turn_gives_up_in_time_and_lets_the_next_one_pass(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    async def scenario() -> None:
        await streams.publish("orders", batch(0), stamp=stamp(0))
        with broker.hold():
            first = asyncio.create_task(streams.publish("orders", batch(1), stamp=stamp(1)))
            await asyncio.to_thread(eventually, broker.held)
            with pytest.raises(PublishTimedOutError):
                await streams.publish("orders", batch(2), stamp=stamp(2), timeout_s=0.01)
            cancelled = asyncio.create_task(streams.publish("orders", batch(2), stamp=stamp(2)))
            third = asyncio.create_task(streams.publish("orders", batch(2), stamp=stamp(2)))
            await asyncio.sleep(0)
            cancelled.cancel()
        await first
        assert not (await third).duplicate

    asyncio.run(scenario())
    assert found(broker) == contents(0) + contents(1) + contents(2)


def test_a_publisher_that_stops_waiting_for_the_answer_keeps_its_turn_until_it_is_known(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    async def scenario() -> None:
        await streams.publish("orders", batch(0), stamp=stamp(0))
        with broker.hold():
            gone = asyncio.create_task(streams.publish("orders", batch(1), stamp=stamp(1)))
            await asyncio.to_thread(eventually, broker.held)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            retry = asyncio.create_task(streams.publish("orders", batch(1), stamp=stamp(1)))
            await asyncio.sleep(0)
            assert not retry.done()
        assert (await retry).duplicate

    asyncio.run(scenario())
    assert found(broker) == contents(0) + contents(1)


# Crashes: a fresh manager on the same log.


@pytest.fixture(params=["memory", "halves", "shared", "embedded"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Return (store, function that returns a broker with everything that was written)."""
    store: PersistentStore = MemoryStore()
    kept = {"memory": memory(), "halves": memory(HALVES), "shared": memory(SHARED)}.get(request.param)
    brokers: list[Broker] = []

    def reopen() -> Broker:
        if kept is not None:
            return kept
        for one in brokers:
            one.close()
        brokers.append(embedded(tmp_path / "log", store))
        return brokers[-1]

    yield store, reopen
    for one in brokers:
        one.close()


def everything(streams: StreamingScalingManager) -> Counter[bytes]:
    values: Counter[bytes] = Counter()
    for number, (start, end) in streams.offsets("orders").items():
        offset = start
        while offset < end:
            part = streams.read("orders", number, offset)
            values.update(part.to_table()["value"].to_pylist())
            offset = part.next_offset
    return values


def abandoned(broker: Broker, store: PersistentStore) -> StreamingScalingManager:
    """Return streams that are never closed: as a process that is killed leaves them."""
    streams = StreamingScalingManager([definition(broker)], store=store)
    streams._follower.stop()
    return streams


@pytest.mark.parametrize("snapshots", [False, True])
def test_after_a_crash_the_log_knows_what_was_published(world: Any, *, snapshots: bool) -> None:
    store, reopen = world
    before = abandoned(reopen(), store)
    for number in range(3):
        before.publish_sync("orders", batch(number), stamp=stamp(number))
        before.publish_sync("orders", Records([b"between"]))
        if snapshots:
            before.evaluate()
    lost = before.publish_sync("orders", batch(3), stamp=stamp(3))
    with serving(definition(reopen()), store=store, started=False) as after:
        again = after.publish_sync("orders", batch(3), stamp=stamp(3))
        assert again.duplicate
        assert again.parts == lost.parts
        with pytest.raises(SequenceGapError) as error:
            after.publish_sync("orders", batch(5), stamp=stamp(5))
        assert error.value.expected == 4
        after.publish_sync("orders", batch(4), stamp=stamp(4))
        expected = sum((contents(number) for number in range(5)), Counter({b"between": 3}))
        assert everything(after) == expected


def test_a_crash_in_the_middle_of_a_batch_is_completed_by_the_retry() -> None:
    for capabilities in (ALONE, HALVES, SHARED):
        broker, store = memory(capabilities), MemoryStore()
        before = abandoned(broker, store)
        before.publish_sync("orders", batch(0), stamp=stamp(0))
        before.evaluate()
        broker.fail(AWAY, partition=partition_of(b"key-3", 4), written=0 if capabilities.whole_batches else 2)
        with pytest.raises(BrokerUnavailableError):
            before.publish_sync("orders", batch(1), stamp=stamp(1))
        with serving(definition(broker), store=store, started=False) as after:
            with pytest.raises(SequenceGapError):
                after.publish_sync("orders", batch(2), stamp=stamp(2))
            assert not after.publish_sync("orders", batch(1), stamp=stamp(1)).duplicate
            assert after.publish_sync("orders", batch(1), stamp=stamp(1)).duplicate
        assert found(broker) == contents(0) + contents(1)


@pytest.mark.parametrize("seed", range(12))
def test_random_failures_crashes_and_retries_write_every_batch_once(seed: int) -> None:
    chance = random.Random(seed)
    capabilities = chance.choice([ALONE, HALVES, SHARED])
    broker, store = memory(capabilities), MemoryStore()
    streams = abandoned(broker, store)
    streams.offsets("orders")
    for number in range(25):
        while True:
            if chance.random() < 0.3:
                written = chance.choice([0, 20]) if capabilities.whole_batches else chance.randrange(20)
                broker.fail(AWAY, partition=chance.randrange(4), written=written)
            if chance.random() < 0.2:
                streams.evaluate()
            if chance.random() < 0.2:
                streams = abandoned(broker, store)
            try:
                streams.publish_sync("orders", batch(number), stamp=stamp(number))
            except BrokerUnavailableError:
                continue
            if chance.random() < 0.7:
                break
    assert found(broker) == sum((contents(number) for number in range(25)), Counter())


@pytest.mark.parametrize("capabilities", [ALONE, HALVES, SHARED], ids=["alone", "halves", "shared"])
def test_producers_that_retry_while_snapshots_are_taken_write_every_batch_once(capabilities: Capabilities) -> None:
    broker, stop = memory(capabilities), threading.Event()
    with serving(definition(broker), started=False) as streams, ThreadPoolExecutor(5) as pool:
        streams.offsets("orders")

        def publish(producer: int) -> None:
            chance = random.Random(producer)
            for sequence in range(40):
                records = keyed(
                    *((b"%d-%d" % (producer, key), b"%d.%d.%d" % (producer, sequence, key)) for key in range(9))
                )
                while True:
                    if chance.random() < 0.2:
                        written = chance.choice([0, 9]) if capabilities.whole_batches else chance.randrange(9)
                        broker.fail(AWAY, partition=chance.randrange(4), written=written)
                    try:
                        streams.publish_sync("orders", records, stamp=stamp(sequence, f"p{producer}"))
                    except BrokerUnavailableError:
                        continue
                    break

        def take_snapshots() -> None:
            while not stop.is_set():
                streams._streams["orders"].ledger.memory.snapshot()

        snapshots = pool.submit(take_snapshots)
        for producer in [pool.submit(publish, number) for number in range(4)]:
            producer.result(SOON_S)
        stop.set()
        snapshots.result(SOON_S)
    expected = Counter(b"%d.%d.%d" % (p, n, key) for p in range(4) for n in range(40) for key in range(9))
    assert found(broker) == expected


def test_a_producer_may_move_from_one_process_to_another_and_back() -> None:
    broker, store = memory(SHARED), MemoryStore()
    with (
        serving(definition(broker), store=store, started=False) as one,
        serving(definition(broker), store=store, started=False) as other,
    ):
        for number in range(6):
            (one, other)[number % 2].publish_sync("orders", batch(number), stamp=stamp(number))
            # The answer was lost, and the balancer sends the retry elsewhere.
            assert (other, one)[number % 2].publish_sync("orders", batch(number), stamp=stamp(number)).duplicate
    assert found(broker) == sum((contents(number) for number in range(6)), Counter())


def test_the_number_of_producers_is_bounded_and_the_silent_are_forgotten() -> None:
    clock, broker = FakeClock(), memory()
    limits = StreamingLimits(max_producers=3, producer_ttl=timedelta(hours=1))
    with serving(definition(broker), limits=limits, clock=clock, started=False) as streams:
        for number in range(5):
            streams.publish_sync("orders", Records([b"x"]), stamp=stamp(0, f"p{number}"))
        assert streams.scaling_metrics()["producers.orders"] == 3
        with pytest.raises(SequenceGapError):
            streams.publish_sync("orders", Records([b"x"]), stamp=stamp(1, "p0"))
        streams.publish_sync("orders", Records([b"x"]), stamp=stamp(1, "p4"))
        clock.advance(3_601)
        with pytest.raises(SequenceGapError):
            streams.publish_sync("orders", Records([b"x"]), stamp=stamp(2, "p4"))


def test_a_snapshot_that_cannot_be_read_costs_time_and_nothing_else() -> None:
    broker, store = memory(), MemoryStore()
    abandoned(broker, store).publish_sync("orders", batch(0), stamp=stamp(0))
    (key,) = store.list_versions("dw://internal/streaming/producers/")
    store.put(key, b"garbage")
    with serving(definition(broker), store=store, started=False) as streams:
        assert streams.publish_sync("orders", batch(0), stamp=stamp(0)).duplicate


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (ProducerStamp("p1", -1), InvalidValueError),
        (ProducerStamp("p1", 2**63), InvalidValueError),
        (ProducerStamp("p1", True), InvalidValueError),
        (ProducerStamp("", 0), InvalidNameError),
        (ProducerStamp("a/b", 0), InvalidNameError),
    ],
)
def test_a_stamp_that_cannot_be_is_refused(
    streams: StreamingScalingManager, broker: MemoryBroker, wrong: ProducerStamp, error: type[Exception]
) -> None:
    with pytest.raises(error):
        streams.publish_sync("orders", batch(0), stamp=wrong)
    assert broker.appended == 0


def test_headers_that_look_like_a_stamp_are_refused_without_one(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    with pytest.raises(InvalidRecordsError, match="dw-producer"):
        streams.publish_sync("orders", Records([b"x"], headers=[{"dw-producer": b"p1"}]))
    assert broker.appended == 0


def test_own_headers_stay_beside_the_stamp(streams: StreamingScalingManager) -> None:
    receipt = streams.publish_sync("orders", Records([b"x"], headers=[{"trace": b"1"}]), stamp=stamp(0))
    part = receipt.parts[0]
    headers = dict(streams.read("orders", part.partition, part.base_offset).to_table()["headers"][0].as_py())
    assert headers["trace"] == b"1"
    assert (headers["dw-producer"], headers["dw-sequence"], headers["dw-records"]) == (b"p1", b"0", b"1")
