"""Dagster sensors: what starts by itself."""

from sensors.automation import automation_sensor

__all__ = ["automation_sensor"]
