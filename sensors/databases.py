"""Asks every database each minute whether it answers, and shows it as a check of each table that is copied from it.

No JVM: what is counted is in the control store, rows go to `ops.health` by the Arrow writer. The cursor holds what each
table's check showed last, so that the event log gets a new state, and an old one every ten minutes.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

import dagster as dg

from assets.extracts import SOURCE_CHECK
from assets.tables import asset_key
from dw_platform.config import PlatformConfig
from dw_platform.extract.health_policy import HealthPolicy
from dw_platform.pipelines.health import DatabaseHealth, check_databases
from resources import PlatformResource

_POLICY = HealthPolicy()

Shown = dict[str, tuple[str, str]]
"""By table: the state that its check showed last, and when."""


def database_sensors(config: PlatformConfig) -> list[dg.SensorDefinition]:
    """Return the sensor of all databases; none if there are no databases."""
    return [_sensor(config)] if config.databases else []


def _sensor(config: PlatformConfig) -> dg.SensorDefinition:
    tables = {database.name: [entry.table for entry in database.tables] for database in config.databases}

    @dg.sensor(
        name="database_health",
        # A schedule that waits for a repaired database should not wait much longer than this.
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Asks all databases whether they answer; schedules leave those alone that keep failing.",
    )
    def database_health(context: dg.SensorEvaluationContext, platform: PlatformResource) -> dg.SensorResult:
        opened = platform.open()
        report, now = check_databases(opened), opened.clock.now()
        before: Shown = json.loads(context.cursor or "{}")
        after = {table: before[table] for found in tables.values() for table in found if table in before}
        events = list[dg.AssetCheckEvaluation]()
        for entry in report.databases:
            for table in _due(tables[entry.name], entry, before, now):
                events.append(_evaluation(table, entry))
                after[table] = _state(entry), now.isoformat()
        told = [_told(entry) for entry in report.databases]
        if report.not_kept is not None:
            told.append(str(report.not_kept))
        return dg.SensorResult(skip_reason="; ".join(told), cursor=json.dumps(after), asset_events=events)

    return database_health


def _due(tables: Sequence[str], entry: DatabaseHealth, before: Shown, now: datetime) -> Iterator[str]:
    for table in tables:
        state, at = before.get(table, ("", now.isoformat()))
        if state != _state(entry) or now - datetime.fromisoformat(at) >= _POLICY.told_every:
            yield table


def _evaluation(table: str, entry: DatabaseHealth) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=asset_key(table),
        check_name=SOURCE_CHECK,
        passed=entry.result.healthy,
        # One or two failures are often a restart, which nobody needs to look at.
        severity=dg.AssetCheckSeverity.ERROR if _state(entry) == "failing" else dg.AssetCheckSeverity.WARN,
        description=_told(entry),
        metadata={
            "database": entry.name,
            "latency_ms": round(entry.result.latency_s * 1000, 1),
            "failures": entry.record.failures,
        },
    )


def _state(entry: DatabaseHealth) -> str:
    if entry.result.healthy:
        return "ok"
    return "failing" if entry.record.failures >= _POLICY.skip_after else "failed"


def _told(entry: DatabaseHealth) -> str:
    if entry.result.healthy:
        return f"{entry.name} {entry.result.told}"
    return f"{entry.name}: {entry.decision.reason}"
