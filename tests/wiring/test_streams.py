"""Streams in Dagster: their assets, the sensor over several ticks, and a whole run that the sensor asked for."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from dw_platform.config import load_config
from dw_platform.log import Records
from dw_platform.pipelines import Platform
from dw_platform.pipelines.streams import open_streams
from resources import platform as platform_resource
from sensors.streams import stream_sensors

CLICKS, REJECTED = dg.AssetKey(["web", "clicks"]), dg.AssetKey(["web", "clicks_rejected"])
PLATFORM = """
name: tested
home: {home}
streams:
  - name: clicks
    table: web.clicks
    description: One row for each click.
    owners: [team:web]
    partitions: 2
    key: visitor
    format: json
    columns: {{visitor: bigint, page: string}}
    max_rejected: 50%
    freshness: 1h
  - {{name: nightly, table: web.nightly, schedule: "0 3 * * *"}}
"""

DefinitionsOf = Callable[[Path], dg.Definitions]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "platform.yaml"
    path.write_text(PLATFORM.format(home=tmp_path / "home"))
    platform_resource._opened.cache_clear()
    return path


@pytest.fixture
def platform(file: Path) -> Iterator[Platform]:
    with Platform.open(file, environ={}) as opened:
        yield opened


def publish(platform: Platform, *lines: bytes) -> None:
    with open_streams(platform) as streams:
        streams.publish_sync("clicks", Records(list(lines), keys=[b"1"] * len(lines)))


def tick(
    file: Path, definitions_of: DefinitionsOf, instance: dg.DagsterInstance, cursor: str | None
) -> dg.SensorResult:
    definitions = definitions_of(file)
    (sensor,) = stream_sensors(load_config(file, environ={}))
    resources = {"platform": (definitions.resources or {})["platform"]}
    result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources))
    assert isinstance(result, dg.SensorResult)
    return result


def test_a_stream_is_an_asset_with_its_pool_and_its_freshness(file: Path, definitions_of: DefinitionsOf) -> None:
    definitions = definitions_of(file)
    node = definitions.resolve_asset_graph().get(CLICKS)
    assert node.is_executable
    assert (node.description, node.group_name, node.owners) == ("One row for each click.", "web", ["team:web"])
    assert node.pools == {"ingest"}
    assert node.freshness_policy == dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1))
    assert definitions.resolve_asset_graph().get(REJECTED).parent_keys == {CLICKS}


def test_a_stream_with_a_schedule_has_that_and_not_the_sensor(file: Path, definitions_of: DefinitionsOf) -> None:
    definitions = definitions_of(file)
    (schedule,) = definitions.schedules or ()
    assert (schedule.name, schedule.cron_schedule) == ("nightly_stream_schedule", "0 3 * * *")
    names = {sensor.name for sensor in definitions.sensors or ()}
    assert names == {"follow_inputs", "stream_lag"}


def test_a_platform_without_streams_has_no_sensor_for_them(tmp_path: Path, definitions_of: DefinitionsOf) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text("name: plain\n")
    assert {sensor.name for sensor in definitions_of(plain).sensors or ()} == {"follow_inputs"}


def test_a_tick_asks_for_a_run_only_while_something_waits_and_none_is_under_way(
    file: Path, platform: Platform, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    quiet = tick(file, definitions_of, instance, None)
    assert not quiet.run_requests
    publish(platform, b'{"visitor": 1, "page": "/"}', b'{"visitor": 1, "page": "/cart"}')
    behind = tick(file, definitions_of, instance, quiet.cursor)
    (request,) = behind.run_requests or ()
    assert request.asset_selection == [CLICKS]
    assert (request.tags["dw/stream"], request.tags["dagster/priority"]) == ("clicks", "10")
    assert json.loads(behind.cursor or "")["clicks"] == 2
    assert [event.metadata["lag"].value for event in behind.asset_events] == [2]
    running = instance.create_run_for_job(
        definitions_of(file).resolve_job_def("refresh"), tags=request.tags, status=dg.DagsterRunStatus.STARTED
    )
    waiting = tick(file, definitions_of, instance, behind.cursor)
    assert not waiting.run_requests
    assert "a run is queued or running" in str(waiting.skip_reason)
    instance.report_run_failed(running)
    again = tick(file, definitions_of, instance, waiting.cursor)
    assert again.run_requests, "a run that failed has moved nothing, so it is asked for again"


def test_a_broker_that_is_down_is_told_and_asks_for_nothing(
    tmp_path: Path, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    file = tmp_path / "platform.yaml"
    file.write_text(
        f"name: tested\nhome: {tmp_path / 'home'}\n"
        "broker: {kind: kafka, address: '127.0.0.1:1'}\n"
        "streams: [{name: clicks, table: web.clicks}, {name: views, table: web.views}]\n"
    )
    platform_resource._opened.cache_clear()
    result = tick(file, definitions_of, instance, None)
    assert not result.run_requests
    assert "clicks: The kafka broker at 127.0.0.1:1 is not available" in str(result.skip_reason)
    assert "views: its broker is that of clicks" in str(result.skip_reason)


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_the_run_brings_everything_in_once_and_shows_its_numbers(
    file: Path, platform: Platform, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    lines = [json.dumps({"visitor": number, "page": "/"}).encode() for number in range(50)]
    publish(platform, *lines, b"half a line {")
    definitions = definitions_of(file)
    job = dg.define_asset_job("clicks_only", selection=dg.AssetSelection.assets(CLICKS))
    merged = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    first = merged.resolve_job_def("clicks_only").execute_in_process(instance=instance)
    (event,) = first.get_asset_materialization_events()
    shown = {name: value.value for name, value in event.materialization.metadata.items()}
    assert (shown["rows"], shown["rejected"], shown["lag"], shown["commits"]) == (50, 1, 0, 1)
    table = event.materialization.metadata["offsets"]
    assert isinstance(table, dg.TableMetadataValue)
    assert {record.data["next_offset"] for record in table.records} == {51, 0}
    names = [column.name for column in shown["dagster/column_schema"].columns]
    assert names == ["visitor", "page", "_partition", "_offset", "_timestamp"]
    second = merged.resolve_job_def("clicks_only").execute_in_process(instance=instance)
    (event,) = second.get_asset_materialization_events()
    assert event.materialization.metadata["rows"].value == 0
    assert platform.lake.table("web.clicks").snapshot().row_count == 50
    assert platform.lake.table("web.clicks_rejected").snapshot().row_count == 1
