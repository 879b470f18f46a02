"""Small platforms in temporary folders; those that need Spark share the run's one JVM."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dw_platform.config import parse_config
from dw_platform.foundation import FakeClock
from dw_platform.lake.session import SparkProvider
from dw_platform.pipelines import Platform

PLATFORM = """
name: tested
home: home
lake:
  tables:
    - name: shop.orders
      generate: {kind: orders, rows: 2_000, days: 3, seed: 7}
    - name: shop.daily_revenue
      partition_by: [day]
      sql: SELECT CAST(ordered_at AS DATE) AS day, SUM(amount) AS revenue FROM {shop.orders} GROUP BY 1
quality:
  - table: shop.orders
    checks:
      - {expect: column_values_to_be_unique, column: order_id}
      - {expect: column_values_to_be_between, column: quantity, min_value: 1, max_value: 2}
      - {expect: column_values_to_be_in_set, column: country, value_set: [DE], severity: warning}
"""

MakePlatform = Callable[..., Platform]


@pytest.fixture
def make_platform(tmp_path: Path) -> Iterator[MakePlatform]:
    opened: list[Platform] = []

    def make(text: str = PLATFORM) -> Platform:
        config = parse_config(text, source=tmp_path / "platform.yaml", environ={})
        clock = FakeClock(start=datetime(2026, 5, 4, 12, 30, tzinfo=UTC))
        opened.append(Platform(config, clock=clock))
        return opened[-1]

    yield make
    for platform in opened:
        platform.close()


@pytest.fixture
def shared_spark(monkeypatch: pytest.MonkeyPatch, spark_provider: SparkProvider) -> None:
    """Let every platform use the run's one JVM instead of starting another."""
    monkeypatch.setattr(Platform, "spark", spark_provider)
