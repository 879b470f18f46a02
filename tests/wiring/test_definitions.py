import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from resources import LakeSparkResource, PlatformResource

DefinitionsOf = Callable[[Path], dg.Definitions]


def test_every_table_is_an_asset_with_its_place_in_the_catalog(
    make_platform: Callable[..., Path], definitions_of: DefinitionsOf
) -> None:
    graph = definitions_of(make_platform()).resolve_asset_graph()
    orders, revenue = dg.AssetKey(["shop", "orders"]), dg.AssetKey(["shop", "daily_revenue"])
    assert {orders, revenue} == set(graph.get_all_asset_keys())
    assert graph.get(revenue).parent_keys == {orders}
    assert graph.get(orders).group_name == "shop"
    assert graph.get(orders).owners == ["team:data"]
    assert graph.get(orders).kinds == {"delta", "arrow"}
    assert graph.get(orders).description == "One row for each order."
    assert "FROM {shop.orders}" in graph.get(revenue).metadata["query"].value


def test_critical_checks_block_and_warnings_do_not(
    make_platform: Callable[..., Path], definitions_of: DefinitionsOf
) -> None:
    graph = definitions_of(make_platform()).resolve_asset_graph()
    blocking = {key.name: graph.get_check_spec(key).blocking for key in graph.asset_check_keys}
    assert blocking["row_count"]
    assert blocking["order_id_values_to_be_unique"]
    assert not blocking["country_values_to_be_in_set"]


def test_a_cron_line_becomes_a_running_schedule(
    make_platform: Callable[..., Path], definitions_of: DefinitionsOf
) -> None:
    (schedule,) = definitions_of(make_platform()).schedules or ()
    assert (schedule.name, schedule.cron_schedule) == ("shop_daily_revenue_schedule", "5 * * * *")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


def test_a_query_over_a_table_of_a_database_has_that_as_its_parent(
    tmp_path: Path, definitions_of: DefinitionsOf
) -> None:
    file = tmp_path / "platform.yaml"
    file.write_text(
        "name: tested\n"
        "databases: [{name: web, url: 'sqlite:///web.db', tables: [{source: clicks, table: web.clicks}]}]\n"
        "lake: {tables: [{name: web.daily, sql: 'SELECT count(*) AS n FROM {web.clicks}'}]}\n"
    )
    graph = definitions_of(file).resolve_asset_graph()
    clicks = dg.AssetKey(["web", "clicks"])
    assert graph.get(clicks).is_executable
    assert graph.get(dg.AssetKey(["web", "daily"])).parent_keys == {clicks}


def test_the_definitions_load_without_a_jvm_and_without_great_expectations(
    make_platform: Callable[..., Path], tmp_path: Path
) -> None:
    program = (
        "import sys, definitions; definitions.defs.resolve_asset_graph();"
        "from pyspark import SparkContext;"
        "assert SparkContext._gateway is None; assert 'great_expectations' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"DW_CONFIG": str(make_platform()), "HOME": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_resources_reveal_no_secret(tmp_path: Path, definitions_of: DefinitionsOf) -> None:
    file = tmp_path / "platform.yaml"
    file.write_text("name: tested\nstore: {url: 'postgresql://dw:hunter2@db/dw'}\n")
    resources = definitions_of(file).resources or {}
    assert isinstance(resources["platform"], PlatformResource)
    assert "hunter2" not in repr(resources)


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_code_written_for_dagster_pyspark_gets_the_lakes_own_session(make_platform: Callable[..., Path]) -> None:
    platform = PlatformResource(config_path=str(make_platform()))

    @dg.asset
    def counted(pyspark: LakeSparkResource) -> int:
        return pyspark.spark_session.range(3).count()

    result = dg.materialize([counted], resources={"pyspark": LakeSparkResource(platform=platform)})
    assert result.output_for_node("counted") == 3
