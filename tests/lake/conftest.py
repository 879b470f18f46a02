from pathlib import Path

import pytest

from dw_platform.lake.lake import Lake
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings
from dw_platform.store import MemoryStore


@pytest.fixture
def lake(tmp_path: Path, spark_provider: SparkProvider) -> Lake:
    """A lake in a folder of its own; the JVM starts only if the test makes Spark work."""
    return Lake(LakeSettings(root=str(tmp_path / "lake")), store=MemoryStore(), spark=spark_provider)
