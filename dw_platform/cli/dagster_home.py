"""Dagster's state under the platform's home, and the environment in which its programs run."""

import os
import sys
from importlib.resources import files
from pathlib import Path

from dw_platform.foundation import replace_file
from dw_platform.pipelines import Platform


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
        # The superseded-command notice of `dagster` says nothing to somebody who types `dw`.
        "PYTHONWARNINGS": "ignore",
        "GX_ANALYTICS_ENABLED": "false",
    }


def dagster_program(name: str) -> str:
    """Return the path of one of Dagster's programs in this Python's environment."""
    return str(Path(sys.executable).with_name(name))


def workspace_file(platform: Platform) -> Path:
    """Return the workspace beside platform.yaml, or the packaged one."""
    beside = platform.config.source.parent / "workspace.yaml"
    return beside if beside.exists() else Path(str(files("dw_platform.cli") / "templates" / "workspace.yaml"))


def _settings(platform: Platform) -> bytes:
    beside = platform.config.source.parent / "dagster.yaml"
    if beside.exists():
        return beside.read_bytes()
    return (files("dw_platform.cli") / "templates" / "dagster.yaml").read_bytes()
