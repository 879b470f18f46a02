"""A small platform in a temporary folder, with its Dagster definitions and an instance that keeps its state."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from definitions import build_definitions
from dw_platform.config import load_config
from dw_platform.pipelines import Platform
from resources import platform as platform_resource

PLATFORM = """
name: tested
home: {home}
lake:
  tables:
    - name: shop.orders
      description: One row for each order.
      owners: [team:data]
      generate: {{kind: orders, rows: {rows}, days: 3, seed: 7}}
    - name: shop.daily_revenue
      description: Revenue of each day.
      schedule: "5 * * * *"
      sql: SELECT CAST(ordered_at AS DATE) AS day, SUM(amount) AS revenue FROM {{shop.orders}} GROUP BY 1
quality:
  - table: shop.orders
    checks:
      - {{expect: column_values_to_be_unique, column: order_id}}
      - {{expect: column_values_to_be_between, column: quantity, min_value: 1, max_value: {most}}}
      - {{expect: column_values_to_be_in_set, column: country, value_set: [DE], severity: warning}}
  - table: shop.daily_revenue
    checks:
      - {{expect: column_values_to_not_be_null, column: revenue}}
"""

MakePlatform = Callable[..., Path]


@pytest.fixture
def make_platform(tmp_path: Path) -> MakePlatform:
    """Write a platform.yaml; `most` below 5 makes a critical check of the orders fail."""

    def make(*, rows: int = 2_000, most: int = 5) -> Path:
        file = tmp_path / "platform.yaml"
        file.write_text(PLATFORM.format(home=tmp_path / "home", rows=rows, most=most))
        platform_resource._opened.cache_clear()  # a run is a process of its own and reads the file anew
        return file

    return make


@pytest.fixture
def definitions_of() -> Callable[[Path], dg.Definitions]:
    return lambda file: build_definitions(load_config(file, environ={}))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """SQLite storage, because pools and cursors of an ephemeral instance only pretend to work."""
    folder = tmp_path / "dagster"
    folder.mkdir()
    with dg.DagsterInstance.local_temp(str(folder)) as kept:
        yield kept


@pytest.fixture
def shared_spark(monkeypatch: pytest.MonkeyPatch, spark_provider: object) -> None:
    """Let platforms opened by resources use the run's one JVM instead of starting another."""
    platform_resource._opened.cache_clear()
    monkeypatch.setattr(Platform, "spark", spark_provider)
    monkeypatch.setattr(Platform, "close", lambda _: None)
