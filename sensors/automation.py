"""Starts a derived table when its inputs have changed and their blocking checks have passed."""

import dagster as dg


def automation_sensor() -> dg.AutomationConditionSensorDefinition:
    """Return the sensor that evaluates the conditions of all assets."""
    return dg.AutomationConditionSensorDefinition(
        "follow_inputs",
        target=dg.AssetSelection.all(),
        # 30 s: the daemon's own default; conditions read Dagster's event log and never start a JVM.
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Refreshes derived tables after their inputs, unless a blocking check of an input failed.",
    )
