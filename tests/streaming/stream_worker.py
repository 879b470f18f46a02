"""A process that publishes stamped batches, reads them and adds partitions until it is killed.

It is told where each producer goes on: `PRODUCER:SEQUENCE` a word. It prints `asked P N` before a batch is published,
`acked P N` after that returned, `got P N` before a record is committed and `done P N` after it.
"""

import asyncio
import itertools
import sys
from datetime import timedelta
from pathlib import Path

from dw_platform.log import Log, LogPolicy, Records
from dw_platform.store import PersistentStore, open_store
from dw_platform.streaming import (
    ProducerStamp,
    StreamDefinition,
    StreamingLimits,
    StreamingScalingManager,
    TopicSettings,
)
from dw_platform.streaming.brokers.embedded import EmbeddedBroker

RECORDS = 12


def open_streams(folder: Path, store: PersistentStore) -> StreamingScalingManager:
    broker = EmbeddedBroker(Log(folder / "log"), store)
    # Small files, so that kills also meet the moment when a new one begins.
    settings = TopicSettings(partitions=2, policy=LogPolicy(segment_bytes=8_192))
    definition = StreamDefinition(topic="orders", broker=broker, settings=settings, groups=("billing",))
    limits = StreamingLimits(
        evaluate_every=timedelta(milliseconds=50),
        growth_wait=timedelta(milliseconds=500),
        session_timeout=timedelta(seconds=1),
    )
    return StreamingScalingManager([definition], store=store, limits=limits, owns_brokers=True)


def batch(producer: str, sequence: int) -> Records:
    keys = [b"%s-%d" % (producer.encode(), key) for key in range(RECORDS)]
    return Records([b"%s %d" % (key, sequence) for key in keys], keys=keys)


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the test reads it


async def publish(streams: StreamingScalingManager, producer: str, first: int) -> None:
    for sequence in itertools.count(first):
        say(f"asked {producer} {sequence}")
        await streams.publish("orders", batch(producer, sequence), stamp=ProducerStamp(producer, sequence))
        say(f"acked {producer} {sequence}")


async def consume(streams: StreamingScalingManager) -> None:
    events = streams.subscribe("orders", "billing", auto_commit=False)
    while True:
        taken = [(await anext(events)).value for _ in range(7)]
        say("\n".join(f"got {(value or b'').decode()}" for value in taken))
        await events.commit()
        say("\n".join(f"done {(value or b'').decode()}" for value in taken))


async def grow(streams: StreamingScalingManager) -> None:
    while (partitions := streams.topic("orders").partitions) < 12:
        await asyncio.to_thread(streams.grow, "orders", partitions + 1)
        await asyncio.sleep(0.1)


async def main(folder: Path, producers: list[str]) -> None:
    with open_streams(folder, open_store(f"file://{folder}/store")) as streams:
        firsts = [word.split(":") for word in producers]
        publishers = [publish(streams, producer, int(first)) for producer, first in firsts]
        await asyncio.gather(*publishers, consume(streams), grow(streams))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
