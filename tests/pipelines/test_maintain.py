"""Upkeep goes over every table, whatever is wrong with one of them; no JVM, as small tables need none."""

from pathlib import Path

import pyarrow as pa
import pytest

from dw_platform.foundation import TransientError
from dw_platform.lake.reports import MaintenanceReport
from dw_platform.lake.table import LakeTable
from dw_platform.pipelines import Platform
from dw_platform.pipelines.maintain import MaintenanceFailedError, maintain_tables
from tests.pipelines.conftest import MakePlatform


@pytest.fixture
def platform(make_platform: MakePlatform) -> Platform:
    opened = make_platform()
    for name in ("shop.a", "shop.b", "shop.c"):
        opened.lake.table(name).append(pa.table({"id": [1]}))
    return opened


def test_a_busy_table_does_not_stop_the_others(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LakeTable.maintain

    def maintain(table: LakeTable, policy: object) -> MaintenanceReport:
        if table.name == "shop.b":
            raise TransientError("shop.b is busy")
        return real(table, policy)  # type: ignore[arg-type]

    monkeypatch.setattr(LakeTable, "maintain", maintain)
    first, busy, last = maintain_tables(platform)
    assert isinstance(busy, TransientError)
    assert [getattr(report, "table", None) for report in (first, last)] == ["shop.a", "shop.c"]


def test_a_damaged_table_is_raised_after_the_others(platform: Platform) -> None:
    log = Path(platform.lake.location("shop.a").uri) / "_delta_log" / "00000000000000000001.json"
    log.write_text("{")
    done = []
    with pytest.raises(MaintenanceFailedError) as caught:  # noqa: PT012  what came before the error is looked at
        for outcome in maintain_tables(platform):
            done.append(getattr(outcome, "table", None))  # noqa: PERF401  a comprehension would lose them
    assert done == ["shop.b", "shop.c"]
    assert [type(error).__name__ for error in caught.value.errors] == ["DamagedLogError"]
    assert "shop.a" in str(caught.value)


def test_an_empty_lake_needs_no_upkeep(make_platform: MakePlatform) -> None:
    assert list(maintain_tables(make_platform())) == []
