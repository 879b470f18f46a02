"""Whole runs of the definitions on a real instance: what a person sees in the UI afterwards."""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

import assets.tables
from dw_platform.foundation import InvalidValueError
from dw_platform.lake.lock import TableBusyError
from dw_platform.lake.reports import CommitReport
from dw_platform.pipelines import Platform
from dw_platform.pipelines.build import build_table
from dw_platform.pipelines.overview import check_overview

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("shared_spark")]

ORDERS = dg.AssetKey(["shop", "orders"])
REVENUE = dg.AssetKey(["shop", "daily_revenue"])


def run_refresh(
    file: Path, definitions_of: Callable[[Path], dg.Definitions], instance: dg.DagsterInstance
) -> dg.ExecuteInProcessResult:
    job = definitions_of(file).resolve_job_def("refresh")
    return job.execute_in_process(instance=instance, raise_on_error=False)


def test_refresh_builds_and_checks_every_table(
    make_platform: Callable[..., Path],
    definitions_of: Callable[[Path], dg.Definitions],
    instance: dg.DagsterInstance,
) -> None:
    file = make_platform()
    result = run_refresh(file, definitions_of, instance)
    assert result.success
    shown = {event.asset_key: event.materialization.metadata for event in result.get_asset_materialization_events()}
    assert shown[ORDERS]["dagster/row_count"].value == 2_000
    assert shown[ORDERS]["writer"].value == "arrow"
    columns = shown[ORDERS]["dagster/column_schema"].value.columns
    assert [column.name for column in columns][:2] == ["order_id", "customer_id"]
    assert shown[REVENUE]["dagster/row_count"].value == 3
    verdicts = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert verdicts["order_id_values_to_be_unique"]
    assert not verdicts["country_values_to_be_in_set"], "a warning is recorded, and the run goes on"
    with Platform.open(file, environ={}) as platform:
        (revenue, orders) = check_overview(platform)
    assert (orders.table, orders.failed) == ("shop.orders", ("country_values_to_be_in_set",))
    assert (revenue.table, revenue.failed) == ("shop.daily_revenue", ())


def test_a_failed_critical_check_stops_what_is_derived_from_the_table(
    make_platform: Callable[..., Path],
    definitions_of: Callable[[Path], dg.Definitions],
    instance: dg.DagsterInstance,
) -> None:
    result = run_refresh(make_platform(most=2), definitions_of, instance)
    assert not result.success
    built = {event.asset_key for event in result.get_asset_materialization_events()}
    assert built == {ORDERS}
    failed = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert "quantity_values_to_be_between" in {check.check_name for check in failed}


def test_a_derived_table_follows_its_input_unless_a_blocking_check_failed(
    make_platform: Callable[..., Path],
    definitions_of: Callable[[Path], dg.Definitions],
    instance: dg.DagsterInstance,
) -> None:
    bad = make_platform(most=2)
    assert not run_refresh(bad, definitions_of, instance).success
    both = dg.AssetSelection.assets(ORDERS, REVENUE)
    ticked = dg.evaluate_automation_conditions(definitions_of(bad), instance=instance, asset_selection=both)
    assert ticked.get_num_requested(REVENUE) == 0
    good = make_platform()
    orders = dg.AssetSelection.assets(ORDERS)
    job = dg.define_asset_job("orders_only", selection=orders)
    definitions = dg.Definitions.merge(definitions_of(good), dg.Definitions(jobs=[job]))
    assert definitions.resolve_job_def("orders_only").execute_in_process(instance=instance).success
    followed = dg.evaluate_automation_conditions(
        definitions_of(good), instance=instance, asset_selection=both, cursor=ticked.cursor
    )
    assert followed.get_num_requested(REVENUE) == 1


def test_one_check_can_be_run_alone(
    make_platform: Callable[..., Path],
    definitions_of: Callable[[Path], dg.Definitions],
    instance: dg.DagsterInstance,
) -> None:
    file = make_platform()
    assert run_refresh(file, definitions_of, instance).success
    key = dg.AssetCheckKey(ORDERS, "order_id_values_to_be_unique")
    job = dg.define_asset_job("one_check", selection=dg.AssetSelection.checks(key))
    definitions = dg.Definitions.merge(definitions_of(file), dg.Definitions(jobs=[job]))
    result = definitions.resolve_job_def("one_check").execute_in_process(instance=instance)
    assert [check.check_name for check in result.get_asset_check_evaluations()] == ["order_id_values_to_be_unique"]


def test_maintenance_goes_over_every_table(
    make_platform: Callable[..., Path],
    definitions_of: Callable[[Path], dg.Definitions],
    instance: dg.DagsterInstance,
) -> None:
    file = make_platform(rows=120_000)  # three chunks, so three files to join
    assert run_refresh(file, definitions_of, instance).success
    job = definitions_of(file).resolve_job_def("maintain_tables")
    assert job.execute_in_process(instance=instance).success
    with Platform.open(file, environ={}) as platform:
        snapshot = platform.lake.table("shop.orders").snapshot()
        assert (snapshot.file_count, snapshot.row_count) == (1, 120_000)


def test_a_step_is_retried_only_if_waiting_can_help(
    make_platform: Callable[..., Path],
    definitions_of: Callable[[Path], dg.Definitions],
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[Exception] = [TableBusyError("shop.orders", 1.0)]

    def fail_first(platform: Platform, name: str) -> CommitReport:
        if failures:
            raise failures.pop()
        return build_table(platform, name)

    monkeypatch.setattr(assets.tables, "build_table", fail_first)
    monkeypatch.setattr(dg.RetryRequested, "seconds_to_wait", property(lambda _: 0, lambda *_: None), raising=False)
    file = make_platform()
    assert run_refresh(file, definitions_of, instance).success
    failures.append(InvalidValueError("rows", 0, "at least 1"))
    permanent = run_refresh(file, definitions_of, instance)
    assert not permanent.success
    assert not [event for event in permanent.all_events if event.is_step_up_for_retry]
