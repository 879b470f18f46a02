import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dw_platform.bus import (
    BusLimits,
    InvalidMessageError,
    LogStorage,
    Message,
    ScalableMessageBus,
    TopicOptions,
    TopicSubscription,
    WalMessageQueue,
)
from dw_platform.foundation import InvalidValueError
from dw_platform.log import (
    CorruptTopicError,
    FsyncPolicy,
    Log,
    LogPolicy,
    PartitionLockedError,
    Records,
    Retention,
    SubscriberOffsets,
)
from dw_platform.store import PersistentStore
from dw_platform.store.open import open_store
from tests.bus.loops import in_event_loop

DURABLE = {"orders": TopicOptions(durable=True)}


@pytest.fixture
def store() -> Iterator[PersistentStore]:
    store = open_store("memory://")
    yield store
    store.close()


def open_bus(
    folder: Path, store: PersistentStore, *, partitions: int = 2, policy: LogPolicy | None = None
) -> ScalableMessageBus:
    policy = policy or LogPolicy(fsync=FsyncPolicy.never())
    storage = LogStorage(folder / "log", store, policy)
    return ScalableMessageBus(limits=BusLimits(partitions=partitions), topics=DURABLE, storage=storage)


def values(subscription: TopicSubscription, at_most: int = 1_000) -> list[Any]:
    found: list[Any] = []
    while len(found) < at_most and (taken := subscription.take(at_most)):
        found += [delivery.value for delivery in taken]
        subscription.commit_sync()
    return found


def numbered(first: int, last: int, key: bytes | None = b"k") -> list[Message]:
    return [Message(f"{number}".encode(), key) for number in range(first, last)]


def texts(first: int, last: int) -> list[bytes]:
    return [f"{number}".encode() for number in range(first, last)]


def test_a_restart_replays_what_was_not_committed_and_nothing_else(tmp_path: Path, store: PersistentStore) -> None:
    bus = open_bus(tmp_path, store)
    reader = bus.subscribe("orders", "billing")
    bus.publish_sync("orders", numbered(0, 10))
    assert [delivery.value for delivery in reader.take(4)] == texts(0, 4)
    reader.commit_sync()
    assert [delivery.value for delivery in reader.take(3)] == texts(4, 7)
    bus.close_sync()

    again = open_bus(tmp_path, store)
    assert values(again.subscribe("orders", "billing")) == texts(4, 10)
    again.close_sync()


def test_messages_published_before_any_group_are_kept_for_a_later_one(tmp_path: Path, store: PersistentStore) -> None:
    bus = open_bus(tmp_path, store)
    bus.publish_sync("orders", numbered(0, 5))
    assert values(bus.subscribe("orders", "late")) == texts(0, 5)
    assert values(bus.subscribe("orders")) == texts(0, 5)
    assert "~" not in json.dumps(list(SubscriberOffsets(store).groups("orders")))
    bus.close_sync()


def test_key_headers_and_value_come_back_as_they_were(tmp_path: Path, store: PersistentStore) -> None:
    bus = open_bus(tmp_path, store)
    reader = bus.subscribe("orders", "a")
    messages = [
        Message(b"1", None, {"trace": "\u00e4"}),
        Message(b"", b"\x00\xff"),
        Message(b"3", None, {"raw": b"\xff".decode("utf-8", "surrogateescape")}),
    ]
    bus.publish_sync("orders", messages)
    assert {delivery.message.value: delivery.message for delivery in reader.take()} == {m.value: m for m in messages}
    bus.close_sync()


def test_what_another_writer_put_into_the_log_is_read(tmp_path: Path, store: PersistentStore) -> None:
    log = Log(tmp_path / "log")
    log.create_topic("orders", partitions=3)
    with log.writer("orders", 2) as writer:
        writer.append(Records([b"x"], headers=[{"h": b"v"}]))
    bus = open_bus(tmp_path, store)
    assert bus.subscribe("orders", "a").take()[0].message == Message(b"x", None, {"h": "v"})
    assert bus.stats().topics["orders"].partitions == 3
    bus.close_sync()


def test_repartitioning_keeps_the_order_of_a_key_also_across_restarts(tmp_path: Path, store: PersistentStore) -> None:
    keys = [f"key-{number}".encode() for number in range(6)]
    expected: dict[bytes, list[bytes]] = {key: [] for key in keys}
    seen: dict[bytes | None, list[bytes]] = {key: [] for key in keys}
    number = 0
    for partitions in (2, 5, 3, 4):  # grows, shrinks, grows again within what the log has
        bus = open_bus(tmp_path, store)
        bus.repartition("orders", partitions)
        for key in keys * 3:
            bus.publish_sync("orders", [Message(f"{number}".encode(), key)])
            expected[key].append(f"{number}".encode())
            number += 1
        reader = bus.subscribe("orders", "a")
        for delivery in reader.take(5):
            seen[delivery.message.key].append(delivery.value)
        reader.commit_sync()
        bus.close_sync()
    last = open_bus(tmp_path, store)
    reader = last.subscribe("orders", "a")
    while taken := reader.take(7):
        for delivery in taken:
            seen[delivery.message.key].append(delivery.value)
        reader.commit_sync()
    assert seen == expected
    assert last.stats().totals["depth"] == 0
    last.close_sync()


@in_event_loop
async def test_publishers_on_one_loop_wait_for_their_fsync_together(tmp_path: Path, store: PersistentStore) -> None:
    bus = open_bus(tmp_path, store, partitions=1, policy=LogPolicy(fsync=FsyncPolicy.always()))
    reader = bus.subscribe("orders", "a")
    await asyncio.gather(*(bus.publish("orders", Message(f"{n}".encode())) for n in range(64)))
    assert bus.stats().topics["orders"].queues["p0.log_fsyncs"] < 64
    seen: list[bytes] = []
    async with asyncio.timeout(20):
        while len(seen) < 64:
            seen += [delivery.value for delivery in await reader.receive()]
            await reader.commit()
    assert seen == texts(0, 64)
    await bus.close()


@in_event_loop
async def test_repartitioning_while_publishers_wait_for_the_disk_loses_nothing(
    tmp_path: Path, store: PersistentStore
) -> None:
    bus = open_bus(tmp_path, store, policy=LogPolicy(fsync=FsyncPolicy.always()))
    reader = bus.subscribe("orders", "a")

    async def publish(key: bytes) -> None:
        for number in range(30):
            await bus.publish("orders", Message(f"{number}".encode(), key))

    async def repartition() -> None:
        for partitions in (4, 1, 3, 6):
            await asyncio.to_thread(bus.repartition, "orders", partitions)

    keys = [b"a", b"b", b"c", b"d"]
    async with asyncio.timeout(60):
        await asyncio.gather(repartition(), *map(publish, keys))
    seen: dict[bytes | None, list[bytes]] = {key: [] for key in keys}
    while taken := reader.take():
        for delivery in taken:
            seen[delivery.message.key].append(delivery.value)
        reader.commit_sync()
    assert seen == {key: texts(0, 30) for key in keys}
    await bus.close()


def test_a_second_process_cannot_write_the_same_topic(tmp_path: Path, store: PersistentStore) -> None:
    bus, other = open_bus(tmp_path, store), open_bus(tmp_path, store)
    bus.publish_sync("orders", numbered(0, 1))
    with pytest.raises(PartitionLockedError):
        other.publish_sync("orders", numbered(1, 2))
    bus.close_sync()
    other.publish_sync("orders", numbered(1, 2))
    assert values(other.subscribe("orders", "a")) == texts(0, 2)
    other.close_sync()


def test_a_durable_topic_takes_bytes_only_and_has_no_ring(tmp_path: Path, store: PersistentStore) -> None:
    bus = open_bus(tmp_path, store)
    with pytest.raises(InvalidMessageError, match="takes bytes"):
        bus.publish_sync("orders", [Message("text")])
    with pytest.raises(InvalidValueError, match="durable"):
        TopicOptions(hot=True, durable=True)
    bus.close_sync()


def test_a_removed_group_begins_anew(tmp_path: Path, store: PersistentStore) -> None:
    bus = open_bus(tmp_path, store)
    bus.publish_sync("orders", numbered(0, 3))
    assert values(bus.subscribe("orders", "a")) == texts(0, 3)
    bus.remove_group("orders", "a")
    assert values(bus.subscribe("orders", "a")) == texts(0, 3)
    bus.close_sync()


def test_maintenance_drops_what_every_group_has_read_and_the_map_forgets_old_partitions(
    tmp_path: Path, store: PersistentStore
) -> None:
    policy = LogPolicy(fsync=FsyncPolicy.never(), segment_bytes=1024, retention=Retention.until_read())
    bus = open_bus(tmp_path, store, partitions=1, policy=policy)
    reader = bus.subscribe("orders", "a")
    for number in range(20):
        bus.publish_sync("orders", [Message(b"x" * 200, f"{number}".encode())])
    bus.repartition("orders", 2)
    for number in range(20):
        bus.publish_sync("orders", [Message(b"y" * 200, f"{number}".encode())])
    bus.maintain()
    assert len(values(reader)) == 40
    before = bus.stats().topics["orders"].queues["p0.log_segments"]
    bus.maintain()
    assert bus.stats().topics["orders"].queues["p0.log_segments"] < before
    assert set(bus.stats().topics["orders"].depths) == {"v2.p0", "v2.p1"}
    bus.close_sync()
    again = open_bus(tmp_path, store, partitions=1)
    assert values(again.subscribe("orders", "a")) == []
    again.close_sync()


def test_a_partition_map_that_cannot_be_read_is_refused_and_the_log_is_free_again(
    tmp_path: Path, store: PersistentStore
) -> None:
    bus = open_bus(tmp_path, store)
    bus.publish_sync("orders", numbered(0, 2))
    bus.close_sync()
    good = store.get("dw://internal/bus/map/orders")
    assert good is not None
    store.put(good.key, b'{"generations": [{}]}')
    with pytest.raises(CorruptTopicError, match="partition map"):
        open_bus(tmp_path, store).subscribe("orders", "a")
    store.put(good.key, good.value)
    again = open_bus(tmp_path, store)
    assert values(again.subscribe("orders", "a")) == texts(0, 2)
    again.close_sync()


def test_the_queue_of_one_partition_works_by_itself(tmp_path: Path, store: PersistentStore) -> None:
    log = Log(tmp_path / "log")
    log.create_topic("orders", partitions=1)
    queue = WalMessageQueue(log, SubscriberOffsets(store), "orders", 0)
    queue.put(numbered(0, 5)).result(20)
    reader = queue.reader("a")
    assert [delivery.value for delivery in reader.take(3)] == texts(0, 3)
    reader.commit(3)
    reader.close()
    assert [delivery.offset for delivery in queue.reader("a").take(10)] == [3, 4]
    assert (queue.start, queue.end) == (0, 5)
    queue.close()
