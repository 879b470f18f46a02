"""The lake's Spark session under the interface of dagster-pyspark.

The stock resource only calls `getOrCreate`: no Delta, no jars, and settings of a running session are ignored with
a log line. Assets that are written against `PySparkResource` get the platform's own warm session here instead.
"""

from typing import Any

import dagster as dg
from dagster_pyspark import PySparkResource
from pydantic import Field

from resources.platform import PlatformResource


class LakeSparkResource(PySparkResource):
    """Opens the session when an asset first asks for it."""

    spark_config: dict[str, Any] = Field(default_factory=dict)
    platform: dg.ResourceDependency[PlatformResource]

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Start nothing: most steps of a run that has this resource never use Spark."""

    @property
    def spark_session(self) -> Any:
        return self.platform.open().spark.get()
