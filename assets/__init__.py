"""Dagster assets and checks, built from `platform.yaml`."""

from assets.backups import backup_assets, backup_jobs, backup_schedules
from assets.checks import table_checks
from assets.extract_schedules import extract_schedules
from assets.extracts import extract_tables, source_checks
from assets.jobs import platform_jobs, platform_schedules
from assets.streams import rejected_tables, stream_tables
from assets.tables import asset_key, lake_tables

__all__ = [
    "asset_key",
    "backup_assets",
    "backup_jobs",
    "backup_schedules",
    "extract_schedules",
    "extract_tables",
    "lake_tables",
    "platform_jobs",
    "platform_schedules",
    "rejected_tables",
    "source_checks",
    "stream_tables",
    "table_checks",
]
