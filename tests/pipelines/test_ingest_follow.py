"""Following: records are in the table soon, one stream's failure is its own, limits change while it runs."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from dw_platform.config import parse_config
from dw_platform.foundation import FakeClock
from dw_platform.lake.schema import SchemaMismatchError
from dw_platform.pipelines import Platform, follow
from dw_platform.pipelines.follow import FollowEvent, follow_streams, followed_streams
from dw_platform.pipelines.ingest import IngestCommit, StreamIngest, find_stream
from dw_platform.pipelines.ingest_limits import CommitPace, IngestLimits, IngestSubsystem, commit_pace
from dw_platform.pipelines.limits import limit_control
from dw_platform.scaling import PressureLevel
from dw_platform.streaming import BrokerUnavailableError, DegradationDirective
from tests.pipelines.conftest import MakePlatform
from tests.pipelines.streams import RAW, expected, numbered, offsets_of, publish

TWO = """
name: tested
home: home
streams:
  - {name: clicks, table: web.clicks, partitions: 1}
  - {name: views, table: web.views, partitions: 1}
"""


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """With the machine's clock, and without a JVM that nothing here needs."""
    monkeypatch.setattr(follow, "_warm", lambda *_: None)
    monkeypatch.setattr(follow, "FIRST_RETRY_S", 0.05)
    with Platform(parse_config(TWO, source=tmp_path / "platform.yaml", environ={})) as opened:
        yield opened


@contextlib.contextmanager
def following(platform: Platform, *names: str) -> Iterator[list[FollowEvent]]:
    stop, events = threading.Event(), list[FollowEvent]()
    thread = threading.Thread(
        target=follow_streams, args=[platform, names], kwargs={"stop": stop, "on_event": events.append}
    )
    thread.start()
    try:
        yield events
    finally:
        stop.set()
        thread.join()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 30 s"
        time.sleep(0.02)


def rows(events: list[FollowEvent], stream: str) -> int:
    return sum(event.commit.rows for event in events if event.commit and event.stream == stream)


def test_records_of_all_streams_arrive_while_it_runs(platform: Platform) -> None:
    publish(platform, numbered(0, 5))
    publish(platform, numbered(0, 3), stream="views")
    with following(platform) as events:
        wait_for(lambda: rows(events, "clicks") == 5 and rows(events, "views") == 3)
        publish(platform, numbered(5, 9))
        wait_for(lambda: rows(events, "clicks") == 9)
        assert not [event for event in events if event.error]
    assert offsets_of(platform) == expected(9)
    assert offsets_of(platform, "web.views") == expected(3)


def test_a_stream_whose_broker_is_away_is_tried_again_while_others_go_on(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(platform, numbered(0, 5))
    publish(platform, numbered(0, 3), stream="views")
    original, back = StreamIngest.ends, threading.Event()

    def away(self: StreamIngest) -> dict[int, int]:
        if self.stream.name == "views" and not back.is_set():
            raise BrokerUnavailableError("embedded", "here", "it is away")
        return original(self)

    monkeypatch.setattr(StreamIngest, "ends", away)
    with following(platform) as events:
        wait_for(lambda: rows(events, "clicks") == 5 and sum(event.error is not None for event in events) > 1)
        assert {event.stream for event in events if event.error} == {"views"}
        back.set()
        wait_for(lambda: rows(events, "views") == 3)


def test_what_waiting_does_not_mend_is_told_and_does_not_end_the_others(platform: Platform) -> None:
    publish(platform, numbered(0, 5))
    publish(platform, numbered(0, 3), stream="views")
    platform.lake.table("web.views").create(pa.schema([("offset", pa.string())]))
    with following(platform) as events:
        wait_for(lambda: rows(events, "clicks") == 5 and any(event.error for event in events))
    errors = [event for event in events if event.error]
    assert [(event.stream, type(event.error)) for event in errors] == [("views", SchemaMismatchError)]
    assert errors[0].retry_in_s == follow.LONGEST_RETRY_S


def test_what_it_does_is_seen_and_steered_from_elsewhere(platform: Platform) -> None:
    publish(platform, numbered(0, 5))
    control = limit_control(platform)
    control.set("ingest", {"max_rows_per_commit": 2}, changed_by="tests", reason="smaller commits")
    with following(platform, "clicks") as events:
        wait_for(lambda: rows(events, "clicks") == 5)
        assert [event.commit.rows for event in events if event.commit] == [2, 2, 1]
        wait_for(lambda: followed_streams(platform) == {"clicks"})
    assert followed_streams(platform) == frozenset(), "a process that ended follows nothing"


def test_stopping_ends_after_the_commit_under_way(platform: Platform) -> None:
    limit_control(platform).set("ingest", {"max_rows_per_commit": 1}, changed_by="tests", reason="many commits")
    publish(platform, numbered(0, 200))
    with following(platform, "clicks") as events:
        wait_for(lambda: rows(events, "clicks") > 0)
    count = rows(events, "clicks")
    assert count < 200
    assert offsets_of(platform) == expected(count)


def test_a_stream_that_degrades_makes_larger_and_rarer_commits(make_platform: MakePlatform) -> None:
    stream = find_stream(make_platform(RAW), "clicks")
    assert commit_pace(stream, IngestLimits()) == CommitPace(2_000_000, 1.0)
    set_by_hand = IngestLimits(max_rows_per_commit=10, commit_every=timedelta(seconds=3))
    assert commit_pace(stream, set_by_hand, DegradationDirective(batch_factor=4)) == CommitPace(40, 12.0)


def test_the_fullest_stream_is_the_pressure_and_rates_are_of_the_last_seconds(make_platform: MakePlatform) -> None:
    stream = find_stream(make_platform(RAW.replace("partitions: 2", "partitions: 2, capacity: 100")), "clicks")
    clock = FakeClock()
    subsystem = IngestSubsystem(IngestLimits(), clock=clock)
    commit = IngestCommit(
        stream="clicks", table="t", version=1, rows=90, rejected=10, bytes=0, positions={}, lag=0, duration_s=0.1
    )
    subsystem.committed(commit)
    subsystem.observed(stream, 99)
    assert subsystem.backpressure_state().level is PressureLevel.SHEDDING
    metrics = subsystem.scaling_metrics()
    assert (metrics["rows"], metrics["rejected"], metrics["rows_per_s"], metrics["lag"]) == (90, 10, 10.0, 99)
    subsystem.failed(stream)
    clock.advance(11)
    metrics = subsystem.scaling_metrics()
    assert (metrics["rows"], metrics["rows_per_s"], metrics["failing"], metrics["streams"]) == (90, 0.0, 1, 1)
