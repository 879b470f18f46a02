"""A real Kafka is killed and comes back: nothing acknowledged is lost or doubled, and everybody else is told."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from dw_platform.log import AppendResult, Records
from dw_platform.streaming import (
    Broker,
    BrokerSettings,
    BrokerUnavailableError,
    Fetcher,
    TopicSettings,
    open_broker,
)
from tests.brokers import start_kafka
from tests.kafka_server import KafkaServer

T = TypeVar("T")
pytestmark = [pytest.mark.crash, pytest.mark.server]
TOPIC, SOON, ROUNDS = "orders", 60.0, 2
# One publisher waits for the server to come back, the other gives up at once.
PATIENT, HASTY = "30000", "700"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    kafka = start_kafka(tmp_path_factory.mktemp("kafka"))
    yield kafka
    kafka.kill()


@contextlib.contextmanager
def connected(server: KafkaServer, **options: str) -> Iterator[Broker]:
    with open_broker(BrokerSettings(kind="kafka", address=server.address, options=options)) as broker:
        yield broker


class Publisher:
    """Publishes numbered batches until told to stop, never the same one twice, and remembers the acknowledged ones."""

    def __init__(self, name: str, broker: Broker, stop: threading.Event) -> None:
        self.name, self._broker, self._stop = name, broker, stop
        self.acknowledged = list[tuple[AppendResult, list[bytes]]]()
        self.refused = 0

    def run(self) -> None:
        number = 0
        while not self._stop.is_set():
            batch = [f"{self.name} {number} {place}".encode() for place in range(20)]
            number += 1
            try:
                self.acknowledged.append((self._broker.publish(TOPIC, 0, Records(batch)), batch))
            except BrokerUnavailableError:
                self.refused += 1


def follow(fetcher: Fetcher, offset: int, done: threading.Event, end: list[int]) -> list[bytes]:
    """Read on whatever happens, until `end` is known and reached."""
    seen = list[bytes]()
    while not (done.is_set() and offset >= end[0]):
        with contextlib.suppress(BrokerUnavailableError):
            batch = fetcher.fetch(offset, wait_s=0.2)
            seen += [value for part in batch.batches for value in part["value"].to_pylist()]
            offset = batch.next_offset
    return seen


def test_what_a_killed_server_acknowledged_is_there_once_and_in_order(server: KafkaServer) -> None:
    chance, stop, done, end = random.Random(5), threading.Event(), threading.Event(), [0]
    hasty = {"delivery.timeout.ms": HASTY, "socket.timeout.ms": HASTY}
    with (
        connected(server, **{"delivery.timeout.ms": PATIENT, "socket.timeout.ms": PATIENT}) as patient,
        connected(server, **hasty) as impatient,
        ThreadPoolExecutor(3) as pool,
    ):
        patient.ensure_topic(TOPIC, TopicSettings(partitions=1))
        publishers = [Publisher("patient", patient, stop), Publisher("hasty", impatient, stop)]
        fetcher = impatient.fetcher(TOPIC, 0)
        running = [pool.submit(publisher.run) for publisher in publishers]
        reader = pool.submit(follow, fetcher, 0, done, end)
        try:
            for _ in range(ROUNDS):
                before = [len(publisher.acknowledged) for publisher in publishers]
                deadline = time.monotonic() + SOON
                while any(len(p.acknowledged) <= was for p, was in zip(publishers, before, strict=True)):
                    assert time.monotonic() < deadline, "nothing is acknowledged any more"
                    time.sleep(0.01)
                # Any moment will do: the point is that it falls anywhere inside a publish.
                time.sleep(chance.uniform(0, 0.3))
                server.kill()
                refused = publishers[1].refused
                while publishers[1].refused == refused:
                    assert time.monotonic() < deadline, "the hasty publisher was not told"
                    time.sleep(0.01)
                server.start()
        finally:
            stop.set()
            [future.result(SOON) for future in running]
            end[0] = patient.end_offsets(TOPIC)[0]
            done.set()
            followed = reader.result(SOON)
            fetcher.close()
        stored = everything(patient)
        assert publishers[0].refused == 0
        assert list(stored.values()) == followed
        assert_promises(stored, publishers)


def everything(broker: Broker) -> dict[int, bytes]:
    offset, end, found = 0, broker.end_offsets(TOPIC)[0], dict[int, bytes]()
    with contextlib.closing(broker.fetcher(TOPIC, 0)) as fetcher:
        while offset < end:
            batch = fetcher.fetch(offset, wait_s=SOON)
            for part in batch.batches:
                found |= dict(zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True))
            offset = batch.next_offset
    return found


def assert_promises(stored: dict[int, bytes], publishers: list[Publisher]) -> None:
    counted = Counter(stored.values())
    assert max(counted.values()) == 1, "a record was written twice"
    for publisher in publishers:
        for result, batch in publisher.acknowledged:
            assert set(batch) <= counted.keys(), "an acknowledged record is lost"
            assert (stored[result.base_offset], stored[result.next_offset - 1]) == (batch[0], batch[-1])
        mine = [value.split() for value in stored.values() if value.startswith(publisher.name.encode())]
        numbers = [(int(number), int(place)) for _, number, place in mine]
        assert numbers == sorted(numbers), "the order was lost"


def in_the_end(attempt: Callable[[], T]) -> T:
    """Return the answer of a server that has just started and may be slower than the short timeouts here."""
    deadline = time.monotonic() + SOON
    while True:
        try:
            return attempt()
        except BrokerUnavailableError:
            assert time.monotonic() < deadline, "it does not come back"


def test_who_asks_while_the_server_is_away_is_told_and_goes_on_afterwards(server: KafkaServer) -> None:
    with connected(server, **{"delivery.timeout.ms": "700", "socket.timeout.ms": "700"}) as broker:
        in_the_end(lambda: broker.ensure_topic("quiet", TopicSettings(partitions=1)))
        in_the_end(lambda: broker.publish("quiet", 0, Records([b"before"])))
        in_the_end(lambda: broker.commit("quiet", "billing", {0: 1}))
        with contextlib.closing(broker.fetcher("quiet", 0)) as fetcher:
            assert in_the_end(lambda: fetcher.fetch(0)).batches[0]["value"].to_pylist() == [b"before"]
            server.kill()
            for attempt in (
                lambda: broker.publish("quiet", 0, Records([b"lost"])),
                lambda: fetcher.fetch(1),
                lambda: broker.end_offsets("quiet"),
                lambda: broker.commit("quiet", "billing", {0: 2}),
                lambda: broker.fetcher("quiet", 0),
            ):
                with pytest.raises(BrokerUnavailableError):
                    attempt()
            server.start()
            offset = in_the_end(lambda: broker.publish("quiet", 0, Records([b"after"]))).base_offset
            assert in_the_end(lambda: fetcher.fetch(offset)).batches[0]["value"].to_pylist() == [b"after"]
            in_the_end(lambda: broker.commit("quiet", "billing", {0: offset}))
            assert in_the_end(lambda: broker.committed("quiet", "billing")) == {0: offset}
