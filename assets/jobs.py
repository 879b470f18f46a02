"""Jobs and schedules: refresh everything, refresh a table or stream by its cron line, keep the tables small."""

from typing import Any

import dagster as dg

from assets.backups import BACKUP_GROUP
from assets.streams import stream_tags
from assets.tables import asset_key
from dw_platform.config import PlatformConfig
from dw_platform.foundation import TransientError
from dw_platform.pipelines.maintain import maintain_tables
from dw_platform.scaling.runs import RunPolicy
from resources import PlatformResource

REFRESH_JOB = "refresh"
MAINTENANCE_JOB = "maintain_tables"


def platform_jobs() -> list[Any]:  # Dagster does not export the type of an asset job
    """Return the jobs that people start by hand and schedules start by themselves."""
    refresh = dg.define_asset_job(
        REFRESH_JOB,
        # Backups have times of their own: with every refresh they would only lengthen it.
        selection=dg.AssetSelection.all() - dg.AssetSelection.groups(BACKUP_GROUP),
        description="Builds and checks every table, in order.",
    )
    return [refresh, maintain_tables_job]


def platform_schedules(config: PlatformConfig) -> list[dg.ScheduleDefinition]:
    """Return a schedule for every table and stream with a cron line, and one for the upkeep if the file asks for it."""
    schedules = [
        dg.ScheduleDefinition(
            name=f"{stream.name.replace('-', '_')}_stream_schedule",
            cron_schedule=stream.schedule,
            target=dg.AssetSelection.assets(asset_key(stream.table)),
            description=f"Brings what is waiting in {stream.topic_name} into {stream.table}.",
            tags=stream_tags(stream, RunPolicy().priority),
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
        for stream in config.streams
        if stream.schedule
    ]
    schedules += [
        dg.ScheduleDefinition(
            name=f"{table.name.replace('.', '_')}_schedule",
            cron_schedule=table.schedule,
            target=dg.AssetSelection.assets(asset_key(table.name)),
            description=f"Refreshes {table.name} and checks it.",
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
        for table in config.lake.tables
        if table.schedule
    ]
    if config.lake.maintenance.schedule:
        schedules.append(
            dg.ScheduleDefinition(
                name="maintenance_schedule",
                cron_schedule=config.lake.maintenance.schedule,
                job=maintain_tables_job,
                # Below everything that people wait for.
                tags={"dagster/priority": "-10"},
                default_status=dg.DefaultScheduleStatus.RUNNING,
            )
        )
    return schedules


@dg.op(pool="maintenance", description="Joins small files and removes unreferenced ones, table by table.")
def maintain_all_tables(context: dg.OpExecutionContext, platform: PlatformResource) -> None:
    """Keep every table small; a busy table is left for the next time."""
    for outcome in maintain_tables(platform.open()):
        if isinstance(outcome, TransientError):
            context.log.warning(str(outcome))
        else:
            context.log.info(
                f"{outcome.table}: {outcome.files_before} files became {outcome.files_after}, "
                f"{outcome.files_removed} unreferenced ones removed ({outcome.engine}, {outcome.duration_s:.1f} s)"
            )


@dg.job(name=MAINTENANCE_JOB, description="Upkeep of every table in the lake.", executor_def=dg.in_process_executor)
def maintain_tables_job() -> None:
    """Run the upkeep."""
    maintain_all_tables()
