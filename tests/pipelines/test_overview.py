"""What is there, read from logs alone."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from dw_platform.foundation import FakeClock
from dw_platform.pipelines import Platform
from dw_platform.pipelines.overview import (
    TableOverview,
    UnreadableTable,
    check_overview,
    tables_overview,
    unbuilt_tables,
)
from dw_platform.pipelines.validate import _record
from dw_platform.quality import QualityReport, Severity, Verdict
from tests.pipelines.conftest import MakePlatform

UNIQUE, BETWEEN, IN_SET = "order_id_values_to_be_unique", "quantity_values_to_be_between", "country_values_to_be_in_set"


def _judge(platform: Platform, version: int, table: str = "shop.orders", **passed: bool) -> None:
    verdicts = tuple(
        Verdict(
            check=name, table=table, passed=good, severity=Severity.WARNING if name == IN_SET else Severity.CRITICAL
        )
        for name, good in passed.items()
    )
    _record(platform, QualityReport(table=table, version=version, verdicts=verdicts, duration_s=0.1))
    assert isinstance(platform.clock, FakeClock)
    platform.clock.advance(60)


def test_an_empty_lake_has_nothing_to_show(make_platform: MakePlatform) -> None:
    platform = make_platform()
    assert tables_overview(platform) == []
    assert check_overview(platform) == []
    assert unbuilt_tables(platform) == ["shop.orders", "shop.daily_revenue"]


def test_a_table_is_described_by_its_log(make_platform: MakePlatform) -> None:
    platform = make_platform()
    platform.lake.table("shop.orders").append(pa.table({"order_id": [1, 2, 3]}))
    platform.lake.table("shop.orders").append(pa.table({"order_id": [4]}))
    (table,) = tables_overview(platform)
    assert isinstance(table, TableOverview)
    assert (table.name, table.rows, table.files, table.version, table.writer) == ("shop.orders", 4, 2, 2, "arrow")
    assert table.as_json()["changed_at"] == table.changed_at.isoformat()
    assert unbuilt_tables(platform) == ["shop.daily_revenue"]


def test_an_unreadable_table_stands_beside_the_others(make_platform: MakePlatform) -> None:
    platform = make_platform()
    for name in ("shop.bad", "shop.good"):
        platform.lake.table(name).append(pa.table({"id": [1]}))
    log = Path(platform.lake.location("shop.bad").uri) / "_delta_log" / "00000000000000000001.json"
    log.write_text('{"add": {"path":')
    bad, good = tables_overview(platform)
    assert isinstance(bad, UnreadableTable)
    assert bad.as_json()["error"].startswith("shop.bad: ")
    assert (good.name, isinstance(good, TableOverview)) == ("shop.good", True)


def test_the_newest_verdict_of_each_check_counts(make_platform: MakePlatform) -> None:
    platform = make_platform()
    began = platform.clock.now()
    _judge(platform, 3, **{"row_count": True, UNIQUE: False, BETWEEN: False, IN_SET: False})
    _judge(platform, 4, **{UNIQUE: True})
    (entry,) = check_overview(platform)
    assert (entry.table, entry.passed, entry.failed) == ("shop.orders", 2, (IN_SET, BETWEEN))
    assert entry.blocking == (BETWEEN,)
    assert entry.version == 3, "the others were not looked at since"
    assert entry.checked_at == began + timedelta(seconds=60)


def test_checks_that_the_file_no_longer_has_are_left_out(make_platform: MakePlatform) -> None:
    platform = make_platform()
    _judge(platform, 1, row_count=True, gone=False)
    _judge(platform, 1, "shop.forgotten", row_count=False)
    (entry,) = check_overview(platform)
    assert (entry.table, entry.passed, entry.failed) == ("shop.orders", 1, ())
