"""Whether the platform's databases answer: asked, counted in the control store, and kept in the table `ops.health`.

Every check and every extraction counts, so a database that fails is known to all processes. `skip_reason` is what a
schedule asks: a database that failed three times in a row is left alone, in pauses of 1, 2, 4 ... minutes up to an
hour. The first success, of a check or an extraction, forgets that.

`ops.health` gets a row when a state changes, and otherwise every ten minutes. A lake that cannot be written does not
keep a check from counting: the row is told by the next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from dw_platform.extract.errors import DatabaseUnavailableError
from dw_platform.extract.health import CHECK_LIMIT_S, HealthResult, check_sources
from dw_platform.extract.health_policy import (
    HealthPolicy,
    HealthRecord,
    SkipDecision,
    decide_skip,
    failed,
    is_due_to_tell,
    succeeded,
)
from dw_platform.extract.health_record import change_record, read_record
from dw_platform.extract.source import DatabaseSource
from dw_platform.foundation import PlatformError
from dw_platform.pipelines.databases import database_source
from dw_platform.pipelines.platform import Platform

HEALTH_TABLE = "ops.health"
POLICY = HealthPolicy()

_SCHEMA = pa.schema(
    [
        pa.field("checked_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("database", pa.string(), nullable=False),
        pa.field("healthy", pa.bool_(), nullable=False),
        pa.field("latency_ms", pa.float64(), nullable=False),
        pa.field("failures", pa.int64(), nullable=False),
        ("failing_since", pa.timestamp("us", "UTC")),
        ("retry_at", pa.timestamp("us", "UTC")),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class DatabaseHealth:
    """What one check found, what is known with it, and what schedules make of that."""

    result: HealthResult
    record: HealthRecord
    decision: SkipDecision

    @property
    def name(self) -> str:
        """The database."""
        return self.result.database


@dataclass(frozen=True, slots=True)
class HealthReport:
    """One look at all databases."""

    databases: tuple[DatabaseHealth, ...]
    not_kept: PlatformError | None = None
    """Why `ops.health` could not be written."""

    @property
    def failing(self) -> list[str]:
        """The databases that did not answer."""
        return [entry.name for entry in self.databases if not entry.result.healthy]


def ask_databases(platform: Platform, *, timeout_s: float = CHECK_LIMIT_S) -> list[HealthResult]:
    """Ask every database of the file, all at once; nothing is counted or kept."""
    sources, refused = list[DatabaseSource](), dict[str, HealthResult]()
    for section in platform.config.databases:
        try:
            sources.append(database_source(section))
        except PlatformError as error:  # an address that nothing can be done with
            refused[section.name] = HealthResult(database=section.name, latency_s=0.0, error=error)
    found = refused | {result.database: result for result in check_sources(sources, timeout_s)}
    return [found[section.name] for section in platform.config.databases]


def check_databases(platform: Platform, *, timeout_s: float = CHECK_LIMIT_S) -> HealthReport:
    """Ask every database, count what they answer, and keep what is new in `ops.health`; no JVM is started."""
    results = ask_databases(platform, timeout_s=timeout_s)
    now = platform.clock.now()
    databases = tuple(_counted(platform, result, now) for result in results)
    try:
        _tell(platform, [entry for entry in databases if is_due_to_tell(entry.record, now, POLICY)], now)
    except PlatformError as error:
        return HealthReport(databases, not_kept=error)
    return HealthReport(databases)


def record_outcome(platform: Platform, database: str, error: Exception | None = None) -> None:
    """Count how an extraction went: success, or a database that was not available.

    Any other error says nothing about the database's health, such as a table that is not there, and is not counted.
    """
    now = platform.clock.now()
    if error is None:
        change_record(
            platform.store,
            database,
            # What is healthy already needs no write for every extraction.
            lambda before: (
                None if before is None or before.healthy else succeeded(before, database, latency_s=None, now=now)
            ),
        )
    elif isinstance(error, DatabaseUnavailableError):
        why = error.cause
        change_record(
            platform.store, database, lambda before: failed(before, database, error=why, now=now, policy=POLICY)
        )


def skip_reason(platform: Platform, database: str, now: datetime) -> str | None:
    """Return why a schedule should leave the database alone now, or None if it should not."""
    decision = decide_skip(read_record(platform.store, database), now, POLICY)
    return f"database {database} is left alone: {decision.reason}" if decision.skip else None


def _counted(platform: Platform, result: HealthResult, now: datetime) -> DatabaseHealth:
    def change(before: HealthRecord | None) -> HealthRecord:
        if result.healthy:
            return succeeded(before, result.database, latency_s=result.latency_s, now=now)
        return failed(before, result.database, error=result.why, now=now, policy=POLICY)

    record = change_record(platform.store, result.database, change)
    assert record is not None  # it was just written
    return DatabaseHealth(result, record, decide_skip(record, now, POLICY))


def _tell(platform: Platform, entries: Sequence[DatabaseHealth], now: datetime) -> None:
    if not entries:
        return
    rows = pa.Table.from_pylist([_row(entry, now) for entry in entries], schema=_SCHEMA)
    platform.lake.table(HEALTH_TABLE).append(rows)
    for entry in entries:
        _mark_told(platform, entry, now)


def _mark_told(platform: Platform, entry: DatabaseHealth, now: datetime) -> None:
    def mark(record: HealthRecord | None) -> HealthRecord | None:
        # Another process may have seen another state since, which nobody was told of.
        same = record is not None and record.healthy == entry.record.healthy
        return replace(record, told_at=now) if record is not None and same else None

    change_record(platform.store, entry.name, mark)


def _row(entry: DatabaseHealth, now: datetime) -> Mapping[str, Any]:
    return {
        "checked_at": now,
        "database": entry.name,
        "healthy": entry.result.healthy,
        "latency_ms": entry.result.latency_s * 1000,
        "failures": entry.record.failures,
        "failing_since": entry.record.failing_since,
        "retry_at": entry.record.retry_at,
        "error": entry.result.why or None,
    }
