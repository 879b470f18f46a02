"""Moving a stream: what is skipped is recorded, what is read again is not there twice, and a crash changes neither."""

from datetime import UTC, datetime

import pytest

from dw_platform.foundation import InvalidValueError
from dw_platform.log import Records
from dw_platform.pipelines import Platform, ingest_intent, ingest_round
from dw_platform.pipelines.brokers import open_stream_broker
from dw_platform.pipelines.ingest import find_stream, ingest_stream
from dw_platform.pipelines.ingest_intent import intent_key
from dw_platform.pipelines.ingest_plan import OffsetRange
from dw_platform.pipelines.ingest_reset import ResetRefusedError, parse_target, plan_reset, reset_stream
from dw_platform.pipelines.lost import LOST_TABLE, SKIPPED
from dw_platform.pipelines.positions import table_positions
from tests.pipelines.conftest import MakePlatform
from tests.pipelines.streams import RAW, TYPED, expected, make_topic, numbered, offsets_of, publish, rows_of


class Crash(BaseException):
    """The process dies here."""


def crash(*_: object, **__: object) -> None:
    raise Crash


def lost_of(platform: Platform) -> list[tuple[int, int, int, str]]:
    rows = rows_of(platform, LOST_TABLE)
    return sorted((row["partition"], row["first_offset"], row["next_offset"], row["reason"]) for row in rows)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("12", 12),
        ("0:5,3:7", {0: 5, 3: 7}),
        ("2026-05-04T12:00:00", datetime(2026, 5, 4, 12, tzinfo=UTC)),
        ("2026-05-04 14:00:00+02:00", datetime(2026, 5, 4, 12, tzinfo=UTC)),
    ],
)
def test_a_place_can_be_named_in_several_ways(text: str, target: object) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "0:", "0:1,", "1:x"])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidValueError, match="earliest, latest"):
        parse_target(text)


def test_skipping_records_what_was_left_out_and_needs_no_jvm(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    publish(platform, numbered(0, 4), 1)
    ingest_stream(platform, "clicks", limit=4)
    plan = reset_stream(platform, "clicks", {0: 7})
    assert (plan.skipped, plan.repeated) == ((OffsetRange(0, 2, 7),), ())
    ingest_stream(platform, "clicks")
    assert offsets_of(platform) == [pair for pair in expected(10, 4) if pair[0] == 1 or not 2 <= pair[1] < 7]
    assert lost_of(platform) == [(0, 2, 7, SKIPPED)]
    assert not platform.spark.started
    assert reset_stream(platform, "clicks", "latest").empty


def test_one_offset_counts_for_every_partition(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    with pytest.raises(ResetRefusedError, match="0 to 0 of partition 1, not 6"):
        plan_reset(platform, "clicks", 6)
    publish(platform, numbered(0, 8), 1)
    assert plan_reset(platform, "clicks", 6).skipped == (OffsetRange(0, 0, 6), OffsetRange(1, 0, 6))


@pytest.mark.parametrize("target", [{0: 11}, {5: 0}])
def test_what_the_broker_does_not_have_is_refused(make_platform: MakePlatform, target: dict[int, int]) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    with pytest.raises(ResetRefusedError, match="Nothing was changed"):
        reset_stream(platform, "clicks", target)
    assert platform.store.get(intent_key("clicks")) is None


def test_expired_records_cannot_be_read_again(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    ingest_stream(platform, "clicks")
    with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
        broker.drop_before("clicks", {0: 5})
    with pytest.raises(ResetRefusedError, match="the broker has 5 to 10"):
        reset_stream(platform, "clicks", {0: 4})


def test_a_new_stream_may_begin_where_an_old_topic_begins(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
        broker.drop_before("clicks", {0: 5})
    reset_stream(platform, "clicks", "earliest")
    assert ingest_stream(platform, "clicks").rows == 5
    assert lost_of(platform) == [(0, 0, 5, SKIPPED)]


def test_a_time_is_turned_into_offsets(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    make_topic(platform)
    with open_stream_broker(platform, find_stream(platform, "clicks")) as broker:
        broker.publish("clicks", 0, Records(numbered(0, 4), timestamps_ms=[1000, 2000, 3000, 4000]))
    when = datetime.fromtimestamp(3, UTC)
    assert plan_reset(platform, "clicks", when).skipped == (OffsetRange(0, 0, 2),)


@pytest.mark.parametrize("step", ["before", "_move", "record_lost"])
def test_a_skip_that_died_is_finished_by_the_next_ingest(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    ingest_stream(platform, "clicks", limit=2)
    with monkeypatch.context() as patched:
        patched.setattr(ingest_intent, "_finish" if step == "before" else step, crash)
        with pytest.raises(Crash):
            reset_stream(platform, "clicks", {0: 8})
    assert platform.store.get(intent_key("clicks")) is not None
    ingest_stream(platform, "clicks")
    assert offsets_of(platform) == [(0, 0), (0, 1), (0, 8), (0, 9)]
    assert lost_of(platform) == [(0, 2, 8, SKIPPED)]
    assert platform.store.get(intent_key("clicks")) is None


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_what_is_read_again_is_not_there_twice(make_platform: MakePlatform) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 10), 0)
    publish(platform, numbered(0, 6), 1)
    ingest_stream(platform, "clicks")
    plan = reset_stream(platform, "clicks", {0: 3})
    assert (plan.skipped, plan.repeated) == ((), (OffsetRange(0, 3, 10),))
    assert offsets_of(platform) == expected(3, 6)
    assert table_positions(platform, find_stream(platform, "clicks"), [0, 1]) == {0: 3, 1: 6}
    assert ingest_stream(platform, "clicks").rows == 7
    assert offsets_of(platform) == expected(10, 6)


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
@pytest.mark.parametrize("step", ["_move", "positions", "record_lost"])
def test_a_reset_that_died_is_finished_by_the_next_ingest(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    platform = make_platform(TYPED)
    publish(platform, [b'{"id": 0}', b"bad", b'{"id": 2}', b"bad", b'{"id": 4}'], 0, "orders")
    ingest_stream(platform, "orders")
    with monkeypatch.context() as patched:
        if step == "positions":
            patched.setattr("dw_platform.lake.table.LakeTable._set_positions", crash)
        else:
            patched.setattr(ingest_intent, step, crash)
        with pytest.raises(Crash):
            reset_stream(platform, "orders", {0: 1})
    assert ingest_stream(platform, "orders").lag == 0
    assert offsets_of(platform, "shop.orders") == [(0, 0), (0, 2), (0, 4)]
    assert offsets_of(platform, "shop.orders_rejected") == [(0, 1), (0, 3)]
    assert platform.store.get(intent_key("orders")) is None


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_a_reset_during_an_ingest_lets_neither_double_nor_lose(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = make_platform(TYPED)
    publish(platform, [b'{"id": 0}', b"bad", b'{"id": 2}'], 0, "orders")
    ingest_stream(platform, "orders")
    publish(platform, [b'{"id": 3}', b"bad", b'{"id": 5}'], 0, "orders")
    original = ingest_round.stage

    def reset_meanwhile(*args: object, **kwargs: object) -> object:
        monkeypatch.setattr(ingest_round, "stage", original)
        staged = original(*args, **kwargs)  # type: ignore[arg-type]
        reset_stream(platform, "orders", {0: 1})
        return staged

    monkeypatch.setattr(ingest_round, "stage", reset_meanwhile)
    assert ingest_stream(platform, "orders").lag == 0
    assert offsets_of(platform, "shop.orders") == [(0, 0), (0, 2), (0, 3), (0, 5)]
    assert offsets_of(platform, "shop.orders_rejected") == [(0, 1), (0, 4)]


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_an_ingest_that_commits_during_a_reset_is_undone_by_it(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = make_platform(RAW)
    publish(platform, numbered(0, 6), 0)
    ingest_stream(platform, "clicks")
    publish(platform, numbered(6, 9), 0)
    original = ingest_intent._move

    def ingest_meanwhile(*args: object) -> None:
        monkeypatch.setattr(ingest_intent, "_move", original)
        # Stands for an ingest that looked for an intent before there was one.
        monkeypatch.setattr(ingest_round, "finish_reset", lambda *_: False)
        ingest_stream(platform, "clicks")
        monkeypatch.undo()
        original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ingest_intent, "_move", ingest_meanwhile)
    reset_stream(platform, "clicks", {0: 2})
    assert offsets_of(platform) == expected(2)
    ingest_stream(platform, "clicks")
    assert offsets_of(platform) == expected(9)


def test_typed_rows_of_another_topic_are_not_deleted_with_those_of_this_one(make_platform: MakePlatform) -> None:
    platform = make_platform(TYPED)
    publish(platform, [b'{"id": 0}'], 0, "orders")
    ingest_stream(platform, "orders")
    platform.close()
    moved = make_platform(TYPED.replace("partitions: 2", "partitions: 2\n    topic: orders2"))
    publish(moved, [b'{"id": 1}'], 0, "orders")
    ingest_stream(moved, "orders")
    assert len(rows_of(moved, "shop.orders")) == 2
    with pytest.raises(ResetRefusedError, match="rows of the topic orders, which it could not tell"):
        reset_stream(moved, "orders", "earliest")
