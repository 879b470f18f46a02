"""Fixtures that several folders share: one Spark session for the whole run, and a lake in a temporary folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dw_platform.lake.settings import LakeSettings, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dw_platform.lake.session import SparkProvider


@pytest.fixture(scope="session")
def spark_provider(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkProvider]":
    """The run's one JVM: starting another for each test would cost more than all tests together."""
    from dw_platform.lake.session import SparkProvider

    scratch = tmp_path_factory.mktemp("spark")
    provider = SparkProvider(
        SparkSettings(app_name="tests", master="local[2]", scratch=scratch), LakeSettings(root=str(scratch / "lake"))
    )
    yield provider
    provider.stop()


@pytest.fixture(scope="session")
def spark(spark_provider: "SparkProvider") -> "SparkSession":
    return spark_provider.get()


@pytest.fixture
def lake_root(tmp_path: Path) -> Path:
    return tmp_path / "lake"
