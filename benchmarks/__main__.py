"""`python -m benchmarks` is `dw bench`, for a clone in which `dw` is not on the PATH."""

import sys

from dw_platform.cli.app import run

sys.exit(run(["bench", *sys.argv[1:]]))
