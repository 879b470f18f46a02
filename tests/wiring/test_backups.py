"""Backups in Dagster: assets and schedules, a recovery that runs only after a crash, a pool that follows the disks."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from assets.backups import BACKUP_POOL, RECOVER_JOB
from dw_platform.backup.delta_errors import FilesMissingError
from dw_platform.config import load_config
from dw_platform.fileio import CounterReading, DiskCounters, real_disks
from dw_platform.foundation import FakeClock
from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup import back_up_table
from dw_platform.pipelines.backup_care import RepositoryNotHealthyError
from dw_platform.pipelines.backup_jobs import recorded_jobs
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.limits import effective_backup_limits, limit_control
from dw_platform.scaling.concurrency import ConcurrencyPolicy
from resources import PlatformResource, PoolLimits
from resources import platform as platform_resource
from sensors.backups import backup_sensors
from tests.pipelines.backups import die_while, shop_text
from tests.store.workers import PROCESSES

ORDERS, ITEMS = dg.AssetKey(["shop", "orders"]), dg.AssetKey(["shop", "items"])
BACKUP = dg.AssetKey(["backups", "nightly", "shop", "orders"])
DefinitionsOf = Callable[[Path], dg.Definitions]
TEXT = shop_text(
    backups='prune: "@daily"\n  verify: {schedule: "0 5 * * *", share: 20%}', policy='schedule: "0 2 * * *"'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "platform.yaml"
    path.write_text(TEXT)
    platform_resource._opened.cache_clear()
    return path


@pytest.fixture
def platform(file: Path) -> Iterator[Platform]:
    """The platform that the resource of this process opens; its orders have a file."""
    with platform_resource._opened(str(file)) as opened:
        opened.lake.table("shop.orders").append(pa.table({"id": [1]}))
        yield opened


def node(definitions: dg.Definitions, key: dg.AssetKey) -> Any:
    return definitions.resolve_asset_graph().get(key)


def test_each_table_of_a_policy_has_its_backup_as_an_asset_behind_it(file: Path, definitions_of: DefinitionsOf) -> None:
    definitions = definitions_of(file)
    found = node(definitions, BACKUP)
    assert (found.group_name, found.pools, found.parent_keys) == ("backups", {BACKUP_POOL}, {ORDERS})
    assert "dw backup restore shop.orders" in str(found.description)
    keys = {key for key in definitions.resolve_asset_graph().get_all_asset_keys() if key.path[0] == "backups"}
    assert len(keys) == 3


def test_schedules_back_up_prune_and_verify_below_everything_else(file: Path, definitions_of: DefinitionsOf) -> None:
    definitions = definitions_of(file)
    crons = {}
    for name in ("nightly_backup_schedule", "backup_prune_schedule", "backup_verify_schedule"):
        schedule = definitions.resolve_schedule_def(name)
        crons[name] = schedule.cron_schedule
        (request,) = schedule.evaluate_tick(dg.build_schedule_context()).run_requests or ()
        assert request.tags["dagster/priority"] == "-5"
    assert list(crons.values()) == ["0 2 * * *", "@daily", "0 5 * * *"]
    assert request.run_config == {"ops": {"verify_all_backups": {"config": {"share": 0.2}}}}


def test_a_platform_without_policies_has_no_sensor_for_backups(tmp_path: Path, definitions_of: DefinitionsOf) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text("name: plain\n")
    assert backup_sensors(load_config(plain, environ={})) == []
    definitions_of(plain).resolve_asset_graph()


def test_a_materialised_backup_shows_its_numbers_and_full_on_request(
    file: Path, platform: Platform, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    job = definitions_of(file).resolve_implicit_global_asset_job_def()

    def shown(**config: Any) -> dict[str, Any]:
        run_config = {"ops": {"backups__nightly__shop__orders": {"config": config}}}
        result = job.execute_in_process(instance=instance, asset_selection=[BACKUP], run_config=run_config)
        (event,) = result.get_asset_materialization_events()
        return {name: value.value for name, value in event.materialization.metadata.items()}

    first = shown()
    (header,) = open_repository(platform).manifests.headers().headers
    assert (first["backup"], first["kind"], first["why"]) == (
        header.backup_id,
        "full",
        "there is no backup to stand on",
    )
    assert (first["delta_version"], first["files"], first["copied_files"]) == (1, 3, 3)
    assert first["bytes"] == first["copied_bytes"] > first["stored_bytes"] > 0
    assert shown()["unchanged"] is True
    again = shown(full=True)
    assert (again["unchanged"], again["kind"], again["why"]) == (False, "full", "a full one was asked for")


def test_pruning_and_verifying_have_nothing_to_do_before_the_first_backup(
    file: Path, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    definitions = definitions_of(file)
    for name in ("verify_backups", "prune_backups"):
        assert definitions.resolve_job_def(name).execute_in_process(instance=instance).success


def test_a_verification_fails_by_name_when_a_backup_does_not_restore(
    file: Path, platform: Platform, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    report = back_up_table(platform, "nightly", "shop.orders")
    definitions = definitions_of(file)
    for name in ("verify_backups", "prune_backups"):
        assert definitions.resolve_job_def(name).execute_in_process(instance=instance).success
    for path in (open_repository(platform).place.local / "objects").rglob("*.zst"):
        path.unlink()
    with pytest.raises(RepositoryNotHealthyError) as broken:
        definitions.resolve_job_def("verify_backups").execute_in_process(instance=instance)
    assert broken.value.broken == {report.backup_id: "shop.orders"}


# Recovery


def sensor_named(file: Path, name: str, **options: Any) -> dg.SensorDefinition:
    return next(each for each in backup_sensors(load_config(file, environ={}), **options) if each.name == name)


def evaluated(sensor: dg.SensorDefinition, file: Path, instance: dg.DagsterInstance, cursor: str | None = None) -> Any:
    resources = {"platform": PlatformResource(config_path=str(file))}
    return sensor(dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources))


@pytest.mark.crash
def test_the_recovery_asks_for_one_run_after_a_crash_and_for_nothing_otherwise(
    file: Path, platform: Platform, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    sensor = sensor_named(file, "backup_recovery")

    def tick() -> Any:
        return evaluated(sensor, file, instance)

    assert isinstance(tick(), dg.SkipReason)
    seen: list[Any] = []
    back_up_table(platform, "nightly", "shop.orders", on_progress=lambda _: seen.append(tick()))
    assert seen
    assert all(isinstance(each, dg.SkipReason) for each in seen), "what runs is left alone"
    platform.lake.table("shop.orders").append(pa.table({"id": [2]}))
    process = PROCESSES.Process(target=die_while, args=("backup", file.parent))
    process.start()
    process.join(120)
    (job,) = recorded_jobs(platform)
    requests = [tick(), tick()]
    assert {request.run_key for request in requests} == {f"{RECOVER_JOB}:{job.id}:1"}, "one key, so one run"
    assert requests[0].tags["dw/reason"] == "backup of shop.orders"
    assert definitions_of(file).resolve_job_def(RECOVER_JOB).execute_in_process(instance=instance).success
    assert recorded_jobs(platform) == []
    assert isinstance(tick(), dg.SkipReason)
    assert len(open_repository(platform).manifests.headers().headers) == 2
    assert not platform.spark.started


def test_what_fails_again_and_again_is_left_to_a_person(
    file: Path, platform: Platform, definitions_of: DefinitionsOf, instance: dg.DagsterInstance
) -> None:
    sensor, job = sensor_named(file, "backup_recovery"), definitions_of(file).resolve_job_def(RECOVER_JOB)
    for path in platform.lake.table("shop.orders").location.local.glob("*.parquet"):
        path.unlink()
    with pytest.raises(FilesMissingError):
        back_up_table(platform, "nightly", "shop.orders")
    keys = list[str]()
    while isinstance(request := evaluated(sensor, file, instance), dg.RunRequest):
        assert request.run_key not in keys, "Dagster starts no second run for a key"
        keys.append(str(request.run_key))
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success
    assert len(keys) == 4
    assert "backup of shop.orders did not end in 5 attempts; `dw backup recover` tries again" in str(request)


# Concurrency


class Disk:
    """Counters of one disk that a test lets be busy."""

    def __init__(self) -> None:
        self._counters = DiskCounters(
            requests=0, request_ms=0, read_bytes=0, written_bytes=0, in_flight=0, busy_ms=0, queue_ms=0
        )

    def work(self, seconds: float, share: float) -> None:
        busy = round(seconds * 1000 * share)
        before = self._counters
        self._counters = replace(
            before, busy_ms=before.busy_ms + busy, requests=before.requests + busy, request_ms=before.request_ms + busy
        )

    def read(self) -> CounterReading:
        return CounterReading(boot="this one", disks={"sda": self._counters})

    def stalled(self) -> float | None:
        return None


class Ticks:
    """The sensor over time: each tick is half a minute later, in which the disk was busy for a share of it."""

    def __init__(self, file: Path, platform: Platform, instance: dg.DagsterInstance) -> None:
        self.disk, self.clock = Disk(), FakeClock()
        self.cursor: str | None = None
        platform.clock = self.clock
        self._file, self._platform, self._instance = file, platform, instance
        self._sensor = sensor_named(file, "backup_concurrency", counters=self.disk)

    def __call__(self, busy: float) -> str:
        self.clock.advance(30)
        self.disk.work(30, busy)
        result = evaluated(self._sensor, self._file, self._instance, self.cursor)
        self.cursor = result.cursor
        return str(result.skip_reason)

    @property
    def limits(self) -> tuple[int, int | None]:
        """The stored limit, and that of the pool."""
        return effective_backup_limits(self._platform).jobs, PoolLimits(self._instance).current(BACKUP_POOL)


@pytest.fixture
def ticks(file: Path, platform: Platform, instance: dg.DagsterInstance) -> Ticks:
    return Ticks(file, platform, instance)


def test_the_pool_and_the_limit_follow_the_disks_within_their_bounds(ticks: Ticks, platform: Platform) -> None:
    ceiling = ConcurrencyPolicy.for_disks(real_disks()).ceiling
    assert "is not known" in ticks(0.0)
    assert ticks.limits == (1, 1)
    seen = []
    for _ in range(ceiling + 2):
        told = ticks(0.1)
        seen.append(ticks.limits[0])
        assert ticks.limits == (seen[-1], seen[-1])
    assert seen == [min(1 + step, ceiling) for step in range(1, ceiling + 3)]
    assert f"but {ceiling} is the most" in told
    for _ in range(ceiling + 20):
        ticks(1.0)
    assert ticks.limits == (1, 1), "something always gets on"
    record = limit_control(platform).current("backup")
    assert record is not None
    assert (record.changed_by, "busy, above 80%" in record.reason) == ("sensor:backup_concurrency", True)
    assert not platform.spark.started


def test_between_the_thresholds_nothing_moves(ticks: Ticks) -> None:
    ticks(0.0)
    for _ in range(6):
        told = ticks(0.7)
    assert ticks.limits == (1, 1)
    assert "70% busy is inside the band" in told


def test_a_cursor_of_another_version_counts_as_none(ticks: Ticks) -> None:
    others = ["", "nonsense", "null", "5", '"ab"', "[1, 2]", "{}", '["{}", "{\\"older\\": 1}"]', '[null, "null"]']
    for cursor in others:
        ticks.cursor = cursor
        assert "is not known" in ticks(0.7)
        assert "70% busy" in ticks(0.7)


def test_what_an_operator_sets_beyond_the_disks_is_brought_back(ticks: Ticks, platform: Platform) -> None:
    ceiling = ConcurrencyPolicy.for_disks(real_disks()).ceiling
    limit_control(platform).set("backup", {"jobs": ceiling + 5}, changed_by="ann", reason="hurry")
    assert f"is outside 1 to {ceiling}" in ticks(0.1)
    assert ticks.limits == (ceiling, ceiling)
