"""Everything at a glance, read from Delta logs alone; no JVM."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from dw_platform.foundation import PlatformError
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.validate import RESULTS_TABLE, known_checks
from dw_platform.quality import Severity

_COLUMNS = ("checked_at", "table_name", "table_version", "check_name", "passed", "severity")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOverview:
    """One table in one line."""

    name: str
    rows: int | None
    """None when the log alone cannot tell."""

    bytes: int
    files: int
    version: int
    changed_at: datetime
    writer: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"changed_at": self.changed_at.isoformat()}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableTable:
    """A table that is there but cannot be read, and why."""

    name: str
    error: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOverview:
    """The newest verdict of each check of one table."""

    table: str
    version: int
    """The oldest version that one of them is about: all of them hold for no newer one."""

    checked_at: datetime
    """When the newest of them was found."""

    passed: int
    failed: tuple[str, ...]
    blocking: tuple[str, ...]
    """The failed ones that are critical."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"checked_at": self.checked_at.isoformat()}


def table_overview(platform: Platform, name: str) -> TableOverview:
    """Return what the log says about one table."""
    handle = platform.lake.table(name)
    snapshot = handle.snapshot()
    return TableOverview(
        name=name,
        rows=snapshot.row_count,
        bytes=snapshot.size_bytes,
        files=snapshot.file_count,
        version=snapshot.version,
        changed_at=handle.history(1)[0].at,
        writer=snapshot.writer.engine.value,
    )


def tables_overview(platform: Platform) -> list[TableOverview | UnreadableTable]:
    """Return every table of the lake; one that cannot be read does not hide the others."""
    found: list[TableOverview | UnreadableTable] = []
    for name in platform.table_names():
        try:
            found.append(table_overview(platform, name))
        except PlatformError as error:
            found.append(UnreadableTable(name=name, error=str(error)))
    return found


def unbuilt_tables(platform: Platform) -> list[str]:
    """Return the tables of `lake.tables` that do not exist yet, in their order."""
    built = set(platform.table_names())
    return [table.name for table in platform.config.lake.tables if table.name not in built]


def check_overview(platform: Platform) -> list[CheckOverview]:
    """Return the newest verdicts on every table that was ever checked; checks that the file dropped are left out."""
    results = platform.lake.table(RESULTS_TABLE)
    if not results.exists():
        return []
    rows = results.snapshot().read_arrow(_COLUMNS).sort_by("checked_at").to_pylist()
    newest = {(row["table_name"], row["check_name"]): row for row in rows}
    found = []
    for entry in platform.config.quality:
        names = known_checks(entry)
        mine = [newest[entry.table, name] for name in names if (entry.table, name) in newest]
        if mine:
            found.append(_summarise(entry.table, mine))
    return sorted(found, key=lambda summary: summary.table)


def _summarise(table: str, rows: list[dict[str, Any]]) -> CheckOverview:
    failed = [row for row in rows if not row["passed"]]
    return CheckOverview(
        table=table,
        version=min(row["table_version"] for row in rows),
        checked_at=max(row["checked_at"] for row in rows),
        passed=len(rows) - len(failed),
        failed=_names(failed),
        blocking=_names(row for row in failed if row["severity"] == Severity.CRITICAL.value),
    )


def _names(rows: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted(row["check_name"] for row in rows))
