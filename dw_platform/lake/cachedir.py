"""Where things that are fetched once per machine are kept: Spark's jars and the Java launcher."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return `$DW_CACHE`, or the user's cache folder as the XDG rules name it; it may not exist yet."""
    if chosen := os.environ.get("DW_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dw_platform"
