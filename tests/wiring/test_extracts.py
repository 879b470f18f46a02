"""Tables of databases in Dagster: assets, schedules that leave a failing database alone, the check of the source."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dw_platform.extract.errors import DatabaseUnavailableError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.health import record_outcome
from resources import platform as platform_resource

PEOPLE, PETS = dg.AssetKey(["crm", "people"]), dg.AssetKey(["crm", "pets"])
PLATFORM = """
name: tested
home: home
databases:
  - name: crm
    url: sqlite:///crm.db
    tables:
      - source: people
        table: crm.people
        description: Who buys.
        owners: [team:crm]
        mode: incremental
        cursor: seen
        schedule: "0 * * * *"
        reconcile: "@daily"
        freshness: 1d
      - {source: pets, table: crm.pets}
"""

DefinitionsOf = Callable[[Path], dg.Definitions]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "platform.yaml"
    path.write_text(PLATFORM)
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE people (id integer PRIMARY KEY, seen timestamp)")
        database.executemany("INSERT INTO people VALUES (?, ?)", [(n, f"2026-01-01 00:00:{n:02d}") for n in range(50)])
        database.execute("CREATE TABLE pets (id integer PRIMARY KEY)")
        database.commit()
    platform_resource._opened.cache_clear()
    return path


@pytest.fixture
def platform(file: Path) -> Iterator[Platform]:
    with Platform.open(file, environ={}) as opened:
        yield opened


def test_a_table_of_a_database_is_an_asset_with_its_pool_and_freshness(
    file: Path, definitions_of: DefinitionsOf
) -> None:
    graph = definitions_of(file).resolve_asset_graph()
    node = graph.get(PEOPLE)
    assert (node.description, node.group_name, node.owners, node.pools) == (
        "Who buys.", "crm", ["team:crm"], {"extract"}
    )  # fmt: skip
    assert graph.get(PETS).description == "Copied from pets of the database crm."
    assert {(key.asset_key, key.name) for key in graph.asset_check_keys} == {
        (PEOPLE, "source_reachable"), (PETS, "source_reachable")
    }  # fmt: skip
    assert "database_health" in {sensor.name for sensor in definitions_of(file).sensors or ()}


def test_a_run_brings_the_rows_and_its_numbers(
    file: Path, platform: Platform, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    job = definitions_of(file).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance, asset_selection=[PEOPLE]).success
    assert platform.lake.table("crm.people").snapshot().row_count == 50
    with closing(sqlite3.connect(file.with_name("crm.db"))) as database:
        database.execute("DELETE FROM people WHERE id < 5")
        database.execute("INSERT INTO people VALUES (100, '2026-01-02 00:00:00')")
        database.commit()
    result = job.execute_in_process(
        instance=instance,
        asset_selection=[PEOPLE],
        run_config={"ops": {"crm__people": {"config": {"reconcile": True}}}},
    )
    (event,) = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    told = {name: metadata[name].value for name in ("mode", "deleted", "written", "position")}
    assert told == {"mode": "reconcile", "deleted": 5, "written": 1, "position": "2026-01-02 00:00:00"}
    assert platform.lake.table("crm.people").snapshot().row_count == 46
    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("source_reachable", True)


def test_a_schedule_asks_for_runs_until_the_database_has_failed_three_times(
    file: Path, platform: Platform, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    definitions = definitions_of(file)
    extract = definitions.resolve_schedule_def("crm_people_extract_schedule")
    reconcile = definitions.resolve_schedule_def("crm_people_reconcile_schedule")
    assert (extract.cron_schedule, reconcile.cron_schedule) == ("0 * * * *", "@daily")

    def evaluated(schedule: dg.ScheduleDefinition) -> Any:
        with dg.build_schedule_context(
            instance=instance,
            scheduled_execution_time=datetime.fromisoformat("2026-01-01T00:00:00+00:00"),
            resources={"platform": (definitions.resources or {})["platform"]},
        ) as context:
            return schedule.evaluate_tick(context)

    (request,) = evaluated(reconcile).run_requests or ()
    assert request.run_config == {"ops": {"crm__people": {"config": {"reconcile": True}}}}
    for _ in range(3):
        assert evaluated(extract).run_requests
        record_outcome(platform, "crm", DatabaseUnavailableError("crm", "it is away"))
    skipped = evaluated(extract)
    assert not skipped.run_requests
    assert "crm is left alone" in (skipped.skip_message or "")
    record_outcome(platform, "crm", None)
    assert evaluated(extract).run_requests
