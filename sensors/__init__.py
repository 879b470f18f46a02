"""Dagster sensors: what starts by itself."""

from sensors.automation import automation_sensor
from sensors.streams import stream_sensors

__all__ = ["automation_sensor", "stream_sensors"]
