"""Fetching from a real Kafka: what other clients write, transactions, gaps, signing in, and the way by the library."""

import contextlib
import functools
import multiprocessing
import random
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from dw_platform.foundation import InvalidValueError, SystemClock
from dw_platform.log import (
    SCHEMA,
    LogPolicy,
    OffsetOutOfRangeError,
    Records,
    RecordsExpiredError,
    UnknownPartitionError,
    UnknownTopicError,
)
from dw_platform.streaming import (
    Broker,
    BrokerAccessError,
    BrokerSettings,
    BrokerUnavailableError,
    Fetcher,
    TopicSettings,
    open_broker,
)
from tests.brokers import shared_kafka
from tests.kafka_server import PASSWORD, USERNAME

pytestmark = pytest.mark.server
SOON = 30.0


def settings(**changes: Any) -> BrokerSettings:
    return BrokerSettings(**{"kind": "kafka", "address": shared_kafka().address, **changes})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with open_broker(settings()) as client:
        yield client


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"fetched-{secrets.token_hex(6)}"
    broker.ensure_topic(name, TopicSettings(partitions=1))
    return name


def other_client(**options: Any) -> Any:
    """Return a producer of another program."""
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": shared_kafka().address, **options})


def read_all(fetcher: Fetcher, offset: int, end: int, **limits: int) -> Any:
    tables = []
    while offset < end:
        batch = fetcher.fetch(offset, wait_s=SOON, **limits)
        assert batch.next_offset > offset, "the reader does not move on"
        tables.append(batch.to_table())
        offset = batch.next_offset
    fetcher.close()
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


def values(broker: Broker, topic: str, **limits: int) -> list[bytes | None]:
    end = broker.end_offsets(topic)[0]
    return list(read_all(broker.fetcher(topic, 0), 0, end, **limits)["value"].to_pylist())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_a_reader_that_jumps_about_gets_what_it_asks_for(broker: Broker, topic: str) -> None:
    """What was asked for ahead, and what is left of an answer, must not be taken for the answer to something else."""
    # Compressed batches are taken apart one by one, so something is left of most answers.
    chance, offset = random.Random(3), 0
    with open_broker(settings(options={"compression.type": "lz4"})) as client:
        for start in range(0, 4000, 100):
            contents = [b"%d." % number + chance.randbytes(200) + b"." * 200 for number in range(start, start + 100)]
            client.publish(topic, 0, Records(contents))
    with contextlib.closing(broker.fetcher(topic, 0)) as fetcher:
        for _ in range(300):
            limits = {"max_bytes": chance.choice([1, 50_000, 200_000]), "max_records": chance.choice([1, 70, 5000])}
            batch = fetcher.fetch(offset, **limits)
            found = batch.to_record_batch()
            assert found["offset"].to_pylist() == list(range(offset, batch.next_offset))
            assert [int(value.split(b".")[0]) for value in found["value"].to_pylist()] == found["offset"].to_pylist()
            if chance.random() < 0.2:
                with pytest.raises(OffsetOutOfRangeError):
                    fetcher.fetch(chance.choice([-1, 4001]))
            offset = batch.next_offset if chance.random() < 0.8 else chance.randrange(4000)
            offset = 0 if offset == 4000 else offset


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_another_program_compressed_is_read(broker: Broker, topic: str, codec: str) -> None:
    producer = other_client(**{"compression.type": codec, "linger.ms": 50})
    contents = [b"%d" % number * 40 for number in range(5000)]
    for content in contents:
        producer.produce(topic, content, b"k", 0)
    producer.flush()
    assert values(broker, topic) == contents
    # Small steps through large batches, whose compressed size says little.
    assert values(broker, topic, max_bytes=10_000) == contents
    assert values(broker, topic, max_records=999) == contents


def test_headers_of_other_programs_may_repeat_and_be_null(broker: Broker, topic: str) -> None:
    producer = other_client()
    producer.produce(topic, b"v", None, 0, headers=[("a", b"1"), ("a", None), ("", b"")])
    producer.produce(topic, b"w", None, 0)
    producer.flush()
    table = read_all(broker.fetcher(topic, 0), 0, 2)
    assert table["headers"].to_pylist() == [[("a", b"1"), ("a", None), ("", b"")], None]


def test_only_committed_transactions_are_read_and_markers_are_gaps(broker: Broker, topic: str) -> None:
    producer = other_client(**{"transactional.id": topic})
    producer.init_transactions(SOON)
    for name, commit in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, b"%s %d" % (name, number), None, 0)
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)(SOON)
    expected = [b"%s %d" % (name, number) for name in (b"one", b"three") for number in range(10)]
    until(lambda: broker.end_offsets(topic)[0] == 33)
    for limits in ({}, {"max_records": 3}, {"max_bytes": 1}):
        assert values(broker, topic, **limits) == expected
    table = read_all(broker.fetcher(topic, 0), 0, 33)
    assert table["offset"].to_pylist() == [*range(10), *range(22, 32)]
    # A reader that stands inside the aborted part is led out of it.
    with contextlib.closing(broker.fetcher(topic, 0)) as fetcher:
        assert fetcher.fetch(15).to_record_batch()["value"][0].as_py() == b"three 0"
    with open_broker(settings(options={"isolation.level": "read_uncommitted"})) as hasty:
        assert len(values(hasty, topic)) == 30


def test_an_open_transaction_hides_what_is_behind_it(broker: Broker, topic: str) -> None:
    producer = other_client(**{"transactional.id": topic})
    producer.init_transactions(SOON)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", None, 0)
    producer.flush()
    broker.publish(topic, 0, Records([b"plain"]))
    assert broker.end_offsets(topic) == {0: 0}
    fetcher = broker.fetcher(topic, 0)
    assert len(fetcher.fetch(0, wait_s=0.05)) == 0
    producer.commit_transaction(SOON)
    assert read_all(fetcher, 0, 3)["value"].to_pylist() == [b"undecided", b"plain"]


def test_a_compacted_topic_has_gaps_and_is_read_to_its_end(broker: Broker) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"compacted-{secrets.token_hex(6)}"
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    admin = AdminClient({"bootstrap.servers": shared_kafka().address})
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result()
    broker.ensure_topic(name, TopicSettings())
    for round_ in range(20):
        keys = [b"%d" % number for number in range(10)]
        broker.publish(name, 0, Records([b"%d" % round_] * 10, keys=keys))

    def rolled_and_cleaned() -> bool:
        # A segment is closed by the next record after its time.
        broker.publish(name, 0, Records([b"tick"], keys=[b"clock"]))
        return len(values(broker, name)) < 150

    until(rolled_and_cleaned)
    table = read_all(broker.fetcher(name, 0), 0, broker.end_offsets(name)[0])
    newest = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert newest == {b"%d" % number: b"19" for number in range(10)} | {b"clock": b"tick"}
    with pytest.raises(Exception, match="needs a key"):
        broker.publish(name, 0, Records([b"no key"]))


def test_a_policy_becomes_settings_of_the_topic(broker: Broker) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    name = f"settled-{secrets.token_hex(6)}"
    broker.ensure_topic(name, TopicSettings(policy=LogPolicy(compacted=True, max_record_bytes=2_000_000)))
    place = ConfigResource(ResourceType.TOPIC, name)
    admin = AdminClient({"bootstrap.servers": shared_kafka().address})
    found = {key: entry.value for key, entry in admin.describe_configs([place])[place].result().items()}
    assert found["cleanup.policy"] == "compact"
    assert found["retention.ms"] == "86400000"
    assert found["retention.bytes"] == str(1 << 30)
    assert found["max.message.bytes"] == "2000512"


# Signing in


@functools.cache
def ways() -> dict[str, dict[str, Any]]:
    server = shared_kafka()
    plain = {"security.protocol": "SASL_PLAINTEXT"}
    return {
        "plain": {"address": server.signed_address, "options": plain},
        "scram-256": {"address": server.signed_address, "options": plain | {"sasl.mechanism": "SCRAM-SHA-256"}},
        "scram-512": {"address": server.signed_address, "options": plain | {"sasl.mechanisms": "SCRAM-SHA-512"}},
        "tls": {"address": server.secret_address, "options": {"ssl.ca.location": str(server.certificate)}},
    }


@pytest.mark.parametrize("way", ["plain", "scram-256", "scram-512", "tls"])
def test_signing_in_works_for_publishing_and_fetching(topic: str, way: str) -> None:
    with open_broker(settings(username=USERNAME, password=PASSWORD, **ways()[way])) as client:
        client.publish(topic, 0, Records([b"signed"] * 1000))
        assert values(client, topic) == [b"signed"] * 1000


@pytest.mark.parametrize("way", ["plain", "scram-256", "tls"])
def test_a_wrong_password_is_told_as_that(topic: str, way: str) -> None:
    chosen = ways()[way]
    hasty = chosen["options"] | {"socket.timeout.ms": "1000"}
    with open_broker(settings(**chosen | {"options": hasty}, username=USERNAME, password="wrong")) as client:
        with pytest.raises(BrokerAccessError, match=r"broker\.password"):
            client.fetcher(topic, 0)
        with pytest.raises(BrokerAccessError, match=r"[Aa]uthentication failed"):
            client.topic(topic)


def test_a_certificate_that_nobody_vouches_for_is_not_accepted(topic: str) -> None:
    address = shared_kafka().secret_address
    chosen = settings(address=address, username=USERNAME, password=PASSWORD, options={"socket.timeout.ms": "1000"})
    with open_broker(chosen) as client:
        with pytest.raises(BrokerAccessError, match="certificate"):
            client.fetcher(topic, 0)
        with pytest.raises(BrokerAccessError, match="certificate"):
            client.topics()


def test_a_way_of_signing_in_that_the_server_does_not_take_is_told(topic: str) -> None:
    chosen = ways()["tls"] | {"options": ways()["tls"]["options"] | {"sasl.mechanism": "SCRAM-SHA-256"}}
    with (
        open_broker(settings(**chosen, username=USERNAME, password=PASSWORD)) as client,
        pytest.raises(BrokerAccessError, match="it takes PLAIN"),
    ):
        client.fetcher(topic, 0)


def test_an_option_that_the_library_does_not_know_is_named(topic: str) -> None:
    with open_broker(settings(options={"fetch.everythng": "1"})) as client, pytest.raises(InvalidValueError) as caught:
        client.topic(topic)
    assert "fetch.everythng" in str(caught.value)
    with pytest.raises(InvalidValueError):
        open_broker(settings(options={"socket.timeout.ms": "soon"}))


# By the library


def by_library(topic: str, partition: int = 0) -> Fetcher:
    from dw_platform.streaming.brokers.kafka_consumer import LibraryFetcher

    return LibraryFetcher(settings(), topic, partition, SystemClock())


def test_both_ways_return_the_same_records(broker: Broker, topic: str) -> None:
    numbers = range(12_000)
    records = Records(
        [b"x" * (number % 200) if number % 9 else None for number in numbers],
        keys=[b"%d" % number if number % 4 else None for number in numbers],
        headers=[{"h": b"%d" % number} if number % 6 == 0 else None for number in numbers],
        timestamps_ms=[int(time.time() * 1000) - number for number in numbers],
    )
    broker.publish(topic, 0, records)
    by_wire = read_all(broker.fetcher(topic, 0), 0, 12_000)
    for limits in ({}, {"max_records": 1000}, {"max_bytes": 100_000}):
        assert read_all(by_library(topic), 0, 12_000, **limits).equals(by_wire)


def test_the_library_keeps_the_same_promises(broker: Broker, topic: str) -> None:
    with pytest.raises(UnknownPartitionError):
        by_library(topic, 1)
    with pytest.raises(UnknownTopicError):
        by_library(f"{topic}-missing")
    fetcher = by_library(topic)
    assert len(fetcher.fetch(0)) == 0
    broker.publish(topic, 0, Records([b"%d" % number for number in range(20)]))
    for wrong in (-1, 21):
        with pytest.raises(OffsetOutOfRangeError):
            fetcher.fetch(wrong)
    assert fetcher.fetch(7, max_records=1).to_record_batch()["value"].to_pylist() == [b"7"]
    assert fetcher.fetch(8).next_offset == 20
    assert fetcher.fetch(20, wait_s=0.01).next_offset == 20
    broker.drop_before(topic, {0: 10})
    with pytest.raises(RecordsExpiredError):
        fetcher.fetch(9)
    assert len(fetcher.fetch(10)) == 10
    fetcher.close()
    fetcher.close()


def way_of(broker: Broker, topic: str) -> str:
    with contextlib.closing(broker.fetcher(topic, 0)) as fetcher:
        return type(fetcher._inner).__name__  # type: ignore[attr-defined]


def test_what_only_the_library_can_do_goes_through_it(broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records([b"x"] * 10))
    with open_broker(settings(options={"ssl.cipher.suites": "ALL"})) as client:
        assert way_of(client, topic) == "LibraryFetcher"
        assert values(client, topic) == [b"x"] * 10
    assert way_of(broker, topic) == "WireFetcher"


# Processes


def read_in_a_task(chosen: BrokerSettings, topic: str) -> int:
    with open_broker(chosen) as client:
        return len(values(client, topic))


def test_settings_travel_to_another_process_which_then_reads(broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records([b"x"] * 100))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(read_in_a_task, (settings(), topic)) == 100


def use_after_fork(broker: Broker, topic: str, result: Any) -> None:
    broker.publish(topic, 0, Records([b"child"]))
    found = values(broker, topic)
    broker.close()
    result.send(found)


def test_a_forked_process_uses_clients_of_its_own(broker: Broker, topic: str) -> None:
    broker.publish(topic, 0, Records([b"parent"]))
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=use_after_fork, args=(broker, topic, send))
    child.start()
    try:
        assert receive.poll(SOON), "the child does not answer"
        assert receive.recv() == [b"parent", b"child"]
        child.join(SOON)
        assert child.exitcode == 0
    finally:
        child.kill()
    broker.publish(topic, 0, Records([b"parent again"]))
    assert values(broker, topic) == [b"parent", b"child", b"parent again"]


def test_a_server_that_is_something_else_is_unavailable() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with open_broker(settings(address=address, options={"socket.timeout.ms": "300"})) as client:
            with pytest.raises(BrokerUnavailableError) as caught:
                client.fetcher("orders", 0)
            assert caught.value.address == address
