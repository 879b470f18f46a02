"""Records that are gone before they were ingested: never passed over without a word, recorded once."""

from typing import Any

import pytest

from dw_platform.log import LogBatch, RecordsLostError
from dw_platform.pipelines import Platform, ingest_round
from dw_platform.pipelines.brokers import open_stream_broker
from dw_platform.pipelines.ingest import find_stream, ingest_stream
from dw_platform.pipelines.ingest_errors import LostRangesError
from dw_platform.pipelines.ingest_plan import OffsetRange
from dw_platform.pipelines.lost import CRASHED, EXPIRED, LOST_TABLE
from dw_platform.pipelines.positions import table_positions
from dw_platform.streaming.brokers.embedded import EmbeddedFetcher
from tests.pipelines.conftest import MakePlatform
from tests.pipelines.streams import RAW, numbered, offsets_of, publish, rows_of


class Crash(BaseException):
    """The process dies here."""


def drop(platform: Platform, before: int) -> None:
    """Let records of partition 0 expire."""
    with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
        broker.drop_before("clicks", {0: before})


def lost_of(platform: Platform) -> list[tuple[str, str, int, int, int, str]]:
    names = ("stream", "topic", "partition", "first_offset", "next_offset", "reason")
    return sorted(tuple(row[name] for name in names) for row in rows_of(platform, LOST_TABLE))  # type: ignore[misc]


def test_expired_records_fail_the_run_and_name_the_range(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    ingest_stream(platform, "clicks", limit=3)
    drop(platform, 7)
    with pytest.raises(LostRangesError, match="partition 0, offsets 3 to 6") as caught:
        ingest_stream(platform, "clicks")
    assert (caught.value.stream, caught.value.topic, caught.value.lost) == ("clicks", "clicks", (OffsetRange(0, 3, 7),))
    assert "--accept-loss" in str(caught.value)
    assert offsets_of(platform) == [(0, 0), (0, 1), (0, 2)]
    assert LOST_TABLE not in platform.table_names()


def test_an_accepted_loss_is_recorded_and_the_rest_is_ingested(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    drop(platform, 7)
    report = ingest_stream(platform, "clicks", accept_loss=True)
    assert (report.rows, [entry.range for entry in report.lost]) == (3, [OffsetRange(0, 0, 7)])
    assert offsets_of(platform) == [(0, 7), (0, 8), (0, 9)]
    assert lost_of(platform) == [("clicks", "clicks", 0, 0, 7, EXPIRED)]
    assert ingest_stream(platform, "clicks").lost == ()


def test_a_loss_at_the_very_end_moves_the_position_too(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    drop(platform, 10)
    assert ingest_stream(platform, "clicks", accept_loss=True).rows == 0
    assert table_positions(platform, find_stream(platform, "clicks"), [0]) == {0: 10}


def test_a_stream_that_is_not_durable_goes_on_and_records(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW.replace("partitions: 2", "partitions: 2, durable: false, backpressure: drop_oldest"))
    publish(platform, numbered(0, 10), 0)
    drop(platform, 4)
    assert ingest_stream(platform, "clicks").rows == 6
    assert [entry[3:5] for entry in lost_of(platform)] == [(0, 4)]


def test_a_crash_after_recording_records_only_what_is_new(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    drop(platform, 4)

    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(ingest_round, "stage", crash)
        with pytest.raises(Crash):
            ingest_stream(platform, "clicks", accept_loss=True)
    drop(platform, 6)
    ingest_stream(platform, "clicks", accept_loss=True)
    assert [entry[3:5] for entry in lost_of(platform)] == [(0, 4), (4, 6)]
    assert offsets_of(platform) == [(0, 6), (0, 7), (0, 8), (0, 9)]


def test_records_that_expire_between_plan_and_read_are_noticed(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    original = ingest_round.stage

    def expire_meanwhile(*args: object, **kwargs: object) -> object:
        monkeypatch.setattr(ingest_round, "stage", original)
        drop(platform, 5)
        return original(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ingest_round, "stage", expire_meanwhile)
    with pytest.raises(LostRangesError) as caught:
        ingest_stream(platform, "clicks")
    assert caught.value.lost == (OffsetRange(0, 0, 5),)


def test_a_hole_that_a_crash_of_the_broker_left_is_recorded_as_such(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    original = EmbeddedFetcher.fetch

    def with_hole(self: EmbeddedFetcher, offset: int, **limits: Any) -> LogBatch:
        if 3 <= offset < 6:
            raise RecordsLostError("0", offset, 6)
        if offset < 3:
            limits["max_records"] = 3 - offset
        return original(self, offset, **limits)

    monkeypatch.setattr(EmbeddedFetcher, "fetch", with_hole)
    with pytest.raises(LostRangesError, match="lost in a crash of the broker") as caught:
        ingest_stream(platform, "clicks")
    assert caught.value.lost == (OffsetRange(0, 3, 6),)
    assert offsets_of(platform) == [(0, 0), (0, 1), (0, 2)], "what comes before the hole is ingested"
    ingest_stream(platform, "clicks", accept_loss=True)
    assert [offset for _, offset in offsets_of(platform)] == [0, 1, 2, 6, 7, 8, 9]
    assert lost_of(platform) == [("clicks", "clicks", 0, 3, 6, CRASHED)]
