"""Programs that lake tests run in processes of their own: `python -m tests.lake.workers NAME ARGUMENT...`.

Each prints `ready`, waits for a line on its standard input, and then does what its name says, so that several of
them start together.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from dw_platform.foundation import TransientError
from dw_platform.lake.lake import Lake
from dw_platform.lake.lock import FileTableLock
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings, SparkSettings
from dw_platform.store import MemoryStore

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program of this module, already past its `ready`; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "tests.lake.workers", *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=REPOSITORY
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def tell(process: "subprocess.Popen[str]", line: str = "go") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def answer(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def open_lake(root: str) -> Lake:
    """Open a lake whose Spark is never asked for."""
    settings = LakeSettings(root=root)
    return Lake(settings, store=MemoryStore(), spark=SparkProvider(SparkSettings(scratch=Path(root)), settings))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def hold(mode: str, folder: str) -> None:
    lock = FileTableLock(Path(folder))
    with lock.exclusive() if mode == "exclusive" else lock.shared():
        say("held")
        sys.stdin.readline()
    say("released")


def create(root: str, table: str) -> None:
    snapshot = open_lake(root).table(table).create(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))]))
    say(f"{snapshot.delta.metadata().id}")


def append(root: str, table: str, writer: str, commits: str, rows: str) -> None:
    """Append `rows` rows a commit with the writer's own position, planned anew after every conflict."""
    target, per_commit = open_lake(root).table(table), int(rows)
    while True:
        snapshot = target.snapshot()
        done = snapshot.position(writer) or 0
        if done >= int(commits):
            break
        batch = pa.table(
            {
                "writer": pa.array([writer] * per_commit),
                "number": pa.array(range(done * per_commit, (done + 1) * per_commit), pa.int64()),
            }
        )
        try:
            target.append(batch, positions={writer: done + 1}, snapshot=snapshot)
        except TransientError:
            continue
        say(f"acknowledged {done + 1}")
    say("done")


PROGRAMS = {"append": append, "create": create, "hold": hold}

if __name__ == "__main__":
    say("ready")
    sys.stdin.readline()
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
