"""The ring and the bus against the standard library's fastest queue: threads of one process, taking turns.

Every consumer checks that it saw every message, so nothing is counted that was not delivered: where it says
"handled", and with single messages, all of them are added up; the others look at both ends of what they take. All of
it shares CPython's one interpreter lock, so the figures say what the code costs, not what cores do.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness import Measure, Options, measure
from dw_platform.bus import BusLimits, Message, RingBuffer, ScalableMessageBus, TopicOptions, WaitStrategy

NAME = "bus"
DESCRIPTION = "messages between threads: ring and bus against queue.SimpleQueue"

MESSAGES, QUICK_MESSAGES = 2_000_000, 20_000
BUS_MESSAGES, QUICK_BUS_MESSAGES = 100_000, 2_000
ROUNDS, QUICK_ROUNDS = 7, 1
BATCH = 64
CONSUMERS = 3

Consume = Callable[[], int]


def run(options: Options) -> dict[str, Any]:
    """Measure single messages to one consumer, batches to three, and the whole bus."""
    count = options.rows or (QUICK_MESSAGES if options.quick else MESSAGES)
    bus_count = options.rows or (QUICK_BUS_MESSAGES if options.quick else BUS_MESSAGES)
    repeats = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    measures = [
        *measure(_single(count), repeats=repeats, units=count, unit="messages/s"),
        *measure(_multicast(count), repeats=repeats, units=count * CONSUMERS, unit="delivered/s"),
        *measure(_bus(bus_count), repeats=repeats, units=bus_count, unit="messages/s"),
    ]
    by_name = {each["name"]: each for each in measures}
    single, multicast = by_name["ring, 1 to 1, single messages"], by_name["ring, 1 to 3, batches of 64, handled"]
    # Judged on the measure whose consumers do the same work as the peer's: they add up every message.
    checks = {
        "ring, 1 to 1: at least 1 M/s": single["median"] >= 1e6,
        "ring, 1 to 1: not below SimpleQueue": single["ratio"] >= 1,
        "ring, 1 to 3: at least 10 M/s delivered": multicast["median"] >= 10e6,
        "ring, 1 to 3: at least 5 x three SimpleQueues": multicast["ratio"] >= 5,
    }
    return {"messages": count, "durability": "none: everything is in memory", "measures": measures, "checks": checks}


def _single(count: int) -> list[Measure]:
    return [
        Measure(name="SimpleQueue, 1 to 1", run=partial(_simple_queues, count, 1)),
        Measure(name="ring, 1 to 1, single messages", run=partial(_ring_single, count), peer="SimpleQueue, 1 to 1"),
    ]


def _multicast(count: int) -> list[Measure]:
    peer, listed = "three SimpleQueues, 1 to 3", "three SimpleQueues, 1 to 3, lists of 64"
    return [
        Measure(name=peer, run=partial(_simple_queues, count, CONSUMERS)),
        Measure(name=listed, run=partial(_simple_queue_lists, count)),
        Measure(name="ring, 1 to 3, batches of 64", run=partial(_ring_batches, count, handle=False), peer=peer),
        Measure(name="ring, 1 to 3, batches of 64, handled", run=partial(_ring_batches, count, handle=True), peer=peer),
        Measure(name="ring, 1 to 3, handled, to lists", run=partial(_ring_batches, count, handle=True), peer=listed),
    ]


def _bus(count: int) -> list[Measure]:
    return [
        Measure(name="bus, standard topic, batches of 64", run=partial(_through_bus, count, hot=False)),
        Measure(name="bus, hot topic, batches of 64", run=partial(_through_bus, count, hot=True)),
    ]


def _together(count: int, produce: Callable[[], None], consumers: list[Consume]) -> None:
    sums: list[int] = []
    threads = [threading.Thread(target=lambda consume=consume: sums.append(consume())) for consume in consumers]
    for thread in threads:
        thread.start()
    produce()
    for thread in threads:
        thread.join()
    assert sums == [count * (count - 1) // 2] * len(consumers), "every consumer saw every message once"


def _simple_queues(count: int, consumers: int) -> None:
    queues = [queue.SimpleQueue[int]() for _ in range(consumers)]
    puts = [each.put for each in queues]

    def produce() -> None:
        if len(puts) == 1:
            (put,) = puts
            for number in range(count):
                put(number)
        else:
            first, second, third = puts
            for number in range(count):
                first(number)
                second(number)
                third(number)

    def consume(get: Callable[[], int]) -> int:
        total = 0
        for _ in range(count):
            total += get()
        return total

    _together(count, produce, [partial(consume, each.get) for each in queues])


def _simple_queue_lists(count: int) -> None:
    queues = [queue.SimpleQueue[list[int]]() for _ in range(CONSUMERS)]

    def produce() -> None:
        for first in range(0, count, BATCH):
            batch = list(range(first, min(first + BATCH, count)))
            for each in queues:
                each.put(batch)

    def consume(get: Callable[[], list[int]]) -> int:
        return sum(sum(get()) for _ in range(0, count, BATCH))

    _together(count, produce, [partial(consume, each.get) for each in queues])


def _ring_single(count: int) -> None:
    ring = RingBuffer[int](wait=WaitStrategy.YIELD)
    consumer = ring.subscribe()

    def produce() -> None:
        offer, publish = ring.offer, ring.publish
        for number in range(count):
            if not offer(number):
                publish(number)

    def consume() -> int:
        total = seen = 0
        while seen < count:
            while not (taken := consumer.take()):
                consumer.wait()
            seen += len(taken)
            for number in taken:
                total += number
        return total

    _together(count, produce, [consume])


def _ring_batches(count: int, *, handle: bool) -> None:
    ring = RingBuffer[int](wait=WaitStrategy.YIELD)
    consumers = [ring.subscribe() for _ in range(CONSUMERS)]

    def produce() -> None:
        for first in range(0, count, BATCH):
            ring.publish_batch(range(first, min(first + BATCH, count)))

    def consume(index: int) -> int:
        total = seen = 0
        while seen < count:
            while not (taken := consumers[index].take()):
                consumers[index].wait()
            assert (taken[0], taken[-1]) == (seen, seen + len(taken) - 1)
            seen += len(taken)
            if handle:
                total += sum(taken)
        return total if handle else count * (count - 1) // 2

    _together(count, produce, [partial(consume, index) for index in range(CONSUMERS)])


def _through_bus(count: int, *, hot: bool) -> None:
    limits = BusLimits(partitions=1, max_message_queue_size=count * 2)
    bus = ScalableMessageBus(limits=limits, topics={"numbers": TopicOptions(hot=hot)})
    subscription = bus.subscribe("numbers", "all")

    def produce() -> None:
        for first in range(0, count, BATCH):
            bus.publish_sync("numbers", [Message(number) for number in range(first, min(first + BATCH, count))])

    async def consume() -> int:
        total = seen = 0
        while seen < count:
            taken = await subscription.receive(1_024)
            seen += len(taken)
            total += sum(delivery.value for delivery in taken)
            await subscription.commit()
        return total

    _together(count, produce, [lambda: asyncio.run(consume())])
    bus.close_sync()
