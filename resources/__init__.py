"""Dagster resources: the open platform, and its Spark session for code that expects dagster-pyspark."""

from resources.platform import PlatformResource
from resources.pools import PoolLimits
from resources.spark import LakeSparkResource

__all__ = ["LakeSparkResource", "PlatformResource", "PoolLimits"]
