"""Ingest: what is in the topic is in the table, once; limits, growth, other ingests, and what is refused."""

import pyarrow as pa
import pytest

from dw_platform.lake.schema import SchemaMismatchError
from dw_platform.log import Records
from dw_platform.pipelines import ingest_round, ingest_source
from dw_platform.pipelines.brokers import open_stream_broker
from dw_platform.pipelines.ingest import IngestCommit, StreamIngest, find_stream, ingest_stream
from dw_platform.pipelines.ingest_errors import PositionBeyondEndError, TopicNotThereError, UnknownStreamError
from dw_platform.pipelines.positions import table_positions
from dw_platform.streaming import Capabilities, ingest_group
from dw_platform.streaming.brokers.embedded import EmbeddedBroker
from tests.pipelines.conftest import MakePlatform
from tests.pipelines.streams import RAW, expected, make_topic, numbered, offsets_of, publish, rows_of


def test_a_record_becomes_a_row_with_everything_it_had(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    make_topic(platform)
    with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
        records = Records([b"v", None], keys=[b"k", None], headers=[{"h": b"1"}, None], timestamps_ms=[5, 7])
        broker.publish("clicks", 1, records)
    report = ingest_stream(platform, "clicks")
    first, second = rows_of(platform, "web.clicks")
    assert (first["key"], first["value"], first["headers"]) == (b"k", b"v", [("h", b"1")])
    assert (first["topic"], first["partition"], first["offset"]) == ("clicks", 1, 0)
    assert first["timestamp"].timestamp() == 0.005
    assert first["ingested_at"] == platform.clock.now()
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (None, None, None, 1)
    assert (report.rows, report.commits, report.lag, dict(report.positions)) == (2, 1, 0, {0: 0, 1: 2})
    assert not platform.spark.started, "so small a backlog needs no JVM"


def test_a_second_run_reads_only_what_is_new(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    assert ingest_stream(platform, "clicks").rows == 10
    assert ingest_stream(platform, "clicks").commits == 0
    publish(platform, numbered(10, 15), 0)
    publish(platform, numbered(0, 3), 1)
    assert ingest_stream(platform, "clicks").rows == 8
    assert offsets_of(platform) == expected(15, 3)


def test_the_table_is_there_before_the_first_record(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    make_topic(platform)
    report = ingest_stream(platform, "clicks")
    assert (report.rows, report.version) == (0, None)
    snapshot = platform.lake.table("web.clicks").snapshot()
    assert snapshot.row_count == 0
    assert snapshot.delta.metadata().description == "Messages of the topic clicks, each exactly once."
    assert [field.name for field in snapshot.schema if not field.nullable] == [
        "topic", "partition", "offset", "timestamp", "ingested_at"
    ]  # fmt: skip


def test_a_commit_holds_no_more_rows_than_it_may_and_the_run_goes_on(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW.replace("partitions: 2", "partitions: 2, commit: {rows: 7}"))
    publish(platform, numbered(0, 20), 0)
    commits: list[IngestCommit] = []
    report = ingest_stream(platform, "clicks", on_commit=commits.append)
    assert [commit.rows for commit in commits] == [7, 7, 6]
    assert [commit.lag for commit in commits] == [13, 6, 0]
    assert (report.commits, report.rows) == (3, 20)
    assert offsets_of(platform) == expected(20)


def test_a_limit_ends_the_run_and_the_next_one_goes_on(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    publish(platform, numbered(0, 10), 1)
    first = ingest_stream(platform, "clicks", limit=5)
    assert (first.rows, first.lag) == (5, 15)
    assert ingest_stream(platform, "clicks").rows == 15
    assert offsets_of(platform) == expected(10, 10)


def test_what_arrives_during_a_run_is_left_to_the_next(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW.replace("partitions: 2", "partitions: 2, commit: {rows: 4}"))
    publish(platform, numbered(0, 8), 0)
    report = ingest_stream(platform, "clicks", on_commit=lambda _: publish(platform, numbered(0, 4), 1))
    assert (report.rows, report.commits) == (8, 2)
    assert offsets_of(platform) == expected(8)


def test_new_partitions_are_read_from_their_beginning(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 3), 0)
    with StreamIngest(platform, find_stream(platform, "clicks")) as ingest:
        assert ingest.catch_up().rows == 3
        with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
            broker.grow("clicks", 4)
        publish(platform, numbered(0, 5), 3)
        assert ingest.catch_up().rows == 5
    assert offsets_of(platform) == [(0, 0), (0, 1), (0, 2), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4)]


def test_the_group_at_the_broker_follows_the_table(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 3), 0)
    ingest_stream(platform, "clicks")
    with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
        assert broker.committed("clicks", ingest_group("clicks")) == {0: 3}
    assert table_positions(platform, find_stream(platform, "clicks"), [0, 1]) == {0: 3}


def test_an_ingest_that_was_overtaken_plans_again(make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    original, overtaken = ingest_round.stage, []

    def overtake(*args: object, **kwargs: object) -> object:
        staged = original(*args, **kwargs)  # type: ignore[arg-type]
        if not overtaken:
            overtaken.append(True)
            ingest_stream(platform, "clicks", limit=4)
        return staged

    monkeypatch.setattr(ingest_round, "stage", overtake)
    report = ingest_stream(platform, "clicks")
    assert (report.rows, report.lag) == (6, 0)
    assert offsets_of(platform) == expected(10)
    referenced = len(platform.lake.table("web.clicks").snapshot().delta.file_uris())
    written = list(platform.lake.table("web.clicks").location.local.glob("*.parquet"))
    assert len(written) == referenced, "the files of the attempt that lost are gone"


def test_an_ingest_that_was_overtaken_wholly_ends(make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    original = ingest_round.stage

    def overtake(*args: object, **kwargs: object) -> object:
        monkeypatch.setattr(ingest_round, "stage", original)
        staged = original(*args, **kwargs)  # type: ignore[arg-type]
        ingest_stream(platform, "clicks")
        return staged

    monkeypatch.setattr(ingest_round, "stage", overtake)
    assert ingest_stream(platform, "clicks").rows == 0
    assert offsets_of(platform) == expected(10)


def test_a_topic_of_the_platforms_own_log_is_made_and_kept_for_the_ingest(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    report = ingest_stream(platform, "clicks")
    assert (report.rows, report.commits, report.lag) == (0, 0, 0)
    with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
        assert broker.groups("clicks") == ["ingest.clicks"], "retention waits for it before its first record"


def test_a_topic_that_another_broker_does_not_have_may_be_misspelt(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedBroker, "capabilities", Capabilities(shared_by_processes=True))
    with pytest.raises(TopicNotThereError, match="dw topics create clicks") as caught:
        ingest_stream(make_platform(RAW), "clicks")
    assert caught.value.topic == "clicks"


def test_an_unknown_stream_is_refused_with_the_known_ones(make_platform: MakePlatform) -> None:
    with pytest.raises(UnknownStreamError) as caught:
        ingest_stream(make_platform(RAW), "nothing")
    assert caught.value.known == ("clicks",)


def test_a_topic_that_was_made_anew_is_refused(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    ingest_stream(platform, "clicks")
    table = platform.lake.table("web.clicks")
    snapshot = table.snapshot()
    position = "clicks/ingest.clicks/clicks/0"
    assert snapshot.position(position) == 10
    table.append(snapshot.schema.empty_table(), positions={position: 50}, snapshot=snapshot)
    with pytest.raises(PositionBeyondEndError) as caught:
        ingest_stream(platform, "clicks")
    assert (caught.value.partition, caught.value.position, caught.value.end) == (0, 50, 10)


def test_a_table_that_somebody_altered_is_refused_and_nothing_moves(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 3), 0)
    platform.lake.table("web.clicks").create(pa.schema([("offset", pa.string()), ("extra", pa.int64())]))
    with pytest.raises(SchemaMismatchError, match="column offset is int64, the table has string"):
        ingest_stream(platform, "clicks")
    assert table_positions(platform, find_stream(platform, "clicks"), [0]) == {}


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_a_large_backlog_is_read_by_spark_tasks(make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_source, "SMALL_ROWS", 10)
    monkeypatch.setattr("dw_platform.pipelines.ingest_plan.LEAST_ROWS_A_TASK", 100)
    platform = make_platform(RAW.replace("partitions: 2", "partitions: 2, commit: {rows: 600}"))
    publish(platform, numbered(0, 1000), 0)
    publish(platform, numbered(0, 30), 1)
    report = ingest_stream(platform, "clicks")
    assert (report.rows, report.commits, report.lag) == (1030, 2, 0)
    assert offsets_of(platform) == expected(1000, 30)
    first = platform.lake.table("web.clicks").snapshot(1)
    assert first.file_count == 2, "a hot partition is read by as many tasks as there are cores"
