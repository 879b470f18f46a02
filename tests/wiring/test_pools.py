from pathlib import Path

import dagster as dg

from resources import PoolLimits


def test_a_pool_keeps_its_slots_across_restarts(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as first:
        assert PoolLimits(first).current("ingest") is None
        PoolLimits(first).set("ingest", 3)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as second:
        assert PoolLimits(second).current("ingest") == 3


def test_dagster_accepts_the_projects_own_instance_settings(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "dagster.yaml").write_bytes((root / "dagster.yaml").read_bytes())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        settings = instance.get_concurrency_config()
        assert settings.pool_config.default_pool_limit == 2
        assert instance.run_monitoring_enabled
