"""Opening the platform for a command."""

from pathlib import Path

from dw_platform.cli.output import progress
from dw_platform.cli.secrecy import hide_secrets_of
from dw_platform.pipelines import Platform


def open_platform(config: Path | None) -> Platform:
    """Return the platform of the file; what it does is told on stderr, and its secrets are kept out of complaints."""
    platform = Platform.open(config, on_progress=progress)
    hide_secrets_of(platform.config)
    return platform
