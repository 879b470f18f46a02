"""Kill -9 of extractions at random moments, while another process changes the source.

After every kill both tables show everything or nothing and no key twice; at the end both equal the source. Every tenth
extraction reads by Spark tasks, the others by threads of their own process.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Options

NAME = "extract_crash"
DESCRIPTION = "kill -9 of an extraction at random moments: the resumed tables equal their source"

ROUNDS, QUICK_ROUNDS = 50, 3
BY_SPARK_EVERY = 10


def run(options: Options) -> dict[str, Any]:
    """Run the rounds; a lost or doubled row is an AssertionError, not a figure."""
    # `dw` is installed and does not have the clone on its path; `python -m benchmarks` does.
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.crash.extract_rounds import CrashRounds
    from tests.servers import create_database, start_postgres

    count = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    assert options.directory is not None
    # Not in the benchmark's folder: the server runs as a user of its own, who may not enter that.
    url = create_database(start_postgres(Path(tempfile.mkdtemp(prefix="dw-extract-crash-"))))
    rounds = CrashRounds(options.directory, url, seed=count)
    started = time.monotonic()
    with rounds.platform:
        for number in range(count):
            by_spark = number % BY_SPARK_EVERY == BY_SPARK_EVERY - 1
            rounds.round("spark" if by_spark else "here", longest_s=4.0 if by_spark else 1.5)
        rounds.finish()
    figures = {"rounds of kill -9": rounds.killed, "changes of the source beside it": rounds.changes}
    return {
        "seconds": round(time.monotonic() - started),
        "measures": [{"name": name, "unit": "", "median": value} for name, value in figures.items()],
        "checks": {"both tables equal their source": True},
    }
