"""Kill a process that backs up, prunes and restores at random moments; look at what it left, and recover.

`python -m tests.crash.backup_rounds FILE SEED` is that process: it lets a table grow, backs it up, removes what has
expired as if days had passed, and restores one of the backups over an older restore; then it begins again. It prints
`opened`, and each backup's id when it is told to be done. `CrashRounds` is everything around it.

Every version of the table holds the ids from 0 to the position that it was committed with, so whatever is restored
can be compared without anybody remembering what it was.
"""

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from dw_platform.config import load_config
from dw_platform.foundation import FakeClock
from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup import back_up_table
from dw_platform.pipelines.backup_care import prune_backups, verify_backups
from dw_platform.pipelines.backup_jobs import recorded_jobs
from dw_platform.pipelines.backup_recover import recover_incomplete_jobs
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.backup_restore import restore_table

REPOSITORY = Path(__file__).parents[2]
TABLE, SOURCE = "shop.orders", "orders"
PLATFORM = """
name: crashed
home: home
lake:
  tables:
    - {name: shop.orders, generate: {kind: orders, rows: 1, days: 1}}
backups:
  policies:
    - {name: nightly, tables: [shop.orders], max_chain: 4, keep: {last: 3}}
"""
# Two of three files are larger than what lies in a pack, one is not.
_SIZES = (300_000, 2_000, 400_000)


class CrashRounds:
    """A platform in `folder` whose backups are killed round by round."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self._file, self._folder = folder / "platform.yaml", folder
        self._file.write_text(PLATFORM)
        self._chance = random.Random(seed)
        self.killed = self.recovered = self.restored = 0
        self.platform = opened(self._file)

    def round(self, longest_s: float) -> None:
        """Start the process, kill it after a moment, and look at what it left."""
        told = list[str]()
        with _started(self._file, self._chance.randrange(2**31)) as process:
            assert process.stdout is not None
            # Half of them die around their first backup, the others later.
            for _ in range(self._chance.choice([1, 2, 3])):
                told.append(process.stdout.readline().strip())
            assert told[0] == "opened", "it ended by itself"
            time.sleep(self._chance.uniform(0.0, longest_s))
            process.kill()
            told += process.stdout.read().split()
            self.killed += 1
        self.check(told[1:])

    def check(self, told: list[str]) -> None:
        """Recover; then nothing is left, every backup restores, and the newest that was told is there."""
        for each in recover_incomplete_jobs(self.platform):
            assert each.outcome == "finished", each.told
            self.recovered += 1
        assert recorded_jobs(self.platform) == []
        report = verify_backups(self.platform)
        assert report.broken == {}, report.findings
        listing = open_repository(self.platform).manifests.headers()
        assert listing.damaged == ()
        ids = [header.backup_id for header in listing.headers]
        assert not told or max(told) in ids, "a backup that was told is gone"
        if ids:
            self._restore(self._chance.choice(ids), self._folder / "sample")
        target = self._folder / "target"
        if target.exists():
            self._compare(target)

    def finish(self) -> None:
        """Restore every backup there is; then let all but one expire, and see that nothing else is kept."""
        for header in open_repository(self.platform).manifests.headers().headers:
            self._restore(header.backup_id, self._folder / "sample")
        assert isinstance(self.platform.clock, FakeClock)
        self.platform.clock.advance(timedelta(days=1000).total_seconds())
        prune_backups(self.platform)
        repository = open_repository(self.platform)
        (ref,) = repository.manifests.refs()
        assert repository.objects.index() == repository.manifests.read(ref).objects()
        assert not list(repository.storage.walk("notes"))
        assert not list(repository.storage.walk("tmp"))
        self._restore(ref.backup_id, self._folder / "sample")

    def _restore(self, backup_id: str, target: Path) -> None:
        restore_table(self.platform, TABLE, str(target), backup_id=backup_id, overwrite=True)
        self._compare(target)
        self.restored += 1

    def _compare(self, target: Path) -> None:
        table = DeltaTable(str(target))
        ids = sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())
        assert ids == list(range(table.transaction_version(SOURCE) or 0)), f"{target} is no version of the table"
        assert not list(target.glob("_dw_restore*"))


def opened(file: Path) -> Platform:
    """Return the platform with a clock that its caller moves: expiry and grace are days."""
    return Platform(load_config(file, environ={}), clock=FakeClock(datetime.now(UTC)))


@contextlib.contextmanager
def _started(file: Path, seed: int) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.crash.backup_rounds", str(file), str(seed)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=REPOSITORY
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def grow(platform: Platform, chance: random.Random) -> None:
    """Append files to the table; now and then write all of it anew, which leaves its old files to nobody."""
    table = platform.lake.table(TABLE)
    first = table.snapshot().position(SOURCE) or 0 if table.exists() else 0
    for number, size in enumerate(_SIZES, start=first):
        table.append(_rows(range(number, number + 1), chance.randbytes(size)), positions={SOURCE: number + 1})
    if chance.random() < 0.3:
        table.overwrite(_rows(range(first + len(_SIZES)), chance.randbytes(_SIZES[0])))


def _rows(ids: range, noise: bytes) -> pa.Table:
    return pa.table({"id": ids, "noise": [noise, *([None] * (len(ids) - 1))]})


def main(file: str, seed: str) -> None:
    """Be the process that is killed."""
    chance = random.Random(int(seed))
    with opened(Path(file)) as platform:
        assert isinstance(platform.clock, FakeClock)
        _say("opened")
        while True:
            grow(platform, chance)
            _say(back_up_table(platform, "nightly", TABLE).backup_id)
            platform.clock.advance(timedelta(days=2).total_seconds())
            prune_backups(platform)
            ids = [header.backup_id for header in open_repository(platform).manifests.headers().headers]
            target = Path(file).parent / "target"
            restore_table(platform, TABLE, str(target), backup_id=chance.choice(ids), overwrite=True)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
