"""What a process does to a repository until it is killed: back up, expire, sweep, again and again."""

from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from dw_platform.backup import BackupRepository, Place, RetentionPolicy, expiry, prune
from dw_platform.foundation import FakeClock
from dw_platform.store import open_store
from tests.backup.repository_kit import PLATFORM, back_up, now_clock, write_table

TABLE = "shop.orders"


def contents_of(number: int) -> dict[str, bytes]:
    """The table at one moment; two files of it are those of the moment before."""
    data = {f"{each}.parquet": each.to_bytes(4, "big") * 75_000 for each in range(max(0, number - 2), number + 1)}
    return data | {f"_delta_log/{each}.json": b"%d" % each for each in range(number + 1)}


def opened(root: Path, clock: FakeClock, secret: str | None) -> BackupRepository:
    store = open_store(f"file://{root}/store")
    return BackupRepository.open(
        Place.at(root / "repo"), platform=PLATFORM, store=store, secret=secret, create=True, clock=clock
    )


def work(root: Path, secret: str | None, start: int, published: Connection) -> None:
    """Tell each backup right after it is published; sweep as if days had passed, so that there is much to remove."""
    clock = now_clock()
    repository = opened(root, clock, secret)
    number = start
    while True:
        ref = back_up(repository, root / "table", write_table(root / "table", contents_of(number)), job=f"job {number}")
        published.send((number, ref.backup_id))
        plan = expiry(repository, RetentionPolicy(max_count=3))
        clock.advance(timedelta(days=10).total_seconds())
        with repository.exclusive() as hold:
            prune(repository, plan.remove, hold)
        number += 1
