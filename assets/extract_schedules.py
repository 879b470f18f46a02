"""Schedules of extracts: when to copy, when to look for deleted rows; a database that keeps failing is left alone."""

import dagster as dg

from assets.tables import asset_key
from dw_platform.config import DatabaseSection, ExtractSection, PlatformConfig
from dw_platform.pipelines.health import skip_reason
from resources import PlatformResource


def extract_schedules(config: PlatformConfig) -> list[dg.ScheduleDefinition]:
    """Return the schedules that the file gives to tables of databases."""
    found = list[dg.ScheduleDefinition]()
    for database in config.databases:
        for table in database.tables:
            if table.schedule:
                found.append(_schedule(database, table, table.schedule, reconcile=False))
            if table.reconcile:
                found.append(_schedule(database, table, table.reconcile, reconcile=True))
    return found


def _schedule(database: DatabaseSection, table: ExtractSection, cron: str, *, reconcile: bool) -> dg.ScheduleDefinition:
    name = f"{table.table.replace('.', '_')}_{'reconcile' if reconcile else 'extract'}_schedule"
    step = asset_key(table.table).to_python_identifier()
    run_config = {"ops": {step: {"config": {"reconcile": True}}}} if reconcile else {}

    @dg.schedule(
        name=name,
        cron_schedule=cron,
        target=dg.AssetSelection.assets(asset_key(table.table)),
        description=f"{'Finds deleted rows of' if reconcile else 'Brings'} {table.table} "
        f"{'in' if reconcile else 'up to date with'} {database.name}.",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    def due(platform: PlatformResource) -> dg.RunRequest | dg.SkipReason:
        opened = platform.open()
        if (reason := skip_reason(opened, database.name, opened.clock.now())) is not None:
            return dg.SkipReason(reason)
        # Looking for deleted rows can wait for work that brings new ones.
        return dg.RunRequest(run_config=run_config, tags={"dagster/priority": "-5" if reconcile else "0"})

    return due
