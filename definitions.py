"""Everything Dagster shows, built from `platform.yaml` (or the file that `$DW_CONFIG` names).

Loading starts no JVM and opens no connection.
"""

import os
from pathlib import Path

import dagster as dg

from assets import (
    backup_assets,
    backup_jobs,
    backup_schedules,
    extract_schedules,
    extract_tables,
    lake_tables,
    platform_jobs,
    platform_schedules,
    rejected_tables,
    source_checks,
    stream_tables,
    table_checks,
)
from dw_platform.config import PlatformConfig, load_config
from resources import LakeSparkResource, PlatformResource
from sensors import automation_sensor, backup_sensors, database_sensors, stream_sensors


def build_definitions(config: PlatformConfig) -> dg.Definitions:
    """Return the definitions of one platform."""
    platform = PlatformResource(config_path=str(config.source))
    return dg.Definitions(
        assets=[
            *lake_tables(config),
            *stream_tables(config),
            *rejected_tables(config),
            *extract_tables(config),
            *backup_assets(config),
        ],
        asset_checks=[*table_checks(config), *source_checks(config)],
        jobs=[*platform_jobs(), *backup_jobs()],
        schedules=[*platform_schedules(config), *extract_schedules(config), *backup_schedules(config)],
        sensors=[automation_sensor(), *stream_sensors(config), *database_sensors(config), *backup_sensors(config)],
        resources={"platform": platform, "pyspark": LakeSparkResource(platform=platform)},
        # One process a run: the default executor would start a JVM for every step.
        executor=dg.in_process_executor,
    )


CONFIG_FILE = Path(os.environ.get("DW_CONFIG", "platform.yaml")).absolute()

defs = build_definitions(load_config(CONFIG_FILE, environ=os.environ))
