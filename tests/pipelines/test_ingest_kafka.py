"""Ingest from a real Kafka: the same rows, and a broker that dies in the middle costs nothing but time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dw_platform.config import parse_config
from dw_platform.log import Records
from dw_platform.pipelines import Platform, ingest_source
from dw_platform.pipelines.brokers import open_stream_broker, topic_settings
from dw_platform.pipelines.ingest import IngestCommit, find_stream, ingest_stream
from dw_platform.pipelines.ingest_errors import TopicNotThereError
from dw_platform.streaming import BrokerUnavailableError, ingest_group
from tests.brokers import start_kafka
from tests.kafka_server import KafkaServer
from tests.pipelines.streams import expected, numbered, offsets_of

pytestmark = [pytest.mark.server]

PLATFORM = """
name: tested
home: home
broker:
  kind: kafka
  address: {address}
  options: {{socket.timeout.ms: 1000, delivery.timeout.ms: 3000}}
streams:
  - {{name: clicks, table: web.clicks, topic: {topic}, partitions: 2, commit: {{rows: 100}}}}
"""

Make = Callable[[str], Platform]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = start_kafka(tmp_path_factory.mktemp("kafka"))
    yield server
    server.kill()


@pytest.fixture
def make(kafka: KafkaServer, tmp_path: Path) -> Iterator[Make]:
    opened: list[Platform] = []

    def platform(topic: str) -> Platform:
        text = PLATFORM.format(address=kafka.address, topic=topic)
        opened.append(Platform(parse_config(text, source=tmp_path / "platform.yaml", environ={})))
        return opened[-1]

    yield platform
    for each in opened:
        each.close()


def publish(platform: Platform, count: int) -> None:
    stream = find_stream(platform, "clicks")
    with open_stream_broker(platform, stream) as broker:
        broker.ensure_topic(stream.topic_name, topic_settings(stream))
        for partition in range(2):
            broker.publish(stream.topic_name, partition, Records(numbered(0, count), keys=numbered(0, count)))


def test_records_of_kafka_become_rows_once_and_the_group_follows(make: Make) -> None:
    platform = make("plain")
    publish(platform, 150)
    report = ingest_stream(platform, "clicks")
    assert (report.rows, report.commits, report.lag) == (300, 3, 0)
    publish(platform, 5)
    assert ingest_stream(platform, "clicks").rows == 10
    assert offsets_of(platform) == expected(155, 155)
    with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
        assert broker.committed("plain", ingest_group("clicks")) == {0: 155, 1: 155}


def test_a_topic_that_kafka_does_not_have_is_not_made(make: Make) -> None:
    with pytest.raises(TopicNotThereError, match="the kafka broker has no topic missing yet"):
        ingest_stream(make("missing"), "clicks")


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_spark_tasks_read_kafka_by_themselves(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_source, "SMALL_ROWS", 10)
    monkeypatch.setattr("dw_platform.pipelines.ingest_plan.LEAST_ROWS_A_TASK", 30)
    platform = make("tasks")
    publish(platform, 90)
    assert ingest_stream(platform, "clicks").rows == 180
    assert offsets_of(platform) == expected(90, 90)


def test_a_broker_that_dies_in_the_middle_costs_nothing_but_time(make: Make, kafka: KafkaServer) -> None:
    platform = make("killed")
    publish(platform, 200)
    committed: list[IngestCommit] = []

    def kill_after_the_first(commit: IngestCommit) -> None:
        committed.append(commit)
        if len(committed) == 1:
            kafka.kill()

    with pytest.raises(BrokerUnavailableError):
        ingest_stream(platform, "clicks", on_commit=kill_after_the_first)
    with pytest.raises(BrokerUnavailableError):
        ingest_stream(platform, "clicks")
    kafka.start()
    report = ingest_stream(platform, "clicks")
    assert report.rows + sum(commit.rows for commit in committed) == 400
    assert offsets_of(platform) == expected(200, 200)
