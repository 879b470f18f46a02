"""`dw topics`: what is there, who reads it how far, and that nothing is deleted or changed by accident."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dw_platform.log import Log, LogPolicy, Records, Retention
from dw_platform.pipelines import Platform
from dw_platform.pipelines.topics import PlatformBrokers
from dw_platform.streaming import Broker
from tests.cli.conftest import Dw, MakeFile

STREAMS = """
streams:
  - {name: clicks, table: web.clicks, topic: site.clicks, partitions: 2, retention: {for: 2h, keep_unread: false}}
bus: {topics: [{name: audit, durable: true}]}
"""


@pytest.fixture
def file(make_file: MakeFile) -> Path:
    return make_file(STREAMS)


@pytest.fixture
def log(file: Path) -> Log:
    return Log(file.parent / "home" / "log")


@pytest.fixture
def broker(file: Path) -> Iterator[Broker]:
    with Platform.open(file, environ={}) as platform, PlatformBrokers(platform) as brokers:
        yield brokers.of("site.clicks")


def filled(broker: Broker, dw: Dw) -> None:
    dw("topics", "create", "site.clicks")
    broker.publish("site.clicks", 0, Records([b"a", b"b", b"c"]))
    broker.publish("site.clicks", 1, Records([b"d"]))
    broker.commit("site.clicks", "readers", {0: 1})
    broker.close()


def shown(dw: Dw, *arguments: str) -> Any:
    return json.loads(dw("topics", *arguments, "--json").out)


@pytest.mark.usefixtures("file")
def test_a_platform_without_topics_says_how_they_come_to_be(dw: Dw) -> None:
    assert dw("topics", "list").out.startswith("There are no topics yet.")
    assert shown(dw, "list") == []
    assert "There is no topic x" in dw("topics", "show", "x").err


def test_a_streams_topic_is_made_with_the_streams_settings(dw: Dw, log: Log) -> None:
    assert shown(dw, "create", "site.clicks") == {
        "topic": "site.clicks",
        "partitions": 2,
        "broker": "embedded",
        "stream": "clicks",
    }
    described = log.describe("site.clicks")
    assert described.partitions == 2
    assert described.policy.retention.max_age is not None
    assert (described.policy.retention.max_age.total_seconds(), described.policy.retention.keep_unread) == (7200, False)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("create", "site.clicks", "--partitions", "3"), 2, "`partitions: 2` in platform.yaml, and not 3"),
        (("create", "audit"), 2, "is a topic of the bus, which makes it when it is first used"),
        (("grow", "audit", "--partitions", "9"), 2, "set its `partitions` under `bus.topics`"),
        (("create", "../etc"), 2, "cannot be the name of a topic"),
        (("create", "x", "--partitions", "0"), 2, "greater than or equal to 1"),
        (("create", "x", "--partitions", "10001"), 2, "from 1 to 10000"),
        (("grow", "x", "--partitions", "2"), 2, "There is no topic x"),
        (("verify", "x"), 2, "There is no topic x"),
        (("delete", "x", "--yes"), 2, "There is no topic x"),
        (("maintain", "x"), 2, "There is no topic x"),
    ],
)
@pytest.mark.usefixtures("file")
def test_what_cannot_be_done_is_said_with_a_way_out(dw: Dw, arguments: tuple[str, ...], code: int, words: str) -> None:
    outcome = dw("topics", *arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert words in outcome.err


@pytest.mark.usefixtures("file")
def test_a_topic_is_made_once_and_only_grows(dw: Dw) -> None:
    assert dw("topics", "create", "x", "--partitions", "3").out == "x has 3 partitions at the embedded broker.\n"
    again = dw("topics", "create", "x")
    assert (again.code, "The topic x exists" in again.err) == (2, True)
    assert dw("topics", "grow", "x", "--partitions", "5").out == "x: 3 -> 5 partitions.\n"
    assert dw("topics", "grow", "x", "--partitions", "5").out == "x has 5 partitions already.\n"
    fewer = dw("topics", "grow", "x", "--partitions", "4")
    assert (fewer.code, "at least 5" in fewer.err) == (2, True)
    assert shown(dw, "show", "x")["version"] == 2


def test_topics_are_listed_with_records_size_owner_and_lag(dw: Dw, broker: Broker) -> None:
    filled(broker, dw)
    dw("topics", "create", "mine", "--partitions", "1")
    mine, clicks = shown(dw, "list")
    assert (mine["topic"], mine["owner"], mine["records"], mine["lag"]) == ("mine", None, 0, {})
    assert (clicks["topic"], clicks["owner"], clicks["records"]) == ("site.clicks", "stream clicks", 4)
    assert clicks["lag"] == {"readers": 3}
    assert clicks["bytes"] > 0
    out = dw("topics", "list").out
    assert "site.clicks  stream clicks  embedded           2        4" in out
    assert "readers: 3" in out


def test_a_topic_is_shown_by_partition_and_group_with_its_policy(dw: Dw, broker: Broker) -> None:
    filled(broker, dw)
    topic = shown(dw, "show", "site.clicks")
    assert [(part["start"], part["end"], part["segments"]) for part in topic["partitions"]] == [(0, 3, 1), (0, 1, 1)]
    first, second = topic["groups"]
    assert (first["offset"], first["lag"], second["offset"], second["lag"]) == (1, 2, 0, 1)
    assert first["oldest_s"] >= 0
    assert topic["policy"]["retention"]["for"] == "2h"
    out = dw("topics", "show", "site.clicks").out
    assert "records up to 8.0 MiB are kept for 2h or up to 1.0 GiB a partition; an fsync before" in out
    assert "readers          0       1    2" in out


def test_what_expired_before_a_group_read_it_is_shown(dw: Dw, broker: Broker) -> None:
    dw("topics", "create", "site.clicks")
    broker.publish("site.clicks", 0, Records([b"a", b"b", b"c"]))
    broker.commit("site.clicks", "slow", {0: 1})
    broker.drop_before("site.clicks", {0: 2})
    topic = shown(dw, "show", "site.clicks")
    assert (topic["groups"][0]["lag"], topic["groups"][0]["expired"]) == (1, 1)
    assert "1 expired before they were read" in dw("topics", "show", "site.clicks").out


def test_a_healthy_log_verifies_and_damage_is_listed_with_its_place(dw: Dw, broker: Broker, file: Path) -> None:
    filled(broker, dw)
    assert dw("topics", "verify").out == "1 topic, 2 partitions: every record is readable.\n"
    [segment] = (file.parent / "home" / "log" / "site.clicks" / "00000").glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 0xFF
    segment.write_bytes(content)
    outcome = dw("topics", "verify", "site.clicks")
    assert outcome.code == 1
    assert "site.clicks          0  " in outcome.out
    findings = json.loads(dw("topics", "verify", "--json").out)["findings"]
    assert {finding["severity"] for finding in findings} <= {"torn", "lost", "corrupt"}
    assert all(finding["partition"] == 0 for finding in findings)


def test_a_file_that_is_not_the_logs_is_a_note_and_no_fault(dw: Dw, broker: Broker, file: Path) -> None:
    filled(broker, dw)
    (file.parent / "home" / "log" / "site.clicks" / "00001" / "notes.txt").write_text("hello")
    outcome = dw("topics", "verify")
    assert outcome.code == 0
    assert "this file is not the log's" in outcome.out
    assert outcome.out.endswith("findings: 1 note.\n")


def test_deleting_asks_twice_and_then_leaves_nothing_behind(dw: Dw, broker: Broker, file: Path) -> None:
    filled(broker, dw)
    first = dw("topics", "delete", "site.clicks")
    assert first.code == 2
    assert "holds 4 records, belongs to stream clicks, and readers has not read 3 of them" in first.err
    assert shown(dw, "list")[0]["records"] == 4
    with Platform.open(file, environ={}) as platform:
        platform.store.put("dw://internal/streaming/map/site.clicks", b'{"partitions": 2}')
        platform.store.put("dw://internal/streaming/map/other", b'{"partitions": 2}')
        gone = dw("topics", "delete", "site.clicks", "--yes")
        assert (gone.code, gone.out.splitlines()[0]) == (0, "site.clicks is deleted, with 4 records and 1 group.")
        left = [entry.key for entry in platform.store.list("dw://internal/")]
    assert left == ["dw://internal/streaming/map/other"]
    assert shown(dw, "list") == []
    dw("topics", "create", "site.clicks")
    assert shown(dw, "show", "site.clicks")["groups"] == []


def test_a_topic_that_somebody_writes_is_neither_deleted_nor_maintained(dw: Dw, broker: Broker, log: Log) -> None:
    filled(broker, dw)
    dw("topics", "create", "quiet")
    with log.writer("site.clicks", 1):
        kept = dw("topics", "delete", "site.clicks", "--yes")
        assert (kept.code, "publishes to it. Stop that process first" in kept.err) == (1, True)
        assert shown(dw, "show", "site.clicks")["lag"] == {"readers": 3}
        busy = dw("topics", "maintain")
        assert busy.code == 1
        assert "quiet" in busy.out
        assert "A gateway applies retention and compaction itself" in busy.err
        assert dw("topics", "verify").code == 0
        assert dw("topics", "list").code == 0


def test_maintaining_drops_what_retention_no_longer_keeps(dw: Dw, file: Path, log: Log) -> None:
    log.create_topic("old", policy=LogPolicy(segment_bytes=1024))
    with log.writer("old", 0) as writer:
        for _ in range(50):
            writer.append(Records([b"x" * 100]))
    with Platform.open(file, environ={}) as platform, PlatformBrokers(platform) as brokers:
        [end] = brokers.of("old").end_offsets("old").values()
        log.set_policy("old", LogPolicy(segment_bytes=1024, retention=Retention(max_bytes=2048)))
        brokers.of("old").commit("old", "readers", {0: end})
    [report] = shown(dw, "maintain", "old")
    assert report["records_dropped"] > 0
    assert report["bytes_after"] < report["bytes_before"]
    assert dw("topics", "maintain", "old").out.startswith("topic  records dropped")


def test_a_topic_of_another_broker_is_looked_after_there(dw: Dw, make_file: MakeFile) -> None:
    make_file("broker: {kind: kafka, address: '127.0.0.1:1'}")
    for what in ("verify", "delete", "maintain"):
        outcome = dw("topics", what, "x")
        assert (outcome.code, "is kept by kafka. Use kafka's own tools" in outcome.err) == (2, True)
    assert "nothing in platform.yaml uses it" in dw("topics", "verify").err
