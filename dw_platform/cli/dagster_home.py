"""Dagster's state under the platform's home, and the environment in which its programs run."""

import os
import shutil
import sys
from importlib import metadata
from importlib.resources import files
from pathlib import Path

from dw_platform.foundation import UserError, replace_file
from dw_platform.pipelines import Platform


class DagsterMissingError(UserError):
    """One of Dagster's programs is not installed where this Python looks for it."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        super().__init__(
            f"{program} is neither in {folder} nor on the PATH. Install the platform again: pip install dw-platform"
        )


def dagster_environment(platform: Platform) -> dict[str, str]:
    """Return the environment for Dagster's programs; makes `<home>/dagster` with the instance's settings in it."""
    home = platform.home / "dagster"
    home.mkdir(exist_ok=True)
    settings = _settings(platform)
    target = home / "dagster.yaml"
    if not target.exists() or target.read_bytes() != settings:
        replace_file(target, settings)
    return {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DW_CONFIG": str(platform.config.source),
        # Logs are followed while they are written.
        "PYTHONUNBUFFERED": "1",
        # The superseded-command notice of `dagster` says nothing to somebody who types `dw`.
        "PYTHONWARNINGS": "ignore",
        "GX_ANALYTICS_ENABLED": "false",
    }


def storage_is_ready(platform: Platform) -> bool:
    """Return whether Dagster's own tables are there, of the version that is installed."""
    stamp = _stamp(platform)
    return stamp.exists() and stamp.read_text() == metadata.version("dagster")


def note_storage(platform: Platform) -> None:
    """Remember that Dagster's own tables are of the version that is installed."""
    replace_file(_stamp(platform), metadata.version("dagster").encode())


def _stamp(platform: Platform) -> Path:
    return platform.home / "dagster" / "dw-storage-version"


def program(name: str) -> str:
    """Return the path of one of Dagster's programs: of this Python's environment, else of the PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise DagsterMissingError(name, beside.parent)
    return found


def workspace_file(platform: Platform) -> Path:
    """Return the workspace beside platform.yaml, or the packaged one."""
    beside = platform.config.source.parent / "workspace.yaml"
    return beside if beside.exists() else Path(str(files("dw_platform.cli") / "templates" / "workspace.yaml"))


def _settings(platform: Platform) -> bytes:
    beside = platform.config.source.parent / "dagster.yaml"
    if beside.exists():
        return beside.read_bytes()
    return (files("dw_platform.cli") / "templates" / "dagster.yaml").read_bytes()
