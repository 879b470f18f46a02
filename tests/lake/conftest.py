from pathlib import Path

import pytest
from hypothesis import settings

from dw_platform.lake.lake import Lake
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings
from dw_platform.store import MemoryStore

# The first example of a test pays for imports and for a cold disk; a time limit would only find that.
settings.register_profile("lake", deadline=None)
settings.load_profile("lake")


@pytest.fixture
def lake(tmp_path: Path, spark_provider: SparkProvider) -> Lake:
    """A lake in a folder of its own; the JVM starts only if the test makes Spark work."""
    return Lake(LakeSettings(root=str(tmp_path / "lake")), store=MemoryStore(), spark=spark_provider)
