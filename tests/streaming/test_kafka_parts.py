"""The parts of the Kafka broker that need no server."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.log import (
    InvalidRecordsError,
    LogPolicy,
    PartitionClosedError,
    Records,
    RecordTooLargeError,
    Retention,
)
from dw_platform.log.columns import Columns
from dw_platform.streaming import BrokerSettings, open_broker
from dw_platform.streaming.brokers.kafka_config import (
    client_settings,
    producer_settings,
    topic_settings,
)
from dw_platform.streaming.brokers.kafka_connection import addresses
from dw_platform.streaming.brokers.kafka_reports import Batch
from dw_platform.streaming.brokers.kafka_room import Room
from dw_platform.streaming.brokers.kafka_security import Security
from dw_platform.streaming.brokers.kafka_topic import TopicFacts, check_records

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
DAY_MS = 86_400_000


def settings(**changes: Any) -> BrokerSettings:
    return BrokerSettings(**{"kind": "kafka", "address": "a:9092", **changes})


def test_a_user_name_means_signing_in_over_tls_and_options_win() -> None:
    chosen = client_settings(settings(username="u", password="p"))
    assert chosen["security.protocol"] == "SASL_SSL"
    assert chosen["sasl.mechanism"] == "PLAIN"
    assert (chosen["sasl.username"], chosen["sasl.password"]) == ("u", "p")
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "SCRAM-SHA-512", "linger.ms": "50"}
    chosen = producer_settings(settings(username="u", password="p", options=options), 1000)
    assert chosen["security.protocol"] == "SASL_PLAINTEXT"
    assert chosen["sasl.mechanisms"] == "SCRAM-SHA-512"
    assert "sasl.mechanism" not in chosen
    assert chosen["linger.ms"] == "50"


@pytest.mark.parametrize(
    ("name", "value"),
    [("acks", "1"), ("enable.idempotence", "false"), ("auto.offset.reset", "latest"), ("socket.timeout.ms", "soon")],
)
def test_no_option_weakens_an_acknowledgement_or_moves_a_reader(name: str, value: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        open_broker(settings(options={name: value}))
    assert caught.value.field == f"broker.options.{name}"


def test_a_topic_that_takes_less_gets_smaller_batches() -> None:
    assert producer_settings(settings(), 10_512)["batch.size"] == 10_512
    assert producer_settings(settings(options={"batch.size": "500"}), 10_512)["batch.size"] == 500


@pytest.mark.parametrize(
    ("retention", "age", "size"),
    [
        (Retention(), str(DAY_MS), str(1 << 30)),
        (Retention.forever(), "-1", "-1"),
        (Retention.until_read(), "-1", "-1"),
        (Retention(keep_unread=True), str(7 * DAY_MS), "-1"),
        (Retention(max_age=timedelta(days=30), keep_unread=True), str(30 * DAY_MS), "-1"),
    ],
)
def test_retention_becomes_what_kafka_can_do(retention: Retention, age: str, size: str) -> None:
    chosen = topic_settings(LogPolicy(retention=retention))
    assert (chosen["retention.ms"], chosen["retention.bytes"]) == (age, size)
    assert chosen["cleanup.policy"] == "delete"


def test_lists_of_servers_are_read_as_the_library_reads_them() -> None:
    found = addresses("a:1, b , SSL://c:3,[::1]:4,d.example.org:5,")
    assert found == [("a", 1), ("b", 9092), ("c", 3), ("::1", 4), ("d.example.org", 5)]


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({}, True),
        ({"security.protocol": "ssl", "ssl.ca.location": "/ca.pem"}, True),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, True),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, False),
        ({"security.protocol": "SASL_SSL"}, False),  # Kerberos is the library's default
        ({"security.protocol": "SSL", "ssl.keystore.location": "/k.p12"}, False),
        ({"sasl.oauthbearer.config": "x"}, False),
    ],
)
def test_what_the_wire_does_not_know_is_left_to_the_library(options: dict[str, str], *, known: bool) -> None:
    assert (Security.of(client_settings(settings(options=options))) is not None) == known


def facts(**config: str) -> TopicFacts:
    return TopicFacts.of(1, {"max.message.bytes": "10512", "cleanup.policy": "delete", **config})


def check(records: Records, known: TopicFacts) -> None:
    check_records(Columns.of(records), known, NOW)


def test_what_the_topic_would_refuse_is_refused_before_anything_is_sent() -> None:
    check(Records([b"x" * 10_000]), facts())
    with pytest.raises(RecordTooLargeError):
        check(Records([b"x" * 10_001]), facts())
    compacted = facts(**{"cleanup.policy": "compact"})
    check(Records([b"x"], keys=[b""]), compacted)
    for keys in (None, [None]):
        with pytest.raises(InvalidRecordsError, match="needs a key"):
            check(Records([b"x"], keys=keys), compacted)


def test_times_that_kafka_would_change_refuse_or_forget_are_refused() -> None:
    for wrong in (0, -1):
        with pytest.raises(InvalidRecordsError, match="before 1970"):
            check(Records([b"x"], timestamps_ms=[wrong]), facts())
    check(Records([b"x"], timestamps_ms=[1]), facts(**{"retention.ms": "-1"}))
    kept = facts(**{"retention.ms": str(DAY_MS)})
    check(Records([b"x", b"y"], timestamps_ms=[NOW_MS, NOW_MS - DAY_MS]), kept)
    with pytest.raises(InvalidRecordsError, match="keeps records for"):
        check(Records([b"x", b"y"], timestamps_ms=[NOW_MS, NOW_MS - DAY_MS - 1]), kept)
    window = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "2000"}
    check(Records([b"x", b"y"], timestamps_ms=[NOW_MS - 1000, NOW_MS + 2000]), facts(**window))
    for wrong in (NOW_MS - 1001, NOW_MS + 2001):
        with pytest.raises(InvalidRecordsError):
            check(Records([b"x"], timestamps_ms=[wrong]), facts(**window))


def test_a_user_who_may_not_see_the_settings_can_publish() -> None:
    check(Records([b"x" * 5_000_000], timestamps_ms=[1]), TopicFacts.of(3, None))


class Delivered:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


def test_a_batch_is_done_with_its_last_report_and_has_failed_with_any() -> None:
    finished, released = list[Batch](), list[int]()
    batch = Batch(3, finished.append)
    chunk = batch.chunk(3, lambda: released.append(3))
    chunk.report(None, Delivered(7))
    chunk.report(None, Delivered(8))
    assert not finished
    chunk.report(None, Delivered(10))
    assert (batch.base, batch.last, batch.error) == (7, 10, None)
    assert finished == [batch]
    assert released == [3]
    failing = Batch(2, finished.append)
    chunk = failing.chunk(2, lambda: None)
    chunk.report("no room on the disk", Delivered(-1))
    chunk.report(None, Delivered(1))
    assert "no room" in str(failing.error)


@pytest.mark.parametrize("first", ["report", "refusal"])
def test_what_was_never_handed_over_is_not_waited_for(first: str) -> None:
    finished = list[Batch]()
    batch = Batch(5, finished.append)
    chunk = batch.chunk(3, lambda: None)
    if first == "report":
        chunk.report(None, Delivered(0))
        chunk.refuse(BufferError("full"), 2)
    else:
        chunk.refuse(BufferError("full"), 2)
        chunk.report(None, Delivered(0))
    assert not finished
    batch.fail(BufferError("full"), 2)
    assert finished == [batch]
    assert isinstance(batch.error, BufferError)


def test_a_failure_of_the_last_records_is_told_once() -> None:
    finished = list[Batch]()
    batch = Batch(2, finished.append)
    error = BufferError("full")
    batch.chunk(2, lambda: None).refuse(error, 2)
    batch.fail(error, 0)
    assert finished == [batch]
    assert batch.error is error


def test_publishers_wait_for_room_and_a_large_chunk_waits_for_all_of_it() -> None:
    room, entered = Room(most_records=10, most_bytes=100), threading.Event()
    room.take("t", 6, 60)

    def enter() -> None:
        room.take("t", 50, 5000)
        entered.set()

    waiting = threading.Thread(target=enter)
    waiting.start()
    room.take("t", 4, 40)
    room.release(4, 40)
    assert not entered.is_set()
    room.release(6, 60)
    assert entered.wait(30)
    waiting.join()


def test_closing_ends_the_wait_for_room() -> None:
    room, refused = Room(most_records=1), threading.Event()
    room.take("t", 1, 1)

    def enter() -> None:
        with pytest.raises(PartitionClosedError):
            room.take("t", 1, 1)
        refused.set()

    waiting = threading.Thread(target=enter)
    waiting.start()
    room.close()
    assert refused.wait(30)
    waiting.join()
