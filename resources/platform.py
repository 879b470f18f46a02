"""The platform as a Dagster resource: opened once a process, so one warm Spark session serves all steps of a run."""

import atexit
from functools import lru_cache

import dagster as dg

from dw_platform.pipelines import Platform


@lru_cache(maxsize=4)
def _opened(config_path: str) -> Platform:
    platform = Platform.open(config_path)
    atexit.register(platform.close)
    return platform


class PlatformResource(dg.ConfigurableResource[None]):
    """Where `platform.yaml` is; secrets stay in that file's environment and never enter Dagster's own config."""

    config_path: str

    def open(self) -> Platform:
        """Return the platform of this process."""
        return _opened(self.config_path)
