"""One suite for every broker; see tests/brokers.py for how another one joins."""

import contextlib
import itertools
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.log import (
    SCHEMA,
    InvalidNameError,
    InvalidRecordsError,
    LogPolicy,
    OffsetOutOfRangeError,
    PartitionClosedError,
    Records,
    RecordsExpiredError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from dw_platform.streaming import (
    Broker,
    BrokerUnavailableError,
    Fetcher,
    TopicSettings,
    UnsupportedByBrokerError,
)
from tests.brokers import BROKERS, BrokerUnderTest, running

# How long a reader of a real server may wait for something that is on its way; a signal ends the wait.
SOON = 30.0
# Some brokers count a record's age from its own time, so it must not be too old to be kept.
TIME = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
TIME_MS = int(TIME.timestamp() * 1000)


@pytest.fixture(params=BROKERS)
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerUnderTest]:
    with running(request.param, tmp_path) as broker:
        yield broker


@pytest.fixture
def broker(under_test: BrokerUnderTest) -> Broker:
    return under_test.connect()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of its own for each test: a server is shared by all."""
    name = f"orders-{secrets.token_hex(6)}"
    broker.ensure_topic(name, TopicSettings(partitions=2))
    return name


@contextlib.contextmanager
def reading(broker: Broker, topic: str, partition: int = 0) -> Iterator[Fetcher]:
    fetcher = broker.fetcher(topic, partition)
    try:
        yield fetcher
    finally:
        fetcher.close()


def read_all(broker: Broker, topic: str, partition: int = 0, **limits: int) -> Any:
    """Return everything from the start to the end as one table, read on by `next_offset`."""
    offset, end = broker.start_offsets(topic)[partition], broker.end_offsets(topic)[partition]
    tables = []
    with reading(broker, topic, partition) as fetcher:
        while offset < end:
            batch = fetcher.fetch(offset, wait_s=SOON, **limits)
            assert batch.next_offset > offset, "the reader does not move on"
            tables.append(batch.to_table())
            offset = batch.next_offset
    table = pa.concat_tables([SCHEMA.empty_table(), *tables])
    table.validate(full=True)
    offsets = table["offset"].to_pylist()
    assert all(before < after for before, after in itertools.pairwise(offsets)), "offsets do not rise"
    return table


def values(broker: Broker, topic: str, partition: int = 0, **limits: int) -> list[bytes | None]:
    return list(read_all(broker, topic, partition, **limits)["value"].to_pylist())


def numbered(count: int, start: int = 0, size: int = 0) -> list[bytes]:
    return [b"%d" % number + b"." * size for number in range(start, start + count)]


# Records


def test_a_batch_is_read_back_as_it_was_published(broker: Broker, topic: str) -> None:
    records = Records(
        [b"one", b"", None, b"\x00\xff"],
        keys=[b"k", None, b"", b"\x00"],
        headers=[{"trace": b"\x00\xff", "größe": b""}, None, {}, {"a": b"1"}],
        timestamps_ms=[TIME_MS, TIME_MS - 3_600_000, TIME_MS + 1, TIME_MS],
    )
    result = broker.publish(topic, 0, records)
    table = read_all(broker, topic)
    assert table.schema == SCHEMA
    assert table["value"].to_pylist() == [b"one", b"", None, b"\x00\xff"]
    assert table["key"].to_pylist() == [b"k", None, b"", b"\x00"]
    # A record without headers may come back with an empty list of them.
    headers = [found or [] for found in table["headers"].to_pylist()]
    assert headers == [[("trace", b"\x00\xff"), ("größe", b"")], [], [], [("a", b"1")]]
    times = [TIME_MS, TIME_MS - 3_600_000, TIME_MS + 1, TIME_MS]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == times
    assert table["offset"][0].as_py() == result.base_offset
    assert table["offset"][-1].as_py() < result.next_offset


def test_a_record_without_a_time_has_that_of_its_publishing(broker: Broker, topic: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    broker.publish(topic, 0, Records([b"now"]))
    broker.publish(topic, 0, Records(numbered(1000), keys=numbered(1000)))
    times = read_all(broker, topic)["timestamp"].to_pylist()
    assert before <= min(times)
    assert max(times) <= datetime.now(UTC) + timedelta(seconds=1)


def test_arrow_arrays_and_their_slices_are_taken_as_they_are(broker: Broker, topic: str) -> None:
    array = pa.array([b"%d" % number if number % 7 else None for number in range(3000)], pa.binary())
    broker.publish(topic, 0, Records(array[250:750], keys=array[1:501]))
    broker.publish(topic, 0, Records(pa.array(["text", None]), keys=pa.array([b"x", b""], pa.large_binary())))
    broker.publish(topic, 0, Records(pa.chunked_array([array[:2], array[2998:]])))
    table = read_all(broker, topic)
    assert table["value"].to_pylist() == [
        *array[250:750].to_pylist(),
        b"text",
        None,
        *array[:2].to_pylist(),
        b"2998",
        b"2999",
    ]
    assert table["key"].to_pylist() == [*array[1:501].to_pylist(), b"x", b"", None, None, None, None]


def test_large_batches_of_all_shapes_come_back_whole(broker: Broker, topic: str) -> None:
    count = 20_000
    numbers = range(count)
    contents = [b"x" * (number % 300) if number % 11 else None for number in numbers]
    keys = [b"%d" % number if number % 3 else None for number in numbers]
    headers = [{"n": b"%d" % number} if number % 5 == 0 else None for number in numbers]
    times = [TIME_MS + (number * 7919) % 100_000 for number in numbers]
    broker.publish(topic, 1, Records(contents, keys=keys, headers=headers, timestamps_ms=times))
    table = read_all(broker, topic, 1)
    assert table["value"].to_pylist() == contents
    assert table["key"].to_pylist() == keys
    assert table["timestamp"].cast(pa.int64()).to_pylist() == times
    expected = [[("n", b"%d" % number)] if number % 5 == 0 else [] for number in numbers]
    assert [found or [] for found in table["headers"].to_pylist()] == expected
    assert read_all(broker, topic, 0).num_rows == 0


def test_values_from_one_byte_to_a_mebibyte(broker: Broker, topic: str) -> None:
    sizes = [1, 63, 64, 127, 128, 8191, 8192, 65_535, 65_536, 1_000_000, 1 << 20]
    contents = [secrets.token_bytes(size) for size in sizes]
    broker.publish(topic, 0, Records(contents, keys=contents[:5] + [None] * 6))
    broker.publish(topic, 0, Records(contents[::-1]))
    assert values(broker, topic) == contents + contents[::-1]
    assert values(broker, topic, max_bytes=1) == contents + contents[::-1]


def test_a_batch_that_is_not_one_writes_nothing(broker: Broker, topic: str) -> None:
    for wrong in ([{"a": "text"}], [{1: b"x"}], ["a=b"]):
        with pytest.raises(InvalidRecordsError):
            broker.publish(topic, 0, Records([b"x"], headers=wrong))
    for later in ([2**70], ["noon"]):
        with pytest.raises(InvalidRecordsError):
            broker.publish(topic, 0, Records([b"x"], timestamps_ms=later))
    long = pa.array(numbered(1000), pa.binary())
    with pytest.raises(InvalidRecordsError):
        broker.publish(topic, 0, Records(long, timestamps_ms=["noon"] * 1000))
    with pytest.raises(InvalidRecordsError):
        broker.submit(topic, 0, Records(long, headers=[{"a": 1}] * 1000))
    assert broker.end_offsets(topic) == broker.start_offsets(topic)


def test_an_oversize_record_is_refused_with_its_whole_batch(broker: Broker) -> None:
    name = f"small-{secrets.token_hex(6)}"
    broker.ensure_topic(name, TopicSettings(partitions=1, policy=LogPolicy(max_record_bytes=10_000)))
    for attempt in (broker.publish, broker.submit):
        with pytest.raises(RecordTooLargeError) as caught:
            attempt(name, 0, Records([b"good", b"x" * 10_001, b"good"]))
        assert caught.value.size == 10_001
        assert caught.value.limit == 10_000
    with pytest.raises(RecordTooLargeError):
        broker.publish(name, 0, Records([b"x" * 5_000], keys=[b"k" * 5_001]))
    assert broker.end_offsets(name) == broker.start_offsets(name)
    # Many that are small each, and one that just fits, pass.
    broker.publish(name, 0, Records([b"y" * 9_000] * 300))
    broker.publish(name, 0, Records([b"z" * 10_000]))
    assert values(broker, name) == [b"y" * 9_000] * 300 + [b"z" * 10_000]


# Order and offsets


def test_offsets_rise_in_the_order_of_publishing(broker: Broker, topic: str) -> None:
    ends = list[int]()
    for start in range(0, 100, 10):
        result = broker.publish(topic, 0, Records(numbered(10, start)))
        assert result.next_offset >= result.base_offset + 10
        assert not ends or result.base_offset >= ends[-1]
        ends.append(result.next_offset)
        assert broker.end_offsets(topic)[0] >= result.next_offset
    assert values(broker, topic) == numbered(100)


def test_submitted_batches_are_written_in_the_order_of_the_calls(broker: Broker, topic: str) -> None:
    futures = [broker.submit(topic, 0, Records(numbered(50, start))) for start in range(0, 2000, 50)]
    results = [future.result(SOON) for future in futures]
    assert all(before.next_offset <= after.base_offset for before, after in itertools.pairwise(results))
    assert values(broker, topic) == numbered(2000)


def test_who_stops_waiting_for_a_batch_disturbs_nobody(broker: Broker, topic: str) -> None:
    futures = [broker.submit(topic, 0, Records(numbered(10, start))) for start in range(0, 500, 10)]
    for future in futures[::2]:
        future.cancel()
    for future in futures[1::2]:
        future.result(SOON)
    broker.publish(topic, 0, Records([b"after"]))
    found = values(broker, topic)
    kept = {value for start in range(10, 500, 20) for value in numbered(10, start)} | {b"after"}
    assert kept <= set(found)
    assert found[:-1] == sorted(found[:-1], key=lambda value: int(value or b"-1"))


def test_small_and_large_batches_keep_their_order(broker: Broker, topic: str) -> None:
    """A client that has a fast way for plain batches must not let them overtake others."""
    futures, start = [], 0
    for size in (1, 500, 3, 5000, 2, 1000, 1):
        extra = {"headers": [{"h": b"1"}] * size} if size % 2 else {}
        futures.append(broker.submit(topic, 0, Records(numbered(size, start), **extra)))
        start += size
    for future in futures:
        future.result(SOON)
    assert values(broker, topic) == numbered(start)


def test_many_threads_publish_at_once_and_each_sees_its_own_order(broker: Broker, topic: str) -> None:
    def publish(thread: int) -> list[int]:
        return [broker.publish(topic, 0, Records([b"%d.%d" % (thread, number)])).base_offset for number in range(25)]

    with ThreadPoolExecutor(8) as pool:
        offsets = list(pool.map(publish, range(8)))
    table = read_all(broker, topic)
    found = dict(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert len(found) == 200
    for thread, given in enumerate(offsets):
        assert given == sorted(given)
        assert [found[offset] for offset in given] == [b"%d.%d" % (thread, number) for number in range(25)]


def test_partitions_are_independent(broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records([b"zero"]))
    assert broker.end_offsets(topic)[1] == broker.start_offsets(topic)[1]
    broker.publish(topic, 1, Records([b"one"]))
    assert values(broker, topic, 0) == [b"zero"]
    assert values(broker, topic, 1) == [b"one"]


def test_many_partitions(broker: Broker) -> None:
    name = f"wide-{secrets.token_hex(6)}"
    assert broker.ensure_topic(name, TopicSettings(partitions=32)).partitions == 32
    futures = [broker.submit(name, partition, Records([b"%d" % partition])) for partition in range(32)]
    for future in futures:
        future.result(SOON)
    assert sorted(broker.end_offsets(name)) == list(range(32))
    for partition in range(0, 32, 5):
        assert values(broker, name, partition) == [b"%d" % partition]


# Fetching


def test_limits_cut_what_is_returned_and_reading_goes_on_behind(broker: Broker, topic: str) -> None:
    for start in range(0, 60, 6):
        broker.publish(topic, 0, Records(numbered(6, start)))
    expected = numbered(60)
    for limit in (1, 7, 59, 1000):
        assert values(broker, topic, max_records=limit) == expected
    assert values(broker, topic, max_bytes=1) == expected
    with reading(broker, topic) as fetcher:
        first = fetcher.fetch(broker.start_offsets(topic)[0], max_records=7, wait_s=SOON)
        assert 0 < len(first) <= 7
        # Back, forth and back again.
        offsets = read_all(broker, topic)["offset"].to_pylist()
        for index in (59, 0, 31, 30, 5):
            batch = fetcher.fetch(offsets[index], max_records=1, wait_s=SOON).to_record_batch()
            assert batch["offset"].to_pylist() == [offsets[index]]
            assert batch["value"].to_pylist() == [expected[index]]


def test_bytes_are_limited_to_about_what_was_asked_for(broker: Broker, topic: str) -> None:
    for start in range(0, 40, 4):
        broker.publish(topic, 0, Records(numbered(4, start, size=5_000)))
    with reading(broker, topic) as fetcher:
        batch = fetcher.fetch(broker.start_offsets(topic)[0], max_bytes=50_000, wait_s=SOON)
        assert 4 <= len(batch) <= 14  # one batch that was published together may come on top
        with pytest.raises(InvalidValueError):
            fetcher.fetch(0, max_bytes=0)
        with pytest.raises(InvalidValueError):
            fetcher.fetch(0, max_records=0)


def test_at_the_end_there_is_nothing_until_something_comes(broker: Broker, topic: str) -> None:
    with reading(broker, topic) as fetcher:
        start = broker.end_offsets(topic)[0]
        for wait_s in (0.0, 0.01):
            batch = fetcher.fetch(start, wait_s=wait_s)
            assert len(batch) == 0
            assert batch.next_offset == start
            assert batch.to_table().schema == SCHEMA
        for number in range(5):
            result = broker.publish(topic, 0, Records([b"%d" % number]))
            # Acknowledged before the call, so it comes without waiting.
            batch = fetcher.fetch(start)
            assert batch.to_record_batch()["value"].to_pylist() == [b"%d" % number]
            start = batch.next_offset
            assert start == result.next_offset
        assert len(fetcher.fetch(start)) == 0


def test_a_waiting_reader_wakes_up_when_a_record_comes(broker: Broker, topic: str) -> None:
    waiting = threading.Event()

    def wait() -> list[bytes]:
        with reading(broker, topic) as fetcher:
            offset = broker.end_offsets(topic)[0]
            fetcher.fetch(offset)
            waiting.set()
            return list(fetcher.fetch(offset, wait_s=SOON).to_record_batch()["value"].to_pylist())

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(wait)
        assert waiting.wait(SOON)
        broker.publish(topic, 0, Records([b"wake up"]))
        assert future.result(SOON) == [b"wake up"]


def test_offsets_that_no_record_ever_had_are_refused(broker: Broker, topic: str) -> None:
    end = broker.publish(topic, 0, Records([b"x"])).next_offset
    with reading(broker, topic) as fetcher:
        for wrong in (-1, end + 1, end + 10**9):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                fetcher.fetch(wrong, wait_s=0.01)
            assert caught.value.requested == wrong
            assert caught.value.end == end
            assert topic in caught.value.partition
        # The reader is still good.
        assert len(fetcher.fetch(end - 1)) == 1


def test_another_client_reads_what_was_acknowledged(under_test: BrokerUnderTest, broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records(numbered(10)))
    other = under_test.connect()
    assert topic in other.topics()
    assert other.topic(topic) == broker.topic(topic)
    assert values(other, topic) == numbered(10)


def test_readers_of_one_partition_do_not_disturb_each_other(broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records(numbered(100)))
    start = broker.start_offsets(topic)[0]
    with reading(broker, topic) as one, reading(broker, topic) as two:
        ahead = one.fetch(start, max_records=60, wait_s=SOON)
        behind = two.fetch(start, max_records=10, wait_s=SOON)
        assert one.fetch(ahead.next_offset).to_record_batch()["value"].to_pylist()[-1] == b"99"
        assert two.fetch(behind.next_offset, max_records=1).to_record_batch()["value"].to_pylist() == [b"10"]


# Times


def test_offsets_at_a_time_are_those_of_the_first_record_then_or_later(broker: Broker, topic: str) -> None:
    times = [TIME_MS + 1000 * number for number in range(50)]
    for start in range(0, 50, 5):
        broker.publish(topic, 0, Records(numbered(5, start), timestamps_ms=times[start : start + 5]))
    offsets, end = read_all(broker, topic)["offset"].to_pylist(), broker.end_offsets(topic)
    for seconds, index in ((-100, 0), (0, 0), (0.5, 1), (17, 17), (17.5, 18), (49, 49)):
        found = broker.offsets_at(topic, TIME + timedelta(seconds=seconds))
        assert found == {0: offsets[index], 1: end[1]}
    assert broker.offsets_at(topic, TIME + timedelta(days=1)) == end


# Topics


def test_topics_are_listed_and_described(broker: Broker, topic: str) -> None:
    names = broker.topics()
    assert topic in names
    assert names == sorted(names)
    assert not [name for name in names if name.startswith("__")]
    info = broker.topic(topic)
    assert (info.name, info.partitions) == (topic, 2)
    assert broker.kind
    assert broker.capabilities.grows


def test_ensuring_a_topic_that_is_there_changes_nothing(broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records([b"kept"]))
    assert broker.ensure_topic(topic, TopicSettings(partitions=7)) == broker.topic(topic)
    assert broker.topic(topic).partitions == 2
    assert values(broker, topic) == [b"kept"]


def test_a_topic_is_made_once_however_many_ask_for_it(under_test: BrokerUnderTest) -> None:
    name = f"race-{secrets.token_hex(6)}"
    clients = [under_test.connect() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda client: client.ensure_topic(name, TopicSettings(partitions=3)), clients))
    assert {info.partitions for info in found} == {3}
    clients[0].publish(name, 2, Records([b"ready at once"]))
    assert values(clients[1], name, 2) == [b"ready at once"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x y", "ü", "a" * 201, "a\nb", "__internal"])
def test_a_name_that_not_every_broker_takes_is_refused(broker: Broker, name: str) -> None:
    with pytest.raises(InvalidNameError):
        broker.ensure_topic(name, TopicSettings())


def test_unknown_topics_are_named_and_not_made(broker: Broker) -> None:
    name = f"missing-{secrets.token_hex(6)}"
    attempts = [
        lambda: broker.topic(name),
        lambda: broker.grow(name, 9),
        lambda: broker.publish(name, 0, Records([b"x"])),
        lambda: broker.submit(name, 0, Records([b"x"])),
        lambda: broker.fetcher(name, 0),
        lambda: broker.start_offsets(name),
        lambda: broker.end_offsets(name),
        lambda: broker.offsets_at(name, TIME),
        lambda: broker.committed(name, "billing"),
        lambda: broker.commit(name, "billing", {0: 1}),
        lambda: broker.groups(name),
        lambda: broker.maintain(name),
    ]
    for attempt in attempts:
        with pytest.raises(UnknownTopicError) as caught:
            attempt()
        assert caught.value.topic == name
    assert name not in broker.topics()


def test_unknown_partitions_are_named(broker: Broker, topic: str) -> None:
    for wrong in (2, -1, 10**6):
        for attempt in (
            lambda wrong=wrong: broker.publish(topic, wrong, Records([b"x"])),
            lambda wrong=wrong: broker.submit(topic, wrong, Records([b"x"])),
            lambda wrong=wrong: broker.fetcher(topic, wrong),
            lambda wrong=wrong: broker.commit(topic, "billing", {wrong: 1}),
        ):
            with pytest.raises(UnknownPartitionError) as caught:
                attempt()
            assert (caught.value.partition, caught.value.partitions) == (wrong, 2)
    assert broker.committed(topic, "billing") == {}


# Growth


def test_a_topic_grows_and_does_not_shrink(under_test: BrokerUnderTest, broker: Broker, topic: str) -> None:
    if not broker.capabilities.grows:
        with pytest.raises(UnsupportedByBrokerError):
            broker.grow(topic, 5)
        return
    before = broker.topic(topic)
    other = under_test.connect()
    assert other.topic(topic) == before
    broker.publish(topic, 1, Records([b"before"]))
    grown = broker.grow(topic, 5)
    assert grown.partitions == 5
    assert grown.version > before.version
    assert broker.grow(topic, 5) == grown
    for fewer in (4, 1, 0, -1):
        with pytest.raises(InvalidValueError):
            broker.grow(topic, fewer)
    assert broker.topic(topic) == grown == other.topic(topic)
    assert values(broker, topic, 1) == [b"before"]
    broker.publish(topic, 4, Records([b"after"]))
    assert values(other, topic, 4) == [b"after"]
    assert sorted(other.end_offsets(topic)) == [0, 1, 2, 3, 4]
    with pytest.raises(UnknownPartitionError):
        broker.publish(topic, 5, Records([b"x"]))


def test_who_had_published_before_a_growth_finds_the_new_partitions(
    under_test: BrokerUnderTest, broker: Broker, topic: str
) -> None:
    other = under_test.connect()
    if not (broker.capabilities.grows and broker.capabilities.shared_by_processes):
        pytest.skip("one process publishes, and it is the one that grows the topic")
    other.publish(topic, 0, Records([b"early"]))
    with reading(other, topic) as fetcher:
        fetcher.fetch(other.start_offsets(topic)[0], wait_s=SOON)
        broker.grow(topic, 3)
        other.publish(topic, 2, Records([b"late"]))
    assert values(other, topic, 2) == [b"late"]


# Groups


def test_groups_remember_where_they_read_next(under_test: BrokerUnderTest, broker: Broker, topic: str) -> None:
    end = broker.publish(topic, 0, Records(numbered(10))).next_offset
    assert broker.committed(topic, "billing") == {}
    assert broker.groups(topic) == []
    broker.commit(topic, "billing", {0: end - 3})
    assert broker.committed(topic, "billing") == {0: end - 3}
    broker.commit(topic, "billing", {0: end, 1: 0})
    broker.commit(topic, "audit", {0: end - 9})
    for client in (broker, under_test.connect()):
        assert client.committed(topic, "billing") == {0: end, 1: 0}
        assert client.committed(topic, "audit") == {0: end - 9}
        assert client.groups(topic) == ["audit", "billing"]


def test_a_lower_offset_is_ignored(broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records(numbered(10)))
    broker.commit(topic, "billing", {0: 7})
    broker.commit(topic, "billing", {0: 5, 1: 0})
    assert broker.committed(topic, "billing") == {0: 7, 1: 0}
    broker.commit(topic, "billing", {})
    broker.commit(topic, "billing", {0: 8})
    assert broker.committed(topic, "billing") == {0: 8, 1: 0}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda offset: broker.commit(topic, "billing", {0: offset}), [9, 10, 8, 7, 10, 9]))
    assert broker.committed(topic, "billing") == {0: 10, 1: 0}


def test_wrong_commits_are_refused(broker: Broker, topic: str) -> None:
    with pytest.raises(InvalidValueError):
        broker.commit(topic, "billing", {0: -1})
    with pytest.raises(InvalidNameError):
        broker.commit(topic, "", {0: 1})
    assert broker.committed(topic, "billing") == {}


def test_groups_of_one_topic_know_nothing_of_another(broker: Broker, topic: str) -> None:
    other = f"{topic}-2"
    broker.ensure_topic(other, TopicSettings(partitions=1))
    broker.publish(other, 0, Records([b"x"]))
    broker.commit(other, "billing", {0: 1})
    assert broker.committed(topic, "billing") == {}
    assert "billing" not in broker.groups(topic)
    assert broker.groups(other) == ["billing"]


# What goes


def test_dropped_records_are_expired_and_the_rest_stays(broker: Broker, topic: str) -> None:
    for start in range(0, 100, 10):
        broker.publish(topic, 0, Records(numbered(10, start)))
    offsets, end = read_all(broker, topic)["offset"].to_pylist(), broker.end_offsets(topic)
    if not broker.capabilities.drops:
        with pytest.raises(UnsupportedByBrokerError):
            broker.drop_before(topic, {0: offsets[55]})
        return
    with reading(broker, topic) as fetcher:
        fetcher.fetch(offsets[0], max_records=5, wait_s=SOON)
        broker.drop_before(topic, {0: offsets[55]})
        assert broker.start_offsets(topic) == {0: offsets[55], 1: broker.start_offsets(topic)[1]}
        with pytest.raises(RecordsExpiredError) as caught:
            fetcher.fetch(offsets[20], wait_s=0.01)
        assert (caught.value.requested, caught.value.earliest) == (offsets[20], offsets[55])
        assert topic in caught.value.partition
    assert values(broker, topic) == numbered(45, 55)
    # Lower again: nothing comes back. Beyond the end: everything goes, and what follows has higher offsets.
    broker.drop_before(topic, {0: offsets[10]})
    assert broker.start_offsets(topic)[0] == offsets[55]
    broker.drop_before(topic, {0: end[0] + 1000})
    assert broker.start_offsets(topic)[0] == broker.end_offsets(topic)[0] == end[0]
    assert broker.publish(topic, 0, Records([b"next"])).base_offset >= end[0]
    assert values(broker, topic) == [b"next"]


def test_maintaining_a_topic_loses_nothing_that_it_keeps(broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records(numbered(10)))
    broker.maintain(topic)
    assert values(broker, topic) == numbered(10)


# Ends


def test_closing_finishes_what_was_submitted(under_test: BrokerUnderTest, broker: Broker, topic: str) -> None:
    if not under_test.separate_clients:
        pytest.skip("all clients are one")
    client = under_test.connect()
    futures = [client.submit(topic, 0, Records(numbered(100, start))) for start in range(0, 1000, 100)]
    client.close()
    assert all(future.done() for future in futures)
    assert futures[-1].result().next_offset == broker.end_offsets(topic)[0]
    client.close()
    assert values(broker, topic) == numbered(1000)
    with pytest.raises(PartitionClosedError):
        client.publish(topic, 0, Records([b"too late"]))


def test_closing_twice_and_without_use_is_harmless(under_test: BrokerUnderTest, topic: str) -> None:
    if not under_test.separate_clients:
        pytest.skip("all clients are one")
    with under_test.connect() as client:
        fetcher = client.fetcher(topic, 0)
        fetcher.close()
        fetcher.close()
    client.close()


def test_a_broker_that_does_not_answer_is_named(under_test: BrokerUnderTest) -> None:
    if under_test.unreachable is None:
        pytest.skip("there is no server that could be away")
    client = under_test.unreachable()
    attempts = [
        client.topics,
        lambda: client.topic("orders"),
        lambda: client.ensure_topic("orders", TopicSettings()),
        lambda: client.grow("orders", 3),
        lambda: client.publish("orders", 0, Records([b"x"])),
        lambda: client.fetcher("orders", 0),
        lambda: client.start_offsets("orders"),
        lambda: client.offsets_at("orders", TIME),
        lambda: client.committed("orders", "billing"),
        lambda: client.commit("orders", "billing", {0: 1}),
        lambda: client.groups("orders"),
    ]
    for attempt in attempts:
        with pytest.raises(BrokerUnavailableError) as caught:
            attempt()
        assert caught.value.kind == client.kind
        assert "127.0.0.1:1" in caught.value.address
