"""`dw`: the platform on the command line."""

import sys


def main() -> None:
    """Run `dw`; the commands are imported here, so that importing this package costs nothing."""
    from dw_platform.cli.app import run

    sys.exit(run(sys.argv[1:]))


__all__ = ["main"]
