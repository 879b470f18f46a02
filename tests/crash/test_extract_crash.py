"""An extraction that is killed at any moment beside a writer of its source: both tables equal the source at the end."""

import random
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from dw_platform.foundation import TransientError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.extract import extract_table
from tests.crash.extract_rounds import REPOSITORY, CrashRounds
from tests.servers import postgres_server_url, postgres_url

__all__ = ["postgres_server_url", "postgres_url"]

pytestmark = [pytest.mark.crash, pytest.mark.server]


def test_an_extraction_killed_at_any_moment_neither_loses_nor_repeats_a_row(tmp_path: Path, postgres_url: str) -> None:
    rounds = CrashRounds(tmp_path, postgres_url, seed=21)
    with rounds.platform:
        for _ in range(5):
            rounds.round("here", longest_s=1.5)
        rounds.finish()
        assert rounds.changes > 0


@pytest.mark.spark
def test_an_extraction_whose_spark_tasks_are_killed_neither_loses_nor_repeats_a_row(
    tmp_path: Path, postgres_url: str
) -> None:
    rounds = CrashRounds(tmp_path, postgres_url, seed=22)
    with rounds.platform:
        rounds.round("spark", longest_s=4.0)
        rounds.round("here", longest_s=1.0)
        rounds.finish()


def test_a_disk_that_fills_leaves_the_table_as_it_was_and_the_next_run_goes_on(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE people (id integer PRIMARY KEY, name text)")
        rows = ((number, random.Random(number).randbytes(40).hex()) for number in range(40_000))
        database.executemany("INSERT INTO people VALUES (?, ?)", rows)
        database.commit()
    file = tmp_path / "platform.yaml"
    file.write_text(
        "name: full\nhome: home\ndatabases:\n  - name: crm\n    url: sqlite:///crm.db\n    tables:\n"
        "      - {source: people, table: crm.people, page_size: 1_000, commit_rows: 40_000}\n"
    )
    with Platform.open(file, environ={}) as platform:
        _ = platform.store  # made before the disk is full
        command = [sys.executable, "-m", "tests.crash.test_extract_crash", str(file)]
        told = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
        assert told.stdout == "StorageUnreachableError\n", told.stderr
        assert platform.lake.table("crm.people").snapshot().row_count == 0
        assert not list(platform.lake.table("crm.people").location.local.glob("*.parquet"))
        assert extract_table(platform, "crm.people").rows == 40_000
        assert platform.lake.table("crm.people").snapshot().row_count == 40_000


def _fill_the_disk(file: str) -> None:
    """Extract with a limit on the size of files, which fails a write in the middle, as a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
    with Platform.open(file) as platform:
        try:
            extract_table(platform, "crm.people")
        except TransientError as error:
            sys.stdout.write(f"{type(error).__name__}\n")


if __name__ == "__main__":
    _fill_the_disk(sys.argv[1])
