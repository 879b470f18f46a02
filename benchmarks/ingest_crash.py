"""Kill -9 of an ingest at random moments, with a producer publishing and files being joined beside it.

After every kill both tables are compared with the positions, at the end with what the producer was promised: each
acknowledged record is in exactly one of them, once. Every tenth ingest writes by Spark jobs, the others in their own
process.
"""

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Options

NAME = "ingest_crash"
DESCRIPTION = "kill -9 of an ingest at random moments: every acknowledged record is there exactly once"

ROUNDS, QUICK_ROUNDS = 100, 3
BY_SPARK_EVERY = 10


def run(options: Options) -> dict[str, Any]:
    """Run the rounds; a lost or doubled record is an AssertionError, not a figure."""
    # `dw` is installed and does not have the clone on its path; `python -m benchmarks` does.
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.crash.ingest_rounds import CrashRounds

    count = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    assert options.directory is not None
    rounds = CrashRounds(options.directory, seed=count)
    started = time.monotonic()
    with rounds.platform:
        for number in range(count):
            by_spark = number % BY_SPARK_EVERY == BY_SPARK_EVERY - 1
            rounds.round("spark" if by_spark else "here", longest_s=2.0 if by_spark else 0.6)
        rounds.finish()
    figures = {
        "rounds of kill -9": rounds.killed,
        "records acknowledged": sum(rounds.acknowledged),
        "commits of the table": rounds.commits,
        "times that files were joined beside it": rounds.optimized,
    }
    return {
        "seconds": round(time.monotonic() - started),
        "measures": [{"name": name, "unit": "", "median": value} for name, value in figures.items()],
        "checks": {"every acknowledged record is there exactly once": True},
    }
