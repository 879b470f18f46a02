"""Dagster assets and checks, built from `platform.yaml`."""

from assets.checks import table_checks
from assets.declared import declared_tables
from assets.jobs import platform_jobs, platform_schedules
from assets.streams import rejected_tables, stream_tables
from assets.tables import asset_key, lake_tables

__all__ = [
    "asset_key",
    "declared_tables",
    "lake_tables",
    "platform_jobs",
    "platform_schedules",
    "rejected_tables",
    "stream_tables",
    "table_checks",
]
