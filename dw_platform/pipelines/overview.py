"""Everything at a glance, read from Delta logs and the control store; no JVM."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.validate import RESULTS_TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOverview:
    """One table in one line."""

    name: str
    rows: int | None
    bytes: int
    files: int
    version: int
    changed_at: datetime
    writer: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"changed_at": self.changed_at.isoformat()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOverview:
    """The newest verdicts on one table."""

    table: str
    version: int
    checked_at: datetime
    passed: int
    failed: tuple[str, ...]

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


def check_overview(platform: Platform) -> list[CheckOverview]:
    """Return the newest verdicts on every table that was ever checked."""
    results = platform.lake.table(RESULTS_TABLE)
    if not results.exists():
        return []
    rows = results.snapshot().read_arrow(["checked_at", "table_name", "table_version", "check_name", "passed"])
    newest = rows.group_by("table_name").aggregate([("checked_at", "max")])
    found = []
    for table, moment in zip(newest["table_name"].to_pylist(), newest["checked_at_max"].to_pylist(), strict=True):
        mine = rows.filter(pc.and_(pc.equal(rows["table_name"], table), pc.equal(rows["checked_at"], moment)))
        found.append(_summarise(table, moment, mine.to_pylist()))
    return sorted(found, key=lambda entry: entry.table)


def _summarise(table: str, moment: datetime, rows: Sequence[dict[str, Any]]) -> CheckOverview:
    failed = tuple(sorted(row["check_name"] for row in rows if not row["passed"]))
    return CheckOverview(
        table=table,
        version=rows[0]["table_version"],
        checked_at=moment,
        passed=len(rows) - len(failed),
        failed=failed,
    )
