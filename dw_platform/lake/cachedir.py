"""Where things that are fetched once per machine are kept: Spark's jars and the Java launcher."""

import os
from pathlib import Path

from dw_platform.foundation import UserError


class CacheNotWritableError(UserError):
    """The folder for fetched things cannot be made."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(
            f"{path} cannot be made ({cause}), and Spark's libraries are kept there. Set DW_CACHE to a folder that "
            "this user may write."
        )


def cache_directory() -> Path:
    """Return `$DW_CACHE`, or the user's cache folder as the XDG rules name it; it may not exist yet."""
    if chosen := os.environ.get("DW_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dw_platform"


def make_folder(path: Path) -> None:
    """Make a folder inside the cache, or say what to do where that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheNotWritableError(path, error.strerror or str(error)) from error
