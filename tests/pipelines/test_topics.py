"""Topics of several brokers, and that a failure half-way through their care leaves nothing that misleads later."""

from pathlib import Path
from typing import Any

import pytest

from dw_platform.log import Finding, Log, PartitionLog, Records, Severity
from dw_platform.pipelines.topic_care import create_topic, delete_topic, verify_partition
from dw_platform.pipelines.topics import PlatformBrokers, TopicOverview, owner_of, topics_overview
from dw_platform.store import StoreUnavailableError
from dw_platform.streaming import BrokerUnavailableError
from tests.pipelines.conftest import MakePlatform

STREAMS = """
name: tested
home: home
broker: {kind: kafka, address: "127.0.0.1:1", options: {socket.timeout.ms: 100}}
streams:
  - {name: near, table: a.near, topic: events, broker: {kind: embedded}}
  - {name: also, table: a.also, topic: events, broker: {}}
  - {name: far, table: a.far}
bus: {topics: [{name: audit, durable: true}]}
"""


def test_each_topic_belongs_to_the_broker_of_its_stream_or_the_bus_or_the_platform(
    make_platform: MakePlatform,
) -> None:
    platform = make_platform(STREAMS)
    with PlatformBrokers(platform) as brokers:
        assert [section.kind for section in brokers.sections()] == ["kafka", "embedded"]
        kinds = {topic: brokers.section_of(topic).kind for topic in ("events", "far", "audit", "other")}
    assert kinds == {"events": "embedded", "far": "kafka", "audit": "embedded", "other": "kafka"}
    owners = [owner_of(platform.config, topic) for topic in ("events", "audit", "other")]
    assert owners == ["stream near, also", "bus", ""]


class Down:
    """A broker that does not answer."""

    kind = "kafka"

    def topics(self) -> list[str]:
        raise BrokerUnavailableError("kafka", "127.0.0.1:1", "it is away")

    def close(self) -> None: ...


def test_a_broker_that_is_down_does_not_hide_the_topics_of_the_others(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = make_platform(STREAMS)
    with PlatformBrokers(platform) as brokers:
        create_topic(brokers, "events", None)
        opened = brokers.open
        monkeypatch.setattr(brokers, "open", lambda section: Down() if section.kind == "kafka" else opened(section))
        error, topic = topics_overview(platform, brokers)
    assert isinstance(error, BrokerUnavailableError)
    assert isinstance(topic, TopicOverview)
    assert topic.name == "events"


EMBEDDED = "name: tested\nhome: home\nstreams: [{name: s, table: a.b, partitions: 1}]"


def written(make_platform: MakePlatform) -> Any:
    platform = make_platform(EMBEDDED)
    with PlatformBrokers(platform) as brokers:
        create_topic(brokers, "s", None)
        brokers.of("s").publish("s", 0, Records([b"a"]))
        brokers.of("s").commit("s", "readers", {0: 1})
    return platform


def test_a_store_that_fails_while_a_topic_is_deleted_leaves_the_topic(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = written(make_platform)

    def refuse(_key: str, **_: Any) -> bool:
        raise StoreUnavailableError("the store", "it is away")

    with monkeypatch.context() as patched:
        patched.setattr(platform.store, "delete", refuse)
        with pytest.raises(StoreUnavailableError):
            delete_topic(platform, "s")
    with PlatformBrokers(platform) as brokers:
        assert brokers.of("s").end_offsets("s") == {0: 1}
        assert brokers.of("s").committed("s", "readers") == {0: 1}
    delete_topic(platform, "s")
    with PlatformBrokers(platform) as brokers:
        assert brokers.of("s").topics() == []
    assert list(platform.store.list_versions("dw://internal/log/offsets/")) == []


def test_a_group_of_a_deleted_topic_begins_anew_in_one_of_the_same_name(make_platform: MakePlatform) -> None:
    platform = written(make_platform)
    delete_topic(platform, "s")
    with PlatformBrokers(platform) as brokers:
        create_topic(brokers, "s", None)
        assert brokers.of("s").committed("s", "readers") == {}


def test_a_write_in_progress_is_not_called_torn(make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = written(make_platform)
    looks = [[_torn(100)], [_torn(200)], [_torn(300)]]
    monkeypatch.setattr(Log, "verify_partition", lambda *_: looks.pop(0))
    assert verify_partition(platform, "s", 0) == []


def test_what_stays_torn_at_one_place_is_torn(make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = written(make_platform)
    monkeypatch.setattr(Log, "verify_partition", lambda *_: [_torn(100)])
    assert verify_partition(platform, "s", 0) == [_torn(100)]


def _torn(position: int) -> Finding:
    return Finding(Severity.TORN, "file", position, "half a frame")


def test_files_and_segments_of_a_partition_are_counted_without_opening_them(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.create_topic("t", partitions=2)
    assert (log.files("t", 0).segments, log.files("t", 0).bytes) == (0, 0)
    with PartitionLog.open(tmp_path / "t" / "00000") as writer:
        writer.append(Records([b"abc"]))
        assert log.files("t", 0).segments == 1
        assert log.files("t", 0).bytes == writer.stats().bytes
    (tmp_path / "t" / "00000" / "foreign.txt").write_text("x" * 1000)
    assert log.files("t", 0).bytes < 1000
