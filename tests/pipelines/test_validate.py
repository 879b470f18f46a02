"""Checking a table and keeping what was found."""

import pyarrow as pa
import pytest

from dw_platform.pipelines import Platform
from dw_platform.pipelines.build import NotBuiltError
from dw_platform.pipelines.validate import (
    RESULTS_TABLE,
    NoChecksError,
    UnknownCheckError,
    check_table,
    known_checks,
)
from tests.pipelines.conftest import MakePlatform

UNIQUE, BETWEEN, IN_SET = "order_id_values_to_be_unique", "quantity_values_to_be_between", "country_values_to_be_in_set"


def test_a_table_without_checks_is_refused_with_those_that_have_some(make_platform: MakePlatform) -> None:
    platform = make_platform()
    with pytest.raises(NoChecksError, match="Add it under `quality`") as caught:
        check_table(platform, "shop.daily_revenue")
    assert caught.value.checked == ("shop.orders",)
    assert not platform.spark.started


def test_a_table_that_was_never_built_is_refused_before_spark_starts(make_platform: MakePlatform) -> None:
    platform = make_platform()
    with pytest.raises(NotBuiltError):
        check_table(platform, "shop.orders")
    assert not platform.spark.started
    assert platform.table_names() == []


def test_a_check_that_does_not_exist_is_refused(make_platform: MakePlatform) -> None:
    with pytest.raises(UnknownCheckError) as caught:
        check_table(make_platform(), "shop.orders", only={UNIQUE, "nonsense"})
    assert caught.value.unknown == ("nonsense",)
    assert caught.value.known == ("row_count", UNIQUE, BETWEEN, IN_SET)


def test_every_table_is_checked_for_rows_first(make_platform: MakePlatform) -> None:
    (declared,) = make_platform().config.quality
    assert known_checks(declared)[0] == "row_count"


def _recorded(platform: Platform) -> list[dict[str, object]]:
    columns = ["checked_at", "table_name", "table_version", "check_name", "passed", "severity", "unexpected_count"]
    rows = platform.lake.table(RESULTS_TABLE).snapshot().read_arrow(columns).to_pylist()
    return sorted(rows, key=lambda row: (row["table_version"], row["check_name"]))


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_verdicts_are_recorded_with_the_version_they_are_about(make_platform: MakePlatform) -> None:
    platform = make_platform()
    table = platform.lake.table("shop.orders")
    table.append(pa.table({"order_id": [1, 2], "quantity": pa.array([1, 2], pa.int32()), "country": ["DE", "DE"]}))
    good = check_table(platform, "shop.orders")
    assert (good.passed, good.version, len(good.verdicts)) == (True, 1, 4)

    table.append(pa.table({"order_id": [2], "quantity": pa.array([9], pa.int32()), "country": ["FR"]}))
    bad = check_table(platform, "shop.orders", only={BETWEEN, IN_SET})
    assert (bad.passed, bad.version) == (False, 2)
    assert [verdict.check for verdict in bad.verdicts] == [BETWEEN, IN_SET]
    assert [verdict.check for verdict in bad.blocking_failures] == [BETWEEN]

    recorded = _recorded(platform)
    assert {row["checked_at"] for row in recorded} == {platform.clock.now()}
    assert [(row["table_version"], row["check_name"], row["passed"]) for row in recorded] == [
        (1, IN_SET, True),
        (1, UNIQUE, True),
        (1, BETWEEN, True),
        (1, "row_count", True),
        (2, IN_SET, False),
        (2, BETWEEN, False),
    ]
    assert recorded[-1]["unexpected_count"] == 1
