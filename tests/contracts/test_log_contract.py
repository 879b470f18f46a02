"""One suite for every disk under a log."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.log import (
    SCHEMA,
    AppendResult,
    Disk,
    FileDisk,
    FsyncPolicy,
    InvalidNameError,
    InvalidRecordsError,
    Log,
    LogPolicy,
    OffsetOutOfRangeError,
    PartitionClosedError,
    PartitionLockedError,
    PartitionLog,
    PartitionReader,
    Records,
    RecordsExpiredError,
    RecordTooLargeError,
    Retention,
    StoreDisk,
    SubscriberOffsets,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
    verify,
)
from dw_platform.store import MemoryStore, open_store
from tests.fakes.faulty_disk import FaultyDisk
from tests.servers import postgres_server_url, postgres_url

__all__ = ["postgres_server_url", "postgres_url"]

SMALL = LogPolicy(segment_bytes=1024)


@pytest.fixture(params=["files", "faulty", "memory", "sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    match request.param:
        case "files":
            yield FileDisk()
        case "faulty":
            yield FaultyDisk()
        case "memory":
            yield StoreDisk(MemoryStore())
        case kind:
            url = f"sqlite:///{tmp_path}/s.db" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
            store = open_store(url)
            yield StoreDisk(store)
            store.close()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def batches_from(reader: PartitionReader, offset: int = 0) -> Iterator[Any]:
    while offset < reader.end_offset():
        batch = reader.read(offset)
        yield from batch.batches
        offset = batch.next_offset


def values_from(reader: PartitionReader, offset: int = 0) -> list[bytes]:
    return [value for batch in batches_from(reader, offset) for value in batch["value"].to_pylist()]


def test_a_batch_is_read_back_as_it_was_appended(disk: Disk, place: str) -> None:
    clock = FakeClock()
    with PartitionLog.open(place, disk=disk, clock=clock) as log, PartitionReader(place, disk=disk) as reader:
        records = Records(
            [b"one", b"", None],
            keys=[b"k", None, b""],
            headers=[{"trace": b"\x00\xff", "größe": b"1"}, None, {}],
            timestamps_ms=[5, 0, -1],
        )
        assert log.append(records) == AppendResult(0, 3)
        assert log.append(Records([b"now"])) == AppendResult(3, 4)
        table = reader.read(0).to_table()
        assert table.schema == SCHEMA
        table.validate(full=True)
        assert table["offset"].to_pylist() == [0, 1, 2, 3]
        assert table["value"].to_pylist() == [b"one", b"", None, b"now"]
        assert table["key"].to_pylist() == [b"k", None, b"", None]
        assert table["headers"].to_pylist() == [[("trace", b"\x00\xff"), ("größe", b"1")], None, [], None]
        assert table["timestamp"].cast(pa.int64()).to_pylist() == [5, 0, -1, int(clock.now().timestamp() * 1000)]


def test_arrow_arrays_and_their_slices_are_taken_as_they_are(disk: Disk, place: str) -> None:
    values = pa.array([b"%d" % number for number in range(1000)], pa.binary())
    with PartitionLog.open(place, disk=disk) as log:
        log.append(Records(values[250:750], keys=values[1:501]))
        log.append(Records(pa.array(["text", None]), keys=pa.array([b"x", b"y"], pa.large_binary())))
        log.append(Records(pa.chunked_array([values[:2], values[998:]])))
        batch = PartitionReader(place, disk=disk).read(0).to_record_batch()
    assert batch["value"].to_pylist() == [*values[250:750].to_pylist(), b"text", None, b"0", b"1", b"998", b"999"]
    assert batch["key"].to_pylist()[:500] == values[1:501].to_pylist()


def test_offsets_go_on_after_reopening(disk: Disk, place: str) -> None:
    for round_ in range(4):
        with PartitionLog.open(place, SMALL, disk=disk) as log:
            assert log.recovery.end_offset == 20 * round_
            for number in range(10):
                assert log.append(Records([b"x" * 100] * 2)).base_offset == 20 * round_ + 2 * number
            assert log.stats().segments > 1
    with PartitionReader(place, disk=disk) as reader:
        assert len(values_from(reader)) == 80
    assert verify(place, disk=disk) == []


def test_limits_cut_what_is_returned_and_reading_goes_on_behind(disk: Disk, place: str) -> None:
    with PartitionLog.open(place, SMALL, disk=disk) as log:
        for start in range(0, 60, 6):
            log.append(Records([b"%03d" % number for number in range(start, start + 6)]))
        reader = PartitionReader(place, disk=disk)
        for limits in (
            {"max_records": 1},
            {"max_records": 7},
            {"max_bytes": 1},
            {"max_bytes": 200},
            {"max_bytes": 10**6},
        ):
            offset, seen = 0, list[bytes]()
            while offset < 60:
                batch = reader.read(offset, **limits)
                assert 0 < len(batch) <= limits.get("max_records", 60)
                seen += batch.to_record_batch()["value"].to_pylist()
                offset = batch.next_offset
            assert seen == [b"%03d" % number for number in range(60)]
        for offset in (59, 0, 31, 30, 5):
            assert reader.read(offset, max_records=1).to_record_batch()["offset"].to_pylist() == [offset]
        assert len(reader.read(60)) == 0
        assert reader.read(60).to_record_batch().schema == SCHEMA


@pytest.mark.parametrize("offset", [-1, 2, 10**30])
def test_an_offset_that_never_was_is_refused(disk: Disk, place: str, offset: int) -> None:
    with PartitionLog.open(place, disk=disk) as log:
        log.append(Records([b"one"]))
        with pytest.raises(OffsetOutOfRangeError) as caught:
            PartitionReader(place, disk=disk).read(offset)
    assert (caught.value.requested, caught.value.end) == (offset, 1)


def test_limits_below_one_are_refused(disk: Disk, place: str) -> None:
    with PartitionLog.open(place, disk=disk), pytest.raises(InvalidValueError):
        PartitionReader(place, disk=disk).read(0, max_records=0)


def test_a_second_writer_is_refused_until_the_first_has_closed(disk: Disk, place: str) -> None:
    first = PartitionLog.open(place, disk=disk)
    with pytest.raises(PartitionLockedError, match="is being written by"):
        PartitionLog.open(place, disk=disk)
    first.append(Records([b"unharmed"]))
    first.close()
    first.close()
    with PartitionLog.open(place, disk=disk) as second:
        assert second.recovery.end_offset == 1


def test_a_closed_partition_takes_nothing_more(disk: Disk, place: str) -> None:
    log = PartitionLog.open(place, disk=disk)
    future = log.submit(Records([b"in time"]))
    log.close()
    assert future.result(60) == AppendResult(0, 1)
    with pytest.raises(PartitionClosedError):
        log.append(Records([b"late"]))
    with pytest.raises(PartitionClosedError):
        log.submit(Records([b"late"]))


def too_large() -> Records:
    return Records([b"fits", b"x" * 2000])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (too_large, RecordTooLargeError),
        (lambda: Records([b"x"] * 500 + [b"x" * 2000]), RecordTooLargeError),
        (lambda: Records([b"x" * 600], keys=[b"k" * 600]), RecordTooLargeError),
        (lambda: Records([b"x"], headers=[{"h": b"x" * 1200}]), RecordTooLargeError),
        (lambda: Records([]), InvalidRecordsError),
        (lambda: Records(["text"]), InvalidRecordsError),
        (lambda: Records(["text"] * 500), InvalidRecordsError),
        (lambda: Records([b"x", "text"] * 500), InvalidRecordsError),
        (lambda: Records([memoryview(b"x")]), InvalidRecordsError),
        (lambda: Records(b"bytes"), InvalidRecordsError),
        (lambda: Records([b"x"], keys=[]), InvalidRecordsError),
        (lambda: Records([b"x"], keys=[1]), InvalidRecordsError),
        (lambda: Records([b"x"], headers=[{"h": "text"}]), InvalidRecordsError),
        (lambda: Records([b"x"], timestamps_ms=[None]), InvalidRecordsError),
        (lambda: Records([b"x"], timestamps_ms=[2**70]), InvalidRecordsError),
        (lambda: Records([b"x"], timestamps_ms=[True]), InvalidRecordsError),
        (lambda: Records([b"x"], headers=[{"\udc80": b"half a character"}]), InvalidRecordsError),
        (lambda: Records([b"x"] * 500, headers=[{"\udc80": b"half a character"}] * 500), InvalidRecordsError),
        (lambda: Records([b"x"], headers=["text"]), InvalidRecordsError),
        (lambda: Records(pa.array([1, 2])), InvalidRecordsError),
    ],
)
def test_a_wrong_batch_is_refused_and_harms_nothing_else(
    disk: Disk, place: str, make: Callable[[], Records], error: type[Exception]
) -> None:
    with PartitionLog.open(place, LogPolicy(max_record_bytes=1000), disk=disk) as log:
        with pytest.raises(error):
            log.append(make())
        assert log.append(Records([b"x" * 1000])) == AppendResult(0, 1)


def test_many_publishers_at_once_each_get_their_own_offsets(disk: Disk, place: str) -> None:
    with PartitionLog.open(place, LogPolicy(segment_bytes=4096), disk=disk) as log:

        def publish(worker: int) -> list[tuple[int, bytes]]:
            placed = []
            for number in range(25):
                value = b"%d/%d" % (worker, number)
                one = log.append(Records([value]))
                placed.append((one.base_offset, value))
                two = log.submit(Records([value + b"+", value + b"-"])).result(60)
                placed += [(two.base_offset, value + b"+"), (two.base_offset + 1, value + b"-")]
            return placed

        with ThreadPoolExecutor(8) as pool:
            placed = dict(pair for pairs in pool.map(publish, range(8)) for pair in pairs)
        assert sorted(placed) == list(range(600))
        assert values_from(PartitionReader(place, disk=disk)) == [placed[offset] for offset in range(600)]


def test_batches_submitted_in_order_stay_in_order(disk: Disk, place: str) -> None:
    async def publish(log: PartitionLog) -> list[AppendResult]:
        return await asyncio.gather(
            *(asyncio.wrap_future(log.submit(Records([b"%d" % number]))) for number in range(200))
        )

    with PartitionLog.open(place, disk=disk) as log:
        results = asyncio.run(publish(log))
        assert [result.base_offset for result in results] == list(range(200))
        assert log.stats().appended_batches == 200


def test_a_reader_that_was_there_first_sees_what_comes(disk: Disk, place: str) -> None:
    reader = PartitionReader(place, disk=disk)
    assert (reader.start_offset(), reader.end_offset(), len(reader.read(0))) == (0, 0, 0)
    with PartitionLog.open(place, disk=disk) as log:
        log.append(Records([b"one"]))
        assert values_from(reader) == [b"one"]


def test_retention_drops_whole_segments_and_names_what_is_gone(disk: Disk, place: str) -> None:
    clock = FakeClock()
    policy = LogPolicy(segment_bytes=1024, retention=Retention(max_age=timedelta(hours=24), max_bytes=None))
    with PartitionLog.open(place, policy, clock=clock, disk=disk) as log:
        for _ in range(5):
            log.append(Records([b"x" * 400] * 3))
            clock.advance(3600)
        reader = PartitionReader(place, disk=disk)
        assert log.retain().drop == ()
        clock.advance(22.5 * 3600)
        plan = log.retain()
        assert len(plan.drop) == 3
        assert all("older than 1d" in reason for reason in plan.reasons)
        start = log.stats().start_offset
        assert reader.start_offset() == start == 9
        with pytest.raises(RecordsExpiredError) as caught:
            reader.read(4)
        assert (caught.value.requested, caught.value.earliest) == (4, start)
        assert len(values_from(reader, start)) == 6
        clock.advance(10 * 24 * 3600)
        log.retain()
        assert log.append(Records([b"next"])).base_offset == 15
    with PartitionLog.open(place, policy, clock=clock, disk=disk) as log:
        assert log.recovery.end_offset == 16


def test_retention_by_size_and_by_readers(disk: Disk, place: str) -> None:
    with PartitionLog.open(place, SMALL, disk=disk) as log:
        for _ in range(6):
            log.append(Records([b"x" * 1000]))
    by_size = LogPolicy(segment_bytes=1024, retention=Retention(max_bytes=3000, max_age=None, keep_unread=True))
    with PartitionLog.open(place, by_size, disk=disk) as log:
        assert log.retain(read_up_to=1).drop[0].segment.base == 0
        assert log.stats().start_offset == 1
        assert log.retain(read_up_to=1).drop == ()
        assert [age.segment.base for age in log.retain().drop] == [1, 2, 3]
    until_read = LogPolicy(segment_bytes=1024, retention=Retention.until_read())
    with PartitionLog.open(place, until_read, disk=disk) as log:
        assert log.retain().drop == ()
        assert [age.segment.base for age in log.retain(read_up_to=6).drop] == [4]
        assert log.stats().start_offset == 5


def test_compaction_keeps_the_newest_value_of_a_key_at_its_offset(disk: Disk, place: str) -> None:
    policy = LogPolicy(segment_bytes=1024, compacted=True)
    with PartitionLog.open(place, policy, disk=disk) as log:
        for number in range(60):
            headers = [{"n": b"%d" % number}] if number % 2 else None
            log.append(Records([b"%d" % number + b"." * 100], keys=[b"key %d" % (number % 4)], headers=headers))
        log.append(Records([b"no key" + b"." * 1000, None], keys=[None, b"key 0"]))
        log.append(Records([b"rolls"], keys=[b"key 1"]))
        before = PartitionReader(place, disk=disk)
        before.read(0, max_records=1)
        assert log.compact() > 40
        assert log.compact() == 0
        reader = PartitionReader(place, disk=disk)
        table = pa.Table.from_batches(list(batches_from(reader)))
        kept = dict(zip(table["offset"].to_pylist(), table["key"].to_pylist(), strict=True))
        assert list(kept) == [57, 58, 59, 60, 61, 62]
        assert list(kept.values()) == [b"key 1", b"key 2", b"key 3", None, b"key 0", b"key 1"]
        assert table["headers"].to_pylist()[:3] == [[("n", b"57")], None, [("n", b"59")]]
        assert reader.read(58, max_records=1).to_record_batch()["offset"].to_pylist() == [58]
        assert log.stats().segments < 5
        assert reader.start_offset() == 0
    assert verify(place, disk=disk) == []
    with PartitionLog.open(place, policy, disk=disk) as log:
        assert log.append(Records([b"next"])).base_offset == 63


def test_topics_are_made_grown_listed_and_removed(disk: Disk, place: str) -> None:
    log = Log(place, disk=disk)
    policy = LogPolicy(fsync=FsyncPolicy.every_interval(timedelta(milliseconds=5)), retention=Retention.until_read())
    made = log.create_topic("orders", partitions=2, policy=policy)
    assert (made.version, made.partitions, made.policy) == (1, 2, policy)
    assert log.describe("orders") == made
    with pytest.raises(TopicExistsError):
        log.create_topic("orders")
    with log.writer("orders", 1) as writer:
        writer.append(Records([b"kept while it grows"]))
    grown = log.grow("orders", 5)
    assert (grown.version, grown.partitions) == (2, 5)
    assert log.grow("orders", 5) == grown
    with pytest.raises(InvalidValueError):
        log.grow("orders", 4)
    assert log.reader("orders", 1).end_offset() == 1
    assert log.reader("orders", 4).end_offset() == 0
    with pytest.raises(UnknownPartitionError):
        log.reader("orders", 5)
    log.create_topic("audit")
    assert [topic.name for topic in log.topics()] == ["audit", "orders"]
    assert log.verify("orders") == []
    with log.writer("orders", 0), pytest.raises(PartitionLockedError):
        log.delete_topic("orders")
    log.delete_topic("orders")
    with pytest.raises(UnknownTopicError):
        log.describe("orders")
    log.create_topic("orders", partitions=2)
    assert log.reader("orders", 1).end_offset() == 0


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../up", "a/b", "a\\b", "/etc", ".hidden", "a\0b", "line\n", "x" * 201, "größe", "-x", " "]
)
def test_names_that_could_be_anything_but_a_folder_are_refused(disk: Disk, place: str, name: str) -> None:
    log = Log(place, disk=disk)
    with pytest.raises(InvalidNameError) as caught:
        log.create_topic(name)
    assert caught.value.name == name
    with pytest.raises(InvalidNameError):
        SubscriberOffsets(MemoryStore()).commit("topic", name, {0: 1})


def test_topics_made_at_once_are_made_once(disk: Disk, place: str) -> None:
    start = threading.Barrier(4)

    def make(_: int) -> int:
        start.wait(60)
        try:
            return Log(place, disk=disk).create_topic("same", partitions=3).version
        except TopicExistsError:
            return 0

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(make, range(4))) == [0, 0, 0, 1]
