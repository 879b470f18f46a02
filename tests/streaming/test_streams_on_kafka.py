"""The same promises on a real Kafka: several processes may publish, and a batch can be written half."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dw_platform.log import Records
from dw_platform.store import MemoryStore
from dw_platform.streaming import Broker, ProducerStamp, StreamingLimits, StreamingScalingManager
from tests.brokers import running
from tests.streaming.streams import SOON_S, definition, keyed, serving

pytestmark = pytest.mark.server

LIMITS = StreamingLimits(growth_wait=timedelta(seconds=20), session_timeout=timedelta(seconds=5))


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    with running("kafka", tmp_path) as kafka:
        yield kafka.connect(), kafka.connect()


@pytest.fixture
def topic() -> str:
    return f"orders-{secrets.token_hex(6)}"


def batch(number: int) -> Records:
    return keyed(*((b"key-%d" % key, b"%d.%d" % (number, key)) for key in range(50)))


def everything(streams: StreamingScalingManager, topic: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for number, (start, end) in streams.offsets(topic).items():
        offset = start
        while offset < end:
            part = streams.read(topic, number, offset)
            found.update(part.to_table()["value"].to_pylist())
            offset = part.next_offset
    return found


def test_a_stamped_batch_is_written_once_whichever_process_gets_it(brokers: tuple[Broker, Broker], topic: str) -> None:
    store = MemoryStore()
    with (
        serving(definition(brokers[0], topic), store=store, limits=LIMITS) as one,
        serving(definition(brokers[1], topic), store=store, limits=LIMITS) as other,
    ):
        for number in range(4):
            sender, retry = (one, other) if number % 2 else (other, one)
            first = sender.publish_sync(topic, batch(number), stamp=ProducerStamp("p1", number))
            again = retry.publish_sync(topic, batch(number), stamp=ProducerStamp("p1", number))
            assert again.duplicate
            assert [(part.partition, part.base_offset) for part in again.parts] == [
                (part.partition, part.base_offset) for part in first.parts
            ]
        expected = Counter(b"%d.%d" % (number, key) for number in range(4) for key in range(50))
        assert everything(one, topic) == expected


def test_groups_and_growth_work_across_processes(brokers: tuple[Broker, Broker], topic: str) -> None:
    store = MemoryStore()

    async def scenario() -> list[int]:
        seen: list[int] = []

        async def read(streams: StreamingScalingManager) -> None:
            async with streams.subscribe(topic, "billing") as events:
                async for event in events:
                    seen.append(int(event.value or b""))
                    if len(set(seen)) == 200:
                        done.set()

        done = asyncio.Event()
        readers = [asyncio.create_task(read(streams)) for streams in (one, other)]
        for number in range(100):
            await one.publish(topic, keyed((b"k%d" % (number % 5), b"%d" % number)))
        growth = await asyncio.to_thread(one.grow, topic, 6)
        assert growth.grown, growth.reason
        for number in range(100, 200):
            await other.publish(topic, keyed((b"k%d" % (number % 5), b"%d" % number)))
        async with asyncio.timeout(SOON_S):
            await done.wait()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        return seen

    with (
        serving(definition(brokers[0], topic, partitions=3), store=store, limits=LIMITS) as one,
        serving(definition(brokers[1], topic, partitions=3), store=store, limits=LIMITS) as other,
    ):
        seen = asyncio.run(scenario())
        assert one.topic(topic).partitions == 6
    for key in range(5):
        mine = list(dict.fromkeys(number for number in seen if number % 5 == key))
        assert mine == sorted(mine)
        assert len(mine) == 40
