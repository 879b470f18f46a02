"""The sensor of the databases over several ticks: what it shows, how often, and that it starts no JVM."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from assets.tables import asset_key
from dw_platform.config import load_config
from dw_platform.extract.health_record import read_record
from resources import PlatformResource
from resources import platform as platform_resource
from sensors.databases import SOURCE_CHECK, database_sensors

PLATFORM = """
name: tested
home: {folder}/home
databases:
  - name: shop
    url: sqlite:///{folder}/shop.db
    tables:
      - {{source: orders, table: shop.orders}}
      - {{source: items, table: shop.items}}
  - {{name: idle, url: "sqlite:///{folder}/idle.db"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("shop", "idle"):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    path = tmp_path / "platform.yaml"
    path.write_text(PLATFORM.format(folder=tmp_path))
    platform_resource._opened.cache_clear()
    return path


Tick = Callable[[str | None], dg.SensorResult]


@pytest.fixture
def tick(file: Path, instance: dg.DagsterInstance) -> Tick:
    """One evaluation, whose events reach the instance as the daemon would report them."""
    (sensor,) = database_sensors(load_config(file, environ={}))

    def evaluate(cursor: str | None) -> dg.SensorResult:
        resources = {"platform": PlatformResource(config_path=str(file))}
        result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources))
        assert isinstance(result, dg.SensorResult)
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        return result

    return evaluate


def shown(result: dg.SensorResult) -> dict[str, bool]:
    events = [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert len(events) == len(result.asset_events)
    return {".".join(event.asset_key.path): event.passed for event in events}


def test_every_table_of_a_database_shows_whether_it_can_be_reached_once_a_state(tmp_path: Path, tick: Tick) -> None:
    first = tick(None)
    assert shown(first) == {"shop.orders": True, "shop.items": True}
    assert "shop answers in" in str(first.skip_reason)
    assert "idle answers in" in str(first.skip_reason)
    second = tick(first.cursor)
    assert shown(second) == {}, "nothing is new"
    (tmp_path / "shop.db").unlink()
    third = tick(second.cursor)
    assert shown(third) == {"shop.orders": False, "shop.items": False}
    assert "shop: it failed once (there is no file" in str(third.skip_reason)


def test_a_state_is_shown_again_after_ten_minutes(tick: Tick) -> None:
    cursor = json.loads(tick(None).cursor or "")
    passed, _ = cursor["shop.orders"]
    cursor["shop.orders"] = [passed, "2026-01-01T00:00:00+00:00"]
    assert shown(tick(json.dumps(cursor))) == {"shop.orders": True}


def test_dagster_keeps_it_as_the_check_of_the_asset(tmp_path: Path, tick: Tick, instance: dg.DagsterInstance) -> None:
    (tmp_path / "shop.db").unlink()
    tick(None)
    key = dg.AssetCheckKey(asset_key("shop.orders"), SOURCE_CHECK)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert record.event is not None
    assert record.event.dagster_event is not None
    kept = record.event.dagster_event.asset_check_evaluation_data
    assert (kept.passed, kept.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert kept.metadata["failures"].value == 1
    assert "no file" in str(kept.description)


def test_three_failures_are_an_error_and_leave_the_database_alone(tmp_path: Path, file: Path, tick: Tick) -> None:
    (tmp_path / "shop.db").unlink()
    first = tick(None)
    second = tick(first.cursor)
    assert shown(second) == {}
    event = tick(second.cursor).asset_events[0]
    assert isinstance(event, dg.AssetCheckEvaluation)
    assert event.severity is dg.AssetCheckSeverity.ERROR
    assert "tried again in" in str(event.description)
    platform = platform_resource._opened(str(file))
    record = read_record(platform.store, "shop")
    assert record is not None
    assert (record.failures, record.retry_at is not None) == (3, True)
    assert platform.lake.table("ops.health").snapshot().row_count == 2
    assert not platform.spark.started


def test_a_platform_without_databases_has_no_sensor_for_them(tmp_path: Path) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text("name: plain\n")
    assert database_sensors(load_config(plain, environ={})) == []
