"""Typed streams: good records become columns, bad ones go to the rejected table, each exactly once."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from dw_platform.lake.table import LakeTable
from dw_platform.pipelines import ingest_source
from dw_platform.pipelines.ingest import find_stream, ingest_stream
from dw_platform.pipelines.ingest_errors import TooManyRejectedError
from dw_platform.pipelines.positions import table_positions
from tests.pipelines.conftest import MakePlatform
from tests.pipelines.streams import TYPED, offsets_of, publish, rows_of

GOOD = b'{"id": 1, "amount": 12.50, "at": "2026-05-04T12:00:00Z", "note": "a", "other": [1]}'
MIXED = [GOOD, b'{"id": "x"}', b'{"id": 2}', None, b"{"]


class Crash(BaseException):
    """The process dies here."""


def test_good_records_are_typed_and_bad_ones_are_kept_with_their_reason(make_platform: MakePlatform) -> None:
    platform = make_platform(TYPED.replace("50%", "60%"))
    publish(platform, MIXED, 1, "orders")
    report = ingest_stream(platform, "orders")
    assert (report.rows, report.rejected, report.lag) == (2, 3, 0)
    first, second = sorted(rows_of(platform, "shop.orders"), key=lambda row: row["_offset"])
    assert first["_timestamp"] is not None
    del first["_timestamp"]
    assert first == {
        "id": 1,
        "amount": Decimal("12.50"),
        "at": datetime(2026, 5, 4, 12, tzinfo=UTC),
        "note": "a",
        "_partition": 1,
        "_offset": 0,
    }
    assert (second["id"], second["amount"], second["_offset"]) == (2, None, 2)
    rejected = {row["offset"]: row for row in rows_of(platform, "shop.orders_rejected")}
    assert {offset: row["reason"] for offset, row in rejected.items()} == {
        1: "id: a text is not a bigint",
        3: "no value",
        4: "not JSON: Expecting property name enclosed in double quotes at character 1",
    }
    assert (rejected[1]["value"], rejected[1]["topic"], rejected[1]["partition"]) == (b'{"id": "x"}', "orders", 1)
    assert rejected[1]["rejected_at"] == platform.clock.now()


def test_too_large_a_share_of_bad_records_fails_and_nothing_moves(make_platform: MakePlatform) -> None:
    platform = make_platform(TYPED)
    publish(platform, [GOOD] * 9 + [b"secret"] * 11, 0, "orders")
    with pytest.raises(TooManyRejectedError) as caught:
        ingest_stream(platform, "orders")
    assert (caught.value.rejected, caught.value.records) == (11, 20)
    assert "partition 0, offset 9: not JSON" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert table_positions(platform, find_stream(platform, "orders"), [0]) == {}
    assert rows_of(platform, "shop.orders") == rows_of(platform, "shop.orders_rejected") == []
    for table in ("shop.orders", "shop.orders_rejected"):
        assert not list(platform.lake.table(table).location.local.glob("*.parquet"))


def test_a_few_records_are_not_judged(make_platform: MakePlatform) -> None:
    platform = make_platform(TYPED)
    publish(platform, [b"bad"] * 9, 0, "orders")
    assert ingest_stream(platform, "orders").rejected == 9


def test_exactly_the_allowed_share_is_allowed(make_platform: MakePlatform) -> None:
    platform = make_platform(TYPED)
    publish(platform, [GOOD, b"bad"] * 10, 0, "orders")
    assert ingest_stream(platform, "orders").rejected == 10


def crash_before(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process die instead of committing to `table`, once."""
    original: Callable[..., object] = LakeTable.commit_staged

    def commit(self: LakeTable, *args: object, **kwargs: object) -> object:
        if self.name == table:
            raise Crash
        return original(self, *args, **kwargs)

    monkeypatch.setattr(LakeTable, "commit_staged", commit)


@pytest.mark.parametrize("table", ["shop.orders", "shop.orders_rejected"])
def test_a_crash_between_the_two_commits_doubles_and_loses_nothing(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    platform = make_platform(TYPED.replace("50%", "60%"))
    publish(platform, MIXED, 0, "orders")
    with monkeypatch.context() as patched:
        crash_before(table, patched)
        with pytest.raises(Crash):
            ingest_stream(platform, "orders")
    # The next run reads less at once than the one that died, and there is more to read.
    publish(platform, MIXED, 0, "orders")
    ingest_stream(platform, "orders", limit=2)
    ingest_stream(platform, "orders")
    assert offsets_of(platform, "shop.orders") == [(0, 0), (0, 2), (0, 5), (0, 7)]
    assert offsets_of(platform, "shop.orders_rejected") == [(0, 1), (0, 3), (0, 4), (0, 6), (0, 8), (0, 9)]


def test_columns_that_changed_after_a_crash_lose_no_bad_record(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = make_platform(TYPED)
    publish(platform, [GOOD, b"bad", b'{"id": 5, "note": "text"}'], 0, "orders")
    with monkeypatch.context() as patched:
        crash_before("shop.orders", patched)
        with pytest.raises(Crash):
            ingest_stream(platform, "orders")
    platform.close()
    stricter = make_platform(TYPED.replace("note: string", "note: string, other: bigint"))
    ingest_stream(stricter, "orders")
    assert offsets_of(stricter, "shop.orders") == [(0, 2)]
    # Offset 0 is bad only now. That offset 1 is told twice is the price: it was bad under both.
    assert offsets_of(stricter, "shop.orders_rejected") == [(0, 0), (0, 1), (0, 1)]


def test_a_new_column_is_added_to_the_table(make_platform: MakePlatform) -> None:
    platform = make_platform(TYPED)
    publish(platform, [GOOD], 0, "orders")
    ingest_stream(platform, "orders")
    platform.close()
    wider = make_platform(TYPED.replace("note: string", "note: string, price: double"))
    publish(wider, [b'{"id": 2, "price": 0.5}'], 0, "orders")
    ingest_stream(wider, "orders")
    assert sorted((row["id"], row["price"]) for row in rows_of(wider, "shop.orders")) == [(1, None), (2, 0.5)]


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_spark_tasks_split_good_from_bad_alike(make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_source, "SMALL_ROWS", 10)
    monkeypatch.setattr("dw_platform.pipelines.ingest_plan.LEAST_ROWS_A_TASK", 100)
    platform = make_platform(TYPED)
    publish(platform, [b'{"id": 1}'] * 300 + [b"bad"] * 3, 0, "orders")
    publish(platform, [b"bad"] + [b'{"id": 1}'] * 20, 1, "orders")
    report = ingest_stream(platform, "orders")
    assert (report.rows, report.rejected, report.commits) == (320, 4, 1)
    assert offsets_of(platform, "shop.orders_rejected") == [(0, 300), (0, 301), (0, 302), (1, 0)]


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_a_table_with_a_constraint_is_filled_by_sparks_writer(make_platform: MakePlatform) -> None:
    platform = make_platform(TYPED)
    publish(platform, [b'{"id": 1}', b"bad"], 0, "orders")
    ingest_stream(platform, "orders")
    spark, place = platform.spark.get(), platform.lake.table("shop.orders").location.spark_uri
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT positive CHECK (id > 0)")
    publish(platform, [b'{"id": 2}', b"bad"], 0, "orders")
    assert ingest_stream(platform, "orders").rows == 1
    assert platform.lake.table("shop.orders").history(1)[0].engine == "spark"
    assert offsets_of(platform, "shop.orders") == [(0, 0), (0, 2)]
    assert offsets_of(platform, "shop.orders_rejected") == [(0, 1), (0, 3)]
