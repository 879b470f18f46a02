"""Kill -9 of backups, removals and restores at random moments.

After every kill what was begun is recovered, every backup is verified and one is restored and compared; at the end
all are restored, and all but one expire, which leaves nothing behind that nobody needs.
"""

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Options

NAME = "backup_crash"
DESCRIPTION = "kill -9 of backups, removals and restores at random moments: every backup kept restores"

ROUNDS, QUICK_ROUNDS = 50, 3


def run(options: Options) -> dict[str, Any]:
    """Run the rounds; a backup that does not restore is an AssertionError, not a figure."""
    # `dw` is installed and does not have the clone on its path; `python -m benchmarks` does.
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.crash.backup_rounds import CrashRounds

    count = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    assert options.directory is not None
    rounds = CrashRounds(options.directory, seed=count)
    started = time.monotonic()
    with rounds.platform:
        for _ in range(count):
            rounds.round(longest_s=1.0)
        rounds.finish()
    figures = {
        "rounds of kill -9": rounds.killed,
        "jobs recovered": rounds.recovered,
        "backups restored and compared": rounds.restored,
    }
    return {
        "seconds": round(time.monotonic() - started),
        "measures": [{"name": name, "unit": "", "median": value} for name, value in figures.items()],
        "checks": {"every backup restores, and no job stays": True},
    }
