"""Dagster sensors: what starts by itself."""

from sensors.automation import automation_sensor
from sensors.databases import database_sensors
from sensors.streams import stream_sensors

__all__ = ["automation_sensor", "database_sensors", "stream_sensors"]
