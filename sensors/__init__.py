"""Dagster sensors: what starts by itself."""

from sensors.automation import automation_sensor
from sensors.backups import backup_sensors
from sensors.databases import database_sensors
from sensors.streams import stream_sensors

__all__ = ["automation_sensor", "backup_sensors", "database_sensors", "stream_sensors"]
