"""Building tables: what is refused before Spark starts, and what stands in the lake afterwards."""

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from dw_platform.foundation import FakeClock, InvalidValueError
from dw_platform.pipelines.build import NotBuiltError, UnknownTableError, build_table, built_table
from tests.pipelines.conftest import MakePlatform

STREAM = """
name: x
streams: [{name: clicks, table: web.clicks}]
"""


def test_an_unknown_table_is_refused_with_the_known_ones(make_platform: MakePlatform) -> None:
    platform = make_platform()
    with pytest.raises(UnknownTableError) as caught:
        build_table(platform, "shop.nothing")
    assert caught.value.known == ("shop.daily_revenue", "shop.orders")
    assert not platform.spark.started


def test_a_table_that_a_stream_fills_is_not_built(make_platform: MakePlatform) -> None:
    with pytest.raises(UnknownTableError, match=r"web\.clicks is filled by streams\[0\], not built") as caught:
        build_table(make_platform(STREAM), "web.clicks")
    assert caught.value.producer == "streams[0]"


def test_a_missing_input_is_named_before_spark_starts(make_platform: MakePlatform) -> None:
    platform = make_platform()
    with pytest.raises(NotBuiltError, match=r"dw tables build shop\.orders") as caught:
        build_table(platform, "shop.daily_revenue")
    assert caught.value.table == "shop.orders"
    assert not platform.spark.started


def test_a_handle_is_given_only_for_a_table_that_exists(make_platform: MakePlatform) -> None:
    platform = make_platform()
    platform.lake.table("shop.orders").append(pa.table({"id": [1]}))
    assert built_table(platform, "shop.orders").name == "shop.orders"
    with pytest.raises(InvalidValueError):
        built_table(platform, "../shop")


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_generated_and_derived_tables_are_built_anew_each_time(make_platform: MakePlatform) -> None:
    platform = make_platform()
    first = build_table(platform, "shop.orders")
    assert (first.rows, first.engine.value) == (2_000, "arrow")
    orders = platform.lake.table("shop.orders").snapshot().read_arrow()
    revenue = build_table(platform, "shop.daily_revenue")
    assert revenue.rows == 3
    snapshot = platform.lake.table("shop.daily_revenue").snapshot()
    assert snapshot.partition_by == ("day",)
    rows = snapshot.read_arrow()
    assert sorted(rows["day"].to_pylist()) == [date(2026, 5, 1), date(2026, 5, 2), date(2026, 5, 3)]
    assert sum(rows["revenue"].to_pylist()) == sum(orders["amount"].to_pylist(), Decimal(0))

    again = build_table(platform, "shop.orders")
    assert again.version > first.version
    same = platform.lake.table("shop.orders").snapshot().read_arrow()
    assert same.sort_by("order_id") == orders.sort_by("order_id"), "the same day and seed give the same rows"
    assert isinstance(platform.clock, FakeClock)
    platform.clock.advance(86_400)
    build_table(platform, "shop.orders")
    later = platform.lake.table("shop.orders").snapshot().read_arrow()
    assert (len(later), later == same) == (2_000, False), "days move on"
