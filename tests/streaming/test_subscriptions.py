"""Reading by groups: order, at least once, hand-over between processes, resuming after a crash."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.log import InvalidNameError, Records, RecordsExpiredError, UnknownTopicError
from dw_platform.store import MemoryStore, StoreUnavailableError, internal_key
from dw_platform.streaming import (
    GroupFencedError,
    StreamEvent,
    StreamingLimits,
    StreamingScalingManager,
    StreamsClosedError,
    StreamSubscription,
)
from tests.bus.loops import in_event_loop
from tests.fakes.memory_broker import MemoryBroker
from tests.streaming.streams import SOON_S, definition, embedded, eventually, keyed, memory, serving

NIMBLE = StreamingLimits(session_timeout=timedelta(seconds=1))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def broker() -> MemoryBroker:
    return memory()


@pytest.fixture
def streams(broker: MemoryBroker, store: MemoryStore) -> Iterator[StreamingScalingManager]:
    with serving(definition(broker), store=store, limits=NIMBLE) as opened:
        yield opened


def publish(streams: StreamingScalingManager, first: int, last: int, keys: int = 10) -> None:
    for number in range(first, last):
        streams.publish_sync("orders", keyed((b"key-%d" % (number % keys), b"%d" % number)))


async def take(events: StreamSubscription, count: int) -> list[StreamEvent]:
    async with asyncio.timeout(SOON_S):
        return [await anext(events) for _ in range(count)]


def values(events: list[StreamEvent]) -> list[int]:
    return [int(event.value or b"") for event in events]


@asynccontextmanager
async def collecting(events: StreamSubscription, into: list[StreamEvent]) -> AsyncIterator[None]:
    """Read in the background while the block runs."""

    async def read() -> None:
        async for event in events:
            into.append(event)  # noqa: PERF401 - what is read so far is looked at meanwhile

    task = asyncio.create_task(read())
    try:
        yield
    finally:
        await events.close()
        await task


async def until(condition: Any) -> None:
    await asyncio.to_thread(eventually, condition)


@in_event_loop
async def test_a_new_group_begins_with_the_oldest_record_and_sees_each_partition_in_order(
    streams: StreamingScalingManager,
) -> None:
    publish(streams, 0, 50)
    async with streams.subscribe("orders", "billing") as events:
        first = await take(events, 50)
        publish(streams, 50, 100)
        seen = first + await take(events, 50)
    assert sorted(values(seen)) == list(range(100))
    for key in range(10):
        mine = [number for number in values(seen) if number % 10 == key]
        assert mine == sorted(mine)
    assert (seen[0].topic, seen[0].key) == ("orders", b"key-%d" % (values(seen)[0] % 10))


@in_event_loop
async def test_what_was_read_to_the_end_of_the_block_is_not_read_again(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    publish(streams, 0, 40)
    seen = []
    for _ in range(4):
        async with streams.subscribe("orders", "billing") as events:
            async for event in events:
                seen.append(event)
                if len(seen) % 10 == 0:
                    break
    assert sorted(values(seen)) == list(range(40))
    assert broker.committed("orders", "billing") == broker.end_offsets("orders")


@in_event_loop
async def test_a_record_whose_handling_failed_is_read_again(streams: StreamingScalingManager) -> None:
    publish(streams, 0, 5, keys=1)

    async def handle() -> None:
        async with streams.subscribe("orders", "billing") as events:
            async for event in events:
                if values([event]) == [3]:
                    raise ConnectionError("while handling 3")

    with pytest.raises(ConnectionError):
        await handle()
    async with streams.subscribe("orders", "billing") as events:
        assert values(await take(events, 2)) == [3, 4]


@in_event_loop
async def test_groups_read_independently(streams: StreamingScalingManager) -> None:
    publish(streams, 0, 10)
    async with streams.subscribe("orders", "a") as one, streams.subscribe("orders", "b") as other:
        assert sorted(values(await take(one, 10))) == sorted(values(await take(other, 10))) == list(range(10))


@in_event_loop
async def test_with_manual_commit_only_what_was_committed_counts(
    streams: StreamingScalingManager, broker: MemoryBroker, store: MemoryStore
) -> None:
    publish(streams, 0, 10, keys=1)
    async with streams.subscribe("orders", "billing", auto_commit=False) as events:
        await take(events, 4)
        await events.commit()
        await take(events, 3)
    (partition,) = broker.committed("orders", "billing")
    assert broker.committed("orders", "billing") == {partition: 4}
    checkpoint = streams.checkpoint("orders", "billing", partition)
    assert checkpoint is not None
    assert (checkpoint.offset, checkpoint.member) == (4, events.member)
    assert store.get(internal_key("streaming", "checkpoint", "orders", "billing", str(partition))) is not None
    async with streams.subscribe("orders", "billing", auto_commit=False) as events:
        assert values(await take(events, 1)) == [4]


@in_event_loop
async def test_what_is_done_is_committed_while_the_reader_goes_on(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    publish(streams, 0, 10, keys=1)
    seen: list[StreamEvent] = []
    async with collecting(streams.subscribe("orders", "billing"), seen):
        await until(lambda: sum(broker.committed("orders", "billing").values()) == 10)


@in_event_loop
async def test_a_killed_process_loses_nothing_and_repeats_only_what_it_had_not_committed(
    broker: MemoryBroker, store: MemoryStore
) -> None:
    slow = StreamingLimits(session_timeout=timedelta(seconds=1), checkpoint_every=timedelta(hours=1))
    with serving(definition(broker), store=store, limits=slow) as before:
        publish(before, 0, 20, keys=1)
        killed = before.subscribe("orders", "billing")
        await take(killed, 8)
        await killed.commit()
        await take(killed, 5)
        # As a kill does: its thread is gone, without a word to anybody.
        killed._pump._member.leave = lambda: None  # type: ignore[method-assign]
        killed._pump.commit = lambda: None  # type: ignore[method-assign]
        await killed.close()
        with serving(definition(broker), store=store, limits=NIMBLE) as after:
            async with after.subscribe("orders", "billing") as events:
                assert values(await take(events, 12)) == list(range(8, 20))


@in_event_loop
async def test_two_processes_share_the_partitions_and_hand_them_over_without_loss(
    broker: MemoryBroker, store: MemoryStore
) -> None:
    seen: list[StreamEvent] = []
    with (
        serving(definition(broker, partitions=6), store=store, limits=NIMBLE) as one,
        serving(definition(broker, partitions=6), store=store, limits=NIMBLE) as other,
    ):
        first = one.subscribe("orders", "billing", member="one")
        async with collecting(first, seen):
            publish(one, 0, 100)
            second = other.subscribe("orders", "billing", member="other")
            async with collecting(second, seen):
                publish(one, 100, 200)
                await until(lambda: len(first.assigned()) == len(second.assigned()) == 3)
                assert not set(first.assigned()) & set(second.assigned())
                publish(one, 200, 300)
                await until(lambda: len(seen) >= 300)
            await until(lambda: len(first.assigned()) == 6)
            publish(one, 300, 400)
            await until(lambda: len(seen) >= 400)
    # Everybody left politely, so everything was read once, and each key in its order.
    assert sorted(values(seen)) == list(range(400))
    for key in range(10):
        mine = [number for number in values(seen) if number % 10 == key]
        assert mine == sorted(mine)


@in_event_loop
async def test_a_partition_is_not_read_elsewhere_while_its_record_is_being_handled(
    broker: MemoryBroker, store: MemoryStore
) -> None:
    patient = StreamingLimits(session_timeout=timedelta(minutes=1))
    with (
        serving(definition(broker, partitions=2), store=store, limits=patient) as one,
        serving(definition(broker, partitions=2), store=store, limits=patient) as other,
    ):
        publish(one, 0, 40)
        first = one.subscribe("orders", "billing")
        held = (await take(first, 1))[0]
        second = other.subscribe("orders", "billing")
        await until(lambda: second.assigned() or first.assigned() == [1 - held.partition])
        if not second.assigned():  # it is the partition of the record in hand that has to move
            assert second.assigned() == []
            following = (await take(first, 1))[0]
            assert following.partition != held.partition
            await until(second.assigned)
        assert len(second.assigned()) == 1
        await first.close()
        await second.close()


@in_event_loop
async def test_with_manual_commit_a_partition_waits_for_the_commit_before_it_moves(
    broker: MemoryBroker, store: MemoryStore
) -> None:
    patient = StreamingLimits(session_timeout=timedelta(minutes=1))
    with serving(definition(broker, partitions=2), store=store, limits=patient) as streams:
        publish(streams, 0, 40)
        first = streams.subscribe("orders", "billing", auto_commit=False)
        seen = await take(first, 40)
        second = streams.subscribe("orders", "billing", auto_commit=False)
        await until(lambda: len(first.assigned()) == 1)
        assert second.assigned() == []
        await first.commit()
        await until(second.assigned)
        publish(streams, 40, 80)
        more = [*seen, *(await take(second, 1))]
        assert len(set(values(more))) == 41
        await first.close()
        await second.close()


@in_event_loop
async def test_a_member_that_was_put_out_is_told_and_its_work_goes_on_elsewhere(
    streams: StreamingScalingManager, store: MemoryStore
) -> None:
    publish(streams, 0, 20)
    fenced = streams.subscribe("orders", "billing", auto_commit=False)
    await take(fenced, 5)
    store.put(internal_key("streaming", "group", "orders", "billing"), b'{"members":{},"targets":[],"owners":{}}')
    with pytest.raises(GroupFencedError) as error:
        await take(fenced, 1_000)
    assert error.value.member == fenced.member
    with pytest.raises(GroupFencedError):
        await fenced.commit()
    await fenced.close()
    async with streams.subscribe("orders", "billing") as events:
        assert sorted(values(await take(events, 20))) == list(range(20))


@in_event_loop
async def test_new_partitions_are_picked_up_while_it_reads(streams: StreamingScalingManager) -> None:
    seen: list[StreamEvent] = []
    events = streams.subscribe("orders", "billing")
    async with collecting(events, seen):
        publish(streams, 0, 20)
        await until(lambda: len(seen) == 20)
        growth = await asyncio.to_thread(streams.grow, "orders", 9)
        assert growth.grown
        publish(streams, 20, 200, keys=100)
        await until(lambda: len(seen) == 200)
        assert events.assigned() == list(range(9))
    assert max(event.partition for event in seen) > 3


@in_event_loop
async def test_an_outage_of_store_or_broker_interrupts_and_loses_nothing(
    streams: StreamingScalingManager, broker: MemoryBroker, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[StreamEvent] = []
    publish(streams, 0, 20)
    async with collecting(streams.subscribe("orders", "billing"), seen):
        await until(lambda: len(seen) == 20)
        broker.down = True
        await asyncio.sleep(0.1)
        broker.down = False
        publish(streams, 20, 40)
        await until(lambda: len(seen) == 40)
        with monkeypatch.context() as patch:
            failed = asyncio.Event()
            loop = asyncio.get_running_loop()

            def away(*_args: Any, **_more: Any) -> Any:
                loop.call_soon_threadsafe(failed.set)
                raise StoreUnavailableError("memory://", "a test said so")

            patch.setattr(store, "get", away)
            await failed.wait()
        publish(streams, 40, 60)
        await until(lambda: len(seen) == 60)
    assert sorted(values(seen)) == list(range(60))


@in_event_loop
async def test_expired_records_fail_loudly_and_the_reader_says_where_to_go_on(
    streams: StreamingScalingManager, broker: MemoryBroker
) -> None:
    publish(streams, 0, 20, keys=1)
    async with streams.subscribe("orders", "billing") as events:
        partition = (await take(events, 5))[0].partition
    broker.drop_before("orders", {partition: 12})
    async with streams.subscribe("orders", "billing") as events:
        with pytest.raises(RecordsExpiredError) as error:
            await take(events, 1)
        assert (error.value.requested, error.value.earliest) == (5, 12)
        events.seek(partition, error.value.earliest)
        assert values(await take(events, 8)) == list(range(12, 20))
        with pytest.raises(InvalidValueError):
            events.seek(99, 0)


@in_event_loop
async def test_a_stream_that_may_drop_goes_on_behind_what_was_dropped(broker: MemoryBroker) -> None:
    with serving(definition(broker, durable=False), limits=NIMBLE) as streams:
        publish(streams, 0, 20, keys=1)
        (partition,) = [number for number, (_, end) in streams.offsets("orders").items() if end]
        broker.drop_before("orders", {partition: 12})
        async with streams.subscribe("orders", "billing") as events:
            assert values(await take(events, 8)) == list(range(12, 20))


@in_event_loop
async def test_closing_the_streams_ends_every_iteration(broker: MemoryBroker) -> None:
    streams = StreamingScalingManager([definition(broker)], store=MemoryStore())
    events = streams.subscribe("orders", "billing")
    waiting = asyncio.create_task(anext(events, None))
    await asyncio.sleep(0)
    await asyncio.to_thread(streams.close)
    assert await waiting is None
    with pytest.raises(StreamsClosedError):
        events.commit_sync()
    with pytest.raises(StreamsClosedError):
        streams.subscribe("orders", "billing")


def test_what_cannot_be_subscribed_to_is_refused_at_once(streams: StreamingScalingManager) -> None:
    with pytest.raises(UnknownTopicError):
        streams.subscribe("nothing", "billing")
    for group in ("", "a/b", "ingest.orders"):
        with pytest.raises(InvalidNameError):
            streams.subscribe("orders", group)
    with pytest.raises(InvalidNameError):
        streams.subscribe("orders", "billing", member="../me")
    with pytest.raises(InvalidValueError):
        streams.subscribe("orders", "billing", max_records=0)


@in_event_loop
async def test_the_embedded_log_is_read_the_same_way(tmp_path: Path, store: MemoryStore) -> None:
    with embedded(tmp_path / "log", store) as log, serving(definition(log), store=store, limits=NIMBLE) as streams:
        publish(streams, 0, 30)
        async with streams.subscribe("orders", "billing", max_records=7) as events:
            seen = await take(events, 30)
        assert Counter(values(seen)) == Counter(range(30))
    with embedded(tmp_path / "log", store) as log, serving(definition(log), store=store, limits=NIMBLE) as streams:
        streams.publish_sync("orders", Records([b"30"], headers=[{"h": b"1"}]))
        async with streams.subscribe("orders", "billing") as events:
            (event,) = await take(events, 1)
        assert (event.value, event.key, event.headers) == (b"30", None, {"h": b"1"})
