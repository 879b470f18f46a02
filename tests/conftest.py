"""Fixtures that several folders share: one Spark session for the whole run, and a lake in a temporary folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dw_platform.lake.settings import LakeSettings, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dw_platform.lake.session import SparkProvider


# What takes long comes first: a file stays with one worker, and one that begins last would leave the other idle.
_LONG = ("browser", "spark", "crash", "server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with browsers first, then those that start a JVM, kill processes or start servers, then the rest."""
    ranks = dict[Path, int]()
    for item in items:
        marked = [rank for rank, name in enumerate(_LONG) if item.get_closest_marker(name)]
        ranks[item.path] = min([ranks.get(item.path, len(_LONG)), *marked])
    items.sort(key=lambda item: ranks[item.path])


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
