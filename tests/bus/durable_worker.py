"""A process with a durable topic that publishes and consumes until it is killed, and prints what it was promised.

`acked N` after a publish returned, `got N` before a commit, `done N` after it.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from dw_platform.bus import BusLimits, LogStorage, Message, ScalableMessageBus, TopicOptions
from dw_platform.store.open import open_store

KEYS = 3


def open_bus(folder: Path) -> ScalableMessageBus:
    storage = LogStorage(folder / "log", open_store(f"file://{folder}/store"))
    return ScalableMessageBus(
        limits=BusLimits(partitions=2), topics={"orders": TopicOptions(durable=True)}, storage=storage
    )


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the test reads it


async def publish(bus: ScalableMessageBus, first: int, publisher: int) -> None:
    for number in itertools.count(first + publisher, KEYS):
        await bus.publish("orders", Message(str(number).encode(), str(publisher).encode()))
        say(f"acked {number}")


async def consume(bus: ScalableMessageBus) -> None:
    subscription = bus.subscribe("orders", "billing")
    while True:
        taken = [delivery.value.decode() for delivery in await subscription.receive(20)]
        say("\n".join(f"got {value}" for value in taken))
        await subscription.commit()
        say("\n".join(f"done {value}" for value in taken))


async def repartition(bus: ScalableMessageBus) -> None:
    for partitions in itertools.cycle([3, 1, 4, 2]):
        await asyncio.sleep(0.05)
        await asyncio.to_thread(bus.repartition, "orders", partitions)


async def main(folder: Path, first: int) -> None:
    bus = open_bus(folder)
    await asyncio.gather(consume(bus), repartition(bus), *(publish(bus, first, number) for number in range(KEYS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
