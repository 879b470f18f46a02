"""Publishing and reading by topic, through the manager's own methods."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dw_platform.foundation import InvalidValueError, fnv1a_64
from dw_platform.log import (
    InvalidRecordsError,
    LogPolicy,
    OffsetOutOfRangeError,
    Records,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from dw_platform.scaling import BackpressureAware, PressureLevel
from dw_platform.store import MemoryStore
from dw_platform.streaming import (
    BrokerUnavailableError,
    PartitionReceipt,
    StreamDefinition,
    StreamingLimits,
    StreamingScalingManager,
    TopicSettings,
)
from tests.fakes.memory_broker import MemoryBroker
from tests.streaming.streams import SOON_S, definition, embedded, eventually, keyed, memory, serving


@pytest.fixture
def broker() -> MemoryBroker:
    return memory()


@pytest.fixture
def streams(broker: MemoryBroker) -> Iterator[StreamingScalingManager]:
    with serving(definition(broker), started=False) as opened:
        yield opened


def test_a_key_always_goes_to_the_partition_of_its_hash(streams: StreamingScalingManager, broker: MemoryBroker) -> None:
    keys = [b"customer-%d" % number for number in range(300)]
    receipt = streams.publish_sync("orders", Records(keys, keys=keys))
    for number, values in broker.values("orders").items():
        assert values == [key for key in keys if fnv1a_64(key) % 4 == number]
    assert receipt.records == 300
    assert [part.partition for part in receipt.parts] == [0, 1, 2, 3]
    assert sum(part.next_offset - part.base_offset for part in receipt.parts) == 300


def test_batches_without_keys_take_turns_with_the_partitions(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    for number in range(8):
        streams.publish_sync("orders", Records([b"%d" % number] * 3))
    assert {len(values) for values in broker.values("orders").values()} == {6}


def test_the_receipt_says_where_each_part_is(streams: StreamingScalingManager) -> None:
    streams.publish_sync("orders", Records([b"x"]))
    for _ in range(3):
        streams.publish_sync("orders", Records([b"x"]))
    receipt = streams.publish_sync("orders", Records([b"y", b"z"]))
    assert receipt.parts == (PartitionReceipt(0, 1, 3),)
    assert (receipt.topic, receipt.level, receipt.duplicate) == ("orders", PressureLevel.NORMAL, False)
    batch = streams.read("orders", 0, 1)
    assert batch.to_table()["value"].to_pylist() == [b"y", b"z"]
    assert streams.offsets("orders")[0] == (0, 3)


def test_coroutines_and_threads_publish_at_once(streams: StreamingScalingManager, broker: MemoryBroker) -> None:
    async def publish(first: int) -> None:
        await asyncio.gather(*(streams.publish("orders", Records([b"%d" % n])) for n in range(first, first + 50)))

    def publish_sync(first: int) -> None:
        for number in range(first, first + 50):
            streams.publish_sync("orders", keyed((b"%d" % number, b"%d" % number)))

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(asyncio.run, publish(0)), pool.submit(asyncio.run, publish(50))]
        jobs += [pool.submit(publish_sync, 100), pool.submit(publish_sync, 150)]
        for job in jobs:
            job.result(SOON_S)
    found = Counter(int(value) for values in broker.values("orders").values() for value in values)
    assert found == Counter(range(200))
    metrics = streams.scaling_metrics()
    assert (metrics["published_total"], metrics["streams"]) == (200, 1)
    assert 0 < metrics["publish_p50_ms.orders"] <= metrics["publish_p99_ms.orders"]


def test_parts_are_submitted_together_before_any_is_waited_for(broker: MemoryBroker) -> None:
    async def scenario(streams: StreamingScalingManager) -> None:
        with broker.hold():
            publishing = asyncio.create_task(streams.publish("orders", keyed(*((b"%d" % n, b"x") for n in range(50)))))
            await asyncio.to_thread(eventually, lambda: broker.held() == 4)
            assert not publishing.done()
        await publishing

    with serving(definition(broker), started=False) as streams:
        asyncio.run(scenario(streams))


def test_whoever_stops_waiting_for_the_answer_does_not_leave_the_door_open(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    """A growth waits for records that are on their way, also if nobody waits for their answer any more."""

    async def scenario() -> None:
        await streams.publish("orders", Records([b"warm"]))
        with broker.hold():
            publishing = asyncio.create_task(streams.publish("orders", keyed((b"k", b"v"))))
            await asyncio.to_thread(eventually, broker.held)
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
            assert streams._streams["orders"].gate._inside == 1
        assert streams._streams["orders"].gate._inside == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("topic", "records", "error"),
    [
        ("nothing", Records([b"x"]), UnknownTopicError),
        ("orders", Records([b"x" * 2_000]), RecordTooLargeError),
        ("orders", keyed((b"a", b"fits"), (b"b", b"x" * 2_000), (b"c", b"fits")), RecordTooLargeError),
        ("orders", Records(pa.array([b"x"] * 500), keys=pa.array([b"%d" % n for n in range(500)]),
                           headers=[{"h": 1}] * 500), InvalidRecordsError),  # type: ignore[dict-item, list-item]
        ("orders", Records(pa.array([b"x"] * 500), keys=pa.array([b"%d" % n for n in range(500)]),
                           timestamps_ms=["noon"] * 500), InvalidRecordsError),  # type: ignore[list-item]
    ],
)  # fmt: skip
def test_a_wrong_batch_is_refused_and_nothing_of_it_is_written(
    broker: MemoryBroker, topic: str, records: Records, error: type[Exception]
) -> None:
    settings = TopicSettings(partitions=4, policy=LogPolicy(max_record_bytes=1_000))
    with serving(StreamDefinition(topic="orders", broker=broker, settings=settings), started=False) as streams:
        with pytest.raises(error):
            streams.publish_sync(topic, records)
        with pytest.raises(error):
            asyncio.run(streams.publish(topic, records))
        assert broker.appended == 0
        assert streams.publish_sync("orders", Records([b"good"])).records == 1


def test_an_empty_batch_cannot_even_be_built() -> None:
    with pytest.raises(InvalidRecordsError):
        Records([])


def test_reading_says_what_is_not_there(streams: StreamingScalingManager) -> None:
    with pytest.raises(UnknownTopicError):
        streams.read("nothing", 0, 0)
    with pytest.raises(UnknownTopicError):
        streams.offsets("nothing")
    with pytest.raises(UnknownTopicError):
        streams.topic("nothing")
    with pytest.raises(UnknownPartitionError):
        streams.read("orders", 4, 0)
    with pytest.raises(OffsetOutOfRangeError):
        streams.read("orders", 0, 1)
    with pytest.raises(OffsetOutOfRangeError):
        streams.read("orders", 0, -1)
    assert len(streams.read("orders", 0, 0)) == 0


def test_a_broker_that_is_down_holds_up_its_own_topics_only() -> None:
    down, up = memory(), memory()
    down.down = True
    with serving(definition(down, "away"), definition(up, "here", groups=("g",))) as streams:
        assert streams.topics() == ["away", "here"]
        with pytest.raises(BrokerUnavailableError):
            streams.publish_sync("away", Records([b"x"]))
        assert streams.publish_sync("here", Records([b"x"])).records == 1
        with pytest.raises(BrokerUnavailableError):
            streams.evaluate()
        streams.refresh()
        down.down = False
        streams.evaluate()
        assert down.topics() == ["away"]
        assert streams.publish_sync("away", Records([b"x"])).records == 1


def test_a_publish_that_fails_is_told_and_counted(streams: StreamingScalingManager, broker: MemoryBroker) -> None:
    streams.offsets("orders")
    for publish in (streams.publish_sync, lambda *args: asyncio.run(streams.publish(*args))):
        broker.fail(BrokerUnavailableError("memory", "memory", "a test said so"))
        with pytest.raises(BrokerUnavailableError):
            publish("orders", Records([b"x"] * 3))
    assert streams.scaling_metrics()["failed_total"] == 6
    assert streams.publish_sync("orders", Records([b"x"])).records == 1


def test_groups_that_count_are_registered_before_anything_is_published(broker: MemoryBroker) -> None:
    with serving(definition(broker, groups=("ingest.orders",))) as streams:
        streams.evaluate()
        assert broker.groups("orders") == ["ingest.orders"]


def test_limits_are_changed_as_a_whole_or_not_at_all(streams: StreamingScalingManager) -> None:
    before = streams.current_limits()
    with pytest.raises(InvalidValueError, match="one of the topics orders"):
        streams.reconfigure_limits(replace(before, strategies=("nothing=block",)))
    with pytest.raises(InvalidValueError, match="one of block"):
        streams.set_strategy("orders", "panic")
    with pytest.raises(UnknownTopicError):
        streams.set_strategy("nothing", "block")
    assert streams.current_limits() == before
    with pytest.raises(InvalidValueError, match="at least the 2 in use"):
        StreamingScalingManager([definition(memory()), definition(memory(), "more")], store=MemoryStore(),
                                limits=StreamingLimits(max_streams=1))  # fmt: skip


def test_it_announces_its_pressure(streams: StreamingScalingManager) -> None:
    assert isinstance(streams, BackpressureAware)
    assert streams.name == streams.backpressure_state().subsystem == "streaming"


def test_closing_waits_for_what_is_on_its_way_and_twice_is_harmless(broker: MemoryBroker) -> None:
    streams = StreamingScalingManager([definition(broker)], store=MemoryStore(), owns_brokers=True)
    with ThreadPoolExecutor(2) as pool:
        with broker.hold():
            publishing = pool.submit(lambda: asyncio.run(streams.publish("orders", Records([b"x"]))))
            eventually(broker.held)
            closing = pool.submit(streams.close)
            assert not closing.done()
        assert publishing.result(SOON_S).records == 1
        closing.result(SOON_S)
    streams.close()


def test_what_was_acknowledged_is_in_the_embedded_log_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    for start in (0, 500):
        with embedded(tmp_path / "log", store) as log, serving(definition(log), store=store) as streams:
            values = [b"%d" % number for number in range(start, start + 500)]
            streams.publish_sync("orders", Records(values, keys=values))
    with embedded(tmp_path / "log", store) as log, serving(definition(log), store=store) as streams:
        found = []
        for number, (first, _) in streams.offsets("orders").items():
            found += streams.read("orders", number, first).to_table()["value"].to_pylist()
    assert sorted(map(int, found)) == list(range(1_000))
