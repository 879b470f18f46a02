"""Great Expectations on a real Spark session: what the catalogue promises, and what reports may contain."""

import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dw_platform.quality import (
    CATALOGUE,
    ROW_COUNT,
    DuplicateCheckError,
    Expectation,
    Severity,
    Verdict,
    row_count_check,
    run_expectations,
)
from dw_platform.quality.gx import _observed, _readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("id", "country", "status", "amount", "quantity", "note", "ordered_at", "shipped_at", "day", "copy")

# One passing and one failing check for every kind, as (columns, parameters).
CASES: dict[str, tuple[tuple[tuple[str, ...], dict[str, Any]], tuple[tuple[str, ...], dict[str, Any]]]] = {
    "column_values_to_not_be_null": ((("id",), {}), (("note",), {"mostly": 0.9})),
    "column_values_to_be_null": ((("note",), {"mostly": 0.5}), (("note",), {})),
    "column_values_to_be_unique": ((("id",), {}), (("country",), {})),
    "column_values_to_be_between": (
        (("amount",), {"min_value": 10, "max_value": 19.5, "strict_max": True}),
        (("amount",), {"min_value": 10, "strict_min": True}),
    ),
    "column_values_to_be_in_set": (
        (("country",), {"value_set": ["DE", "NO"]}),
        (("country",), {"value_set": ["DE"]}),
    ),
    "column_values_to_not_be_in_set": (
        (("country",), {"value_set": ["XX"]}),
        (("country",), {"value_set": ["DE"], "mostly": 0.6}),
    ),
    "column_values_to_match_regex": ((("country",), {"regex": "^[A-Z]{2}$"}), (("country",), {"regex": "^D"})),
    "column_values_to_not_match_regex": ((("country",), {"regex": "[0-9]"}), (("country",), {"regex": "^D"})),
    "column_values_to_match_regex_list": (
        (("country",), {"regex_list": ["^D", "^N"]}),
        (("country",), {"regex_list": ["^D", "^N"], "match_on": "all"}),
    ),
    "column_values_to_not_match_regex_list": (
        (("country",), {"regex_list": ["^X"]}),
        (("country",), {"regex_list": ["^X", "O$"]}),
    ),
    "column_value_lengths_to_be_between": (
        (("country",), {"min_value": 2, "max_value": 2}),
        (("country",), {"min_value": 3}),
    ),
    "column_value_lengths_to_equal": ((("country",), {"value": 2}), (("country",), {"value": 3})),
    "column_distinct_values_to_be_in_set": (
        (("country",), {"value_set": ["DE", "NO", "SE"]}),
        (("country",), {"value_set": ["DE"]}),
    ),
    "column_distinct_values_to_contain_set": (
        (("country",), {"value_set": ["DE"]}),
        (("country",), {"value_set": ["SE"]}),
    ),
    "column_distinct_values_to_equal_set": (
        (("country",), {"value_set": ["DE", "NO"]}),
        (("country",), {"value_set": ["DE", "NO", "SE"]}),
    ),
    "column_most_common_value_to_be_in_set": (
        (("country",), {"value_set": ["DE"], "ties_okay": True}),
        (("status",), {"value_set": ["open"]}),
    ),
    "column_unique_value_count_to_be_between": (
        (("country",), {"min_value": 2, "max_value": 2}),
        (("country",), {"min_value": 3}),
    ),
    "column_proportion_of_unique_values_to_be_between": (
        (("id",), {"min_value": 1}),
        (("country",), {"min_value": 0.5}),
    ),
    "column_proportion_of_non_null_values_to_be_between": (
        (("note",), {"min_value": 0.1, "max_value": 0.5}),
        (("note",), {"min_value": 0.9}),
    ),
    "column_min_to_be_between": ((("amount",), {"min_value": 10}), (("amount",), {"min_value": 11})),
    "column_max_to_be_between": ((("amount",), {"max_value": 19}), (("amount",), {"max_value": 18})),
    "column_sum_to_be_between": ((("quantity",), {"min_value": 1}), (("quantity",), {"max_value": 1})),
    "column_mean_to_be_between": ((("amount",), {"min_value": 14, "max_value": 15}), (("amount",), {"min_value": 15})),
    "column_median_to_be_between": ((("amount",), {"max_value": 15}), (("amount",), {"min_value": 16})),
    "column_stdev_to_be_between": ((("quantity",), {"min_value": 0.1}), (("quantity",), {"min_value": 9})),
    "column_to_exist": ((("id",), {}), (("nope",), {})),
    "column_values_to_be_of_type": ((("amount",), {"type_": "DecimalType"}), (("amount",), {"type_": "LongType"})),
    "column_values_to_be_in_type_list": (
        (("amount",), {"type_list": ["DecimalType", "DoubleType"]}),
        (("amount",), {"type_list": ["LongType", "StringType"]}),
    ),
    "column_pair_values_a_to_be_greater_than_b": (
        (("shipped_at", "ordered_at"), {"or_equal": True}),
        (("ordered_at", "shipped_at"), {"mostly": 0.5}),
    ),
    "column_pair_values_to_be_equal": ((("id", "copy"), {}), (("id", "quantity"), {"ignore_row_if": "neither"})),
    "column_pair_values_to_be_in_set": (
        (("country", "status"), {"value_pairs_set": [["DE", "paid"], ["NO", "paid"]]}),
        (("country", "status"), {"value_pairs_set": [["DE", "paid"]]}),
    ),
    "compound_columns_to_be_unique": (
        (("id", "country"), {}),
        (("country", "status"), {"ignore_row_if": "any_value_is_missing"}),
    ),
    "select_column_values_to_be_unique_within_record": ((("country", "status"), {}), (("id", "copy"), {})),
    "multicolumn_sum_to_equal": (
        (("quantity", "copy"), {"sum_total": 1, "mostly": 0.1}),
        (("quantity", "copy"), {"sum_total": 1}),
    ),
    "table_row_count_to_be_between": (((), {"min_value": 10, "max_value": 10}), ((), {"max_value": 9})),
    "table_row_count_to_equal": (((), {"value": 10}), ((), {"value": 9})),
    "table_column_count_to_be_between": (((), {"min_value": 10, "max_value": 10}), ((), {"min_value": 11})),
    "table_column_count_to_equal": (((), {"value": 10}), ((), {"value": 9})),
    "table_columns_to_match_set": ((("copy", "id"), {"exact_match": False}), (("id", "nope"), {})),
    "table_columns_to_match_ordered_list": ((COLUMNS, {}), (tuple(reversed(COLUMNS)), {})),
}


@pytest.fixture(scope="module")
def orders(spark: "SparkSession") -> "DataFrame":
    """Ten orders: ids 0 to 9, countries in turn, amounts 10 to 19, three notes, days on either side of a new year."""
    return spark.range(0, 10, 1, 2).selectExpr(
        "id",
        "IF(id % 2 = 0, 'DE', 'NO') AS country",
        "'paid' AS status",
        "CAST(10 + id AS DECIMAL(12, 2)) AS amount",
        "CAST(id % 3 + 1 AS INT) AS quantity",
        "IF(id < 3, 'secret note', NULL) AS note",
        "TIMESTAMP '2026-01-01 00:00:00' + MAKE_INTERVAL(0, 0, 0, 0, id) AS ordered_at",
        "TIMESTAMP '2026-01-02 00:00:00' + MAKE_INTERVAL(0, 0, 0, 0, id) AS shipped_at",
        "DATE '2026-01-01' AS day",
        "id AS copy",
    )


def check_of(kind: str, index: int) -> Expectation:
    columns, parameters = CASES[kind][index]
    name = f"{kind}_{('passes', 'fails')[index]}"
    return Expectation(kind=kind, columns=columns, parameters=parameters, name=name)


def only(verdicts: list[Verdict]) -> Verdict:
    """The verdict of the single check that was asked for, after the row count."""
    assert verdicts[0].check == ROW_COUNT
    assert len(verdicts) == 2
    return verdicts[1]


def test_every_kind_of_the_catalogue_has_a_passing_and_a_failing_case() -> None:
    assert set(CASES) == set(CATALOGUE)
    for kind in CATALOGUE.values():
        used = {name for _, parameters in CASES[kind.name] for name in parameters}
        assert {entry.name for entry in kind.parameters if entry.required} <= used


@pytest.mark.spark
def test_great_expectations_agrees_with_every_entry_of_the_catalogue(orders: "DataFrame") -> None:
    checks = [check_of(kind, index) for kind in CASES for index in (0, 1)]
    verdicts = run_expectations(orders, "shop.orders", checks)
    assert [verdict.check for verdict in verdicts] == [ROW_COUNT, *(check.name for check in checks)]
    assert {verdict.check: verdict.exception for verdict in verdicts if verdict.exception} == {}
    wrong = [verdict.check for verdict in verdicts[1:] if verdict.passed != verdict.check.endswith("_passes")]
    assert wrong == []


@pytest.mark.spark
def test_every_parameter_of_the_catalogue_exists_in_great_expectations(spark: "SparkSession") -> None:
    from dw_platform.quality.gx import _quiet

    del spark  # only so that this test runs where the library's import is paid for anyway
    with _quiet():
        import great_expectations.expectations as gxe
    for kind in CATALOGUE.values():
        foreign = getattr(gxe, "Expect" + "".join(word.capitalize() for word in kind.name.split("_")))
        known = set(foreign.__fields__)
        assert {parameter.name for parameter in kind.parameters} <= known, kind.name
        assert set(kind.arguments) <= known, kind.name


@pytest.mark.spark
def test_a_failed_check_counts_what_does_not_fit_and_shows_no_row(orders: "DataFrame") -> None:
    check = Expectation.of("column_values_to_be_null", "note", severity=Severity.WARNING)
    verdict = only(run_expectations(orders, "shop.orders", [check]))
    assert (verdict.passed, verdict.severity) == (False, Severity.WARNING)
    assert (verdict.unexpected_count, verdict.unexpected_percent) == (3, 30.0)
    assert verdict.detail == "3 of 10 do not fit (30 %)"
    assert "secret" not in repr(verdict)


@pytest.mark.spark
def test_nulls_are_not_judged_by_checks_of_values(orders: "DataFrame") -> None:
    verdict = only(run_expectations(orders, "t", [Expectation.of("column_values_to_match_regex", "note", regex="^x")]))
    assert verdict.detail == "3 of 3 do not fit (100 %)"


@pytest.mark.spark
def test_a_missing_column_fails_its_own_check_and_says_so(orders: "DataFrame") -> None:
    checks = [
        Expectation.of("column_values_to_not_be_null", "nope"),
        Expectation.of("column_values_to_not_be_null", "id"),
    ]
    _, missing, present = run_expectations(orders, "t", checks)
    assert not missing.passed
    assert missing.exception == 'The column "nope" in BatchData does not exist.'
    assert present.passed
    assert present.exception is None


@pytest.mark.spark
def test_a_check_that_spark_refuses_fails_alone_with_a_readable_reason(
    orders: "DataFrame", capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    checks = [
        Expectation.of("column_values_to_match_regex", "country", regex="[0-9"),
        Expectation.of("column_sum_to_be_between", "country", min_value=1),
        Expectation.of("column_max_to_be_between", "country", min_value=1),
        Expectation.of("column_mean_to_be_between", "amount", min_value=1),
    ]
    capfd.readouterr()
    _, regex, text_sum, text_max, mean = run_expectations(orders, "t", checks)
    assert regex.exception == "Unclosed character class near index 3"
    assert text_sum.exception is not None
    assert text_sum.exception.startswith("[CAST_INVALID_INPUT] The value '…' of the type \"STRING\" cannot be cast")
    assert text_max.exception is not None
    assert "\n" not in text_max.exception
    assert mean.passed
    assert capfd.readouterr().out == ""
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.spark
def test_a_table_without_rows_fails_unless_it_may_be_empty(orders: "DataFrame") -> None:
    empty = orders.limit(0)
    check = Expectation.of("column_values_to_not_be_null", "id")
    rows, not_null = run_expectations(empty, "t", [check])
    assert (rows.passed, rows.observed, rows.blocks) == (False, 0, True)
    assert not_null.passed
    rows, _ = run_expectations(empty, "t", [check], allow_empty=True)
    assert (rows.passed, rows.observed) == (True, 0)


@pytest.mark.spark
def test_a_table_that_may_be_empty_passes_what_judges_values_and_not_what_judges_its_shape(orders: "DataFrame") -> None:
    checks = [check_of(kind, 0) for kind in CASES if CATALOGUE[kind].judges_values]
    checks += [
        Expectation.of("column_values_to_not_be_null", "nope"),
        Expectation.of("column_to_exist", "nope", name="shape"),
        Expectation.of("table_row_count_to_equal", name="rows", value=10),
    ]
    verdicts = run_expectations(orders.limit(0), "t", checks, allow_empty=True)
    assert {verdict.check for verdict in verdicts if not verdict.passed} == {
        "nope_values_to_not_be_null",
        "shape",
        "rows",
    }
    assert all(verdict.observed is None or verdict.observed == verdict.observed for verdict in verdicts)  # no NaN


@pytest.mark.spark
def test_nothing_stays_cached_and_nothing_is_written(
    orders: "DataFrame", spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    cached = spark.sparkContext._jsc.getPersistentRDDs
    before = set(cached())  # Delta keeps the state of tables that other tests have read
    run_expectations(orders, "t", [Expectation.of("column_values_to_be_unique", "id")])
    assert list(tmp_path.iterdir()) == []
    assert set(cached()) <= before
    assert not orders.is_cached


@pytest.mark.spark
def test_all_checks_share_one_validation(orders: "DataFrame", spark: "SparkSession") -> None:
    checks = [
        Expectation.of("column_values_to_be_between", "amount", name=f"at_least_{low}", min_value=low)
        for low in range(8)
    ]

    def jobs(count: int) -> int:
        group = f"quality-{count}"
        spark.sparkContext.setJobGroup(group, group)
        run_expectations(orders, "t", checks[:count])
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))

    assert jobs(8) == jobs(1)


@pytest.mark.spark
@pytest.mark.parametrize("bounds", [("2026-01-01", "2026-01-01T09:00:00"), ("2026-01-01T00:00:00", "2026-01-01 09:00")])
def test_times_mean_utc_whatever_the_zone_of_the_machine(
    orders: "DataFrame", far_east: None, bounds: tuple[str, str]
) -> None:
    del far_east
    low, high = bounds
    checks = [
        Expectation.of("column_values_to_be_between", "ordered_at", min_value=low, max_value=high),
        Expectation.of("column_min_to_be_between", "ordered_at", min_value=low, max_value=low),
        Expectation.of("column_max_to_be_between", "ordered_at", min_value=high, max_value=high),
        Expectation.of("column_values_to_be_between", "day", min_value=low, max_value=low),
        Expectation.of("column_max_to_be_between", "day", min_value=low, max_value=low),
    ]
    verdicts = run_expectations(orders, "t", checks)
    assert [verdict.check for verdict in verdicts if not verdict.passed] == []
    assert verdicts[3].observed == "2026-01-01 09:00:00+00:00"
    too_early = Expectation.of("column_values_to_be_between", "ordered_at", max_value="2026-01-01T08:59:59")
    assert only(run_expectations(orders, "t", [too_early])).unexpected_count == 1


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    assert os.environ.get("TZ") != "Asia/Tokyo"


@pytest.mark.spark
def test_two_threads_can_check_at_the_same_time(orders: "DataFrame") -> None:
    results: dict[int, list[Verdict]] = {}

    def check(low: int) -> None:
        expectation = Expectation.of("column_min_to_be_between", "amount", min_value=low)
        results[low] = run_expectations(orders, f"t{low}", [expectation])

    threads = [threading.Thread(target=check, args=(low,)) for low in (10, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {low: only(verdicts).passed for low, verdicts in results.items()} == {10: True, 11: False}


def test_two_checks_of_one_name_are_refused_before_spark_is_asked() -> None:
    twice = Expectation.of("column_to_exist", "a")
    with pytest.raises(DuplicateCheckError) as caught:
        run_expectations(None, "shop.orders", [twice, twice, row_count_check(allow_empty=True)])
    assert caught.value.names == (ROW_COUNT, "a_to_exist")


def test_observations_become_plain_values() -> None:
    from datetime import datetime
    from decimal import Decimal

    assert _observed(Decimal("1.50")) == 1.5
    assert _observed(math.nan) is None
    assert _observed(["a", 1]) == "a, 1"
    assert _observed(datetime(2026, 1, 1, 8)) == "2026-01-01 08:00:00"  # noqa: DTZ001
    assert _observed(None) is None


@pytest.mark.parametrize(
    ("message", "readable"),
    [
        ("Traceback (most recent call last):\n  File x\nTypeError: bad type", "bad type"),
        ("Error: no such column", "no such column"),
        ("An error occurred.\n: x\nCaused by: java.lang.Foo: y\n\tat z", "java.lang.Foo: y"),
        ("The value 'Jane Doe' is malformed\nmore", "The value '…' is malformed"),
    ],
)
def test_reasons_are_one_line_without_stack_or_row_values(message: str, readable: str) -> None:
    assert _readable(message) == readable
