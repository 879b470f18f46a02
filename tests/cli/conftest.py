"""`dw` in this process, and platforms in temporary folders for it to work on."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from dw_platform.cli import secrecy
from dw_platform.cli.app import run
from dw_platform.lake.session import SparkProvider
from dw_platform.pipelines import Platform

TABLES = """
lake:
  tables:
    - name: shop.orders
      generate: {kind: orders, rows: 200, days: 3}
    - name: shop.revenue
      sql: SELECT country, SUM(amount) AS revenue FROM {shop.orders} GROUP BY 1
quality:
  - table: shop.orders
    checks:
      - {expect: column_values_to_be_unique, column: order_id}
"""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Dw = Callable[..., Outcome]
MakeFile = Callable[..., Path]


@pytest.fixture(autouse=True)
def clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine, and no secret of another test, has a say."""
    for name in [name for name in os.environ if name.startswith("DW_") and name != "DW_CACHE"]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(secrecy, "_known", {})
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def dw(capfd: pytest.CaptureFixture[str]) -> Dw:
    def call(*arguments: str | Path) -> Outcome:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    """Write a platform.yaml with its home in the temporary folder."""

    def make(text: str = TABLES, *, home: str = "home") -> Path:
        file = tmp_path / "platform.yaml"
        file.write_text(f"name: tested\nhome: {home}\n{text}")
        return file

    return make


@pytest.fixture
def with_tables(make_file: MakeFile) -> Path:
    """A platform whose table shop.orders holds two rows, written without a JVM."""
    file = make_file()
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    with Platform.open(file, environ={}) as platform:
        for name in ("shop.orders", "shop.other"):
            platform.lake.table(name).append(pa.table({"order_id": [1, 2], "at": [moment, moment]}))
    return file


@pytest.fixture
def shared_spark(monkeypatch: pytest.MonkeyPatch, spark_provider: SparkProvider) -> None:
    """Let platforms that commands open use the run's one JVM, and leave it running when they close."""
    monkeypatch.setattr(Platform, "spark", spark_provider)
