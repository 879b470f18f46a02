"""Backups, removals and restores that are killed at any moment, and a disk that fills: no kept backup is harmed."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dw_platform.foundation import PlatformError
from dw_platform.pipelines.backup import back_up_table
from dw_platform.pipelines.backup_care import verify_backups
from dw_platform.pipelines.backup_jobs import recorded_jobs
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.backup_restore import restore_table
from tests.crash.backup_rounds import REPOSITORY, CrashRounds
from tests.pipelines.backups import ORDERS, back_up, grow, headers, held, open_shop

pytestmark = pytest.mark.crash


def test_whatever_is_killed_every_backup_restores_and_no_job_stays(tmp_path: Path) -> None:
    rounds = CrashRounds(tmp_path, seed=31)
    with rounds.platform:
        for _ in range(4):
            rounds.round(longest_s=0.8)
        rounds.finish()


def test_a_disk_that_fills_leaves_the_repository_unharmed_and_the_next_run_finishes(tmp_path: Path) -> None:
    with open_shop(tmp_path) as platform:
        grow(platform)
        first = back_up(platform)
        grow(platform, size=3_000_000)
        command = [sys.executable, "-m", "tests.crash.test_backup_crash", str(tmp_path)]
        told = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
        assert told.stdout == "RepositoryFullError\n", told.stderr
        assert [header.backup_id for header in headers(platform)] == [first.backup_id]
        assert verify_backups(platform).healthy
        assert not list(open_repository(platform).storage.walk("tmp"))
        (job,) = recorded_jobs(platform)
        assert "is full" in (job.error or "")
        assert back_up(platform).version == 2
        assert recorded_jobs(platform) == []
        restore_table(platform, ORDERS, str(tmp_path / "back"))
        assert held(platform, tmp_path / "back")[0].equals(held(platform)[0])


def _fill_the_disk(folder: str) -> None:
    """Back up with a limit on the size of files, which fails a write in the middle, as a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    with open_shop(Path(folder)) as platform:
        try:
            back_up_table(platform, "nightly", ORDERS)
        except PlatformError as error:
            sys.stdout.write(f"{type(error).__name__}\n")


if __name__ == "__main__":
    _fill_the_disk(sys.argv[1])
