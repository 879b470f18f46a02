"""The platform's own backups for the benchmark: a table to back up, two ways to do it, and what came back."""

import hashlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from dw_platform.backup import BackupKind
from dw_platform.config import parse_config
from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup import back_up_table
from dw_platform.pipelines.backup_care import verify_backups
from dw_platform.pipelines.backup_report import OnProgress
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.backup_restore import restore_table

TABLE = "bench.orders"
POLICY = "all"
# The chain must not end while increments are measured.
PLATFORM = """
name: bench
home: home
streams:
  - {name: orders, table: bench.orders}
backups:
  policies: [{name: all, tables: [bench.orders], max_chain: 100000}]
"""
_NOTE_LETTERS = 64


def open_platform(folder: Path) -> Platform:
    """Open a platform of its own in `folder`, with nothing in it yet."""
    folder.mkdir(parents=True)
    return Platform(parse_config(PLATFORM, source=folder / "platform.yaml", environ={}))


def append_files(platform: Platform, first: int, count: int, rows: int) -> None:
    """Add `count` files of about 63 B a row, each by a commit of its own; one number makes the same file again."""
    for number in range(first, first + count):
        platform.lake.table(TABLE).append(_rows(number, rows))


def _rows(number: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    letters = random.integers(97, 123, count * _NOTE_LETTERS, dtype=np.uint8)
    ends = np.arange(0, count * _NOTE_LETTERS + 1, _NOTE_LETTERS, dtype=np.int32)
    return pa.table(
        {
            "id": pa.array(np.arange(count) + number * count),
            "customer": pa.array(random.integers(0, 1 << 31, count, dtype=np.int32)),
            "amount": pa.array(random.random(count)),
            "ordered_at": pa.array(1_700_000_000_000_000 + random.integers(0, 1 << 40, count)).cast(
                pa.timestamp("us", "UTC")
            ),
            "note": pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(letters)]),
        }
    )


@dataclass(frozen=True)
class Ours:
    """One way of backing up, with a platform and a repository of its own."""

    name: str
    platform: Platform
    table: Path

    @classmethod
    def beside(cls, name: str, table: Path, folder: Path) -> "Ours":
        """Open a platform that has another one's table as its own, by a link, so that both read the same files."""
        platform = open_platform(folder)
        own = platform.lake.location(TABLE).local
        own.parent.mkdir(parents=True)
        own.symlink_to(table, target_is_directory=True)
        return cls(name, platform, table)

    @property
    def kept(self) -> Path:
        """Return where the repository is."""
        return Path(self.platform.config.backup_repository)

    @property
    def restored(self) -> Path:
        """Return where it restores to."""
        return self.platform.home / "restored"

    def empty(self) -> None:
        """Make an empty repository, and forget the tables that name what was in the last one."""
        shutil.rmtree(self.kept, ignore_errors=True)
        shutil.rmtree(Path(self.platform.config.lake_settings.root) / "ops", ignore_errors=True)
        open_repository(self.platform, create=True)

    def make_room(self) -> None:
        """Forget what was restored."""
        shutil.rmtree(self.restored, ignore_errors=True)

    def load(self) -> None:
        """Nothing to do: this process has its program in memory."""

    def back_up(self, on_progress: OnProgress = lambda _: None) -> int:
        """Back up the table and return how many files were copied."""
        return back_up_table(self.platform, POLICY, TABLE, on_progress=on_progress).copied_files

    def back_up_increment(self) -> None:
        """Back up what was added."""
        report = back_up_table(self.platform, POLICY, TABLE)
        assert (report.kind, report.unchanged) == (BackupKind.INCREMENTAL, False)

    def restore(self) -> None:
        """Write the newest backup to a folder."""
        restore_table(self.platform, TABLE, str(self.restored))

    def verify(self) -> None:
        """Read everything back."""
        report = verify_backups(self.platform)
        assert report.objects_read == report.objects_present > 0
        assert not report.findings

    def objects(self) -> list[Path]:
        """Return the files that `verify` reads."""
        return sorted(path for path in (self.kept / "objects").rglob("*") if path.is_file())


def same_rows(source: Path, restored: Path) -> bool:
    """Return whether two Delta tables have the same rows: deltalake says which files, pyarrow reads them."""
    theirs, ours = (_content(place) for place in (source, restored))
    return theirs == ours and bool(theirs)


def _content(place: Path) -> dict[str, tuple[int, str]]:
    """Return count and hash of the rows of each file that the table's newest version consists of."""
    files = [Path(uri.removeprefix("file://")) for uri in DeltaTable(place).file_uris()]
    with ThreadPoolExecutor() as threads:
        return dict(zip([path.name for path in files], threads.map(_rows_of, files), strict=True))


def _rows_of(path: Path) -> tuple[int, str]:
    table, digest = pq.read_table(path, partitioning=None), hashlib.sha256()
    for batch in table.combine_chunks().to_batches():
        digest.update(batch.serialize())
    return table.num_rows, digest.hexdigest()


def same_files(source: Path, restored: Path) -> bool:
    """Return whether two folders have the same files, by SHA-256."""
    return dict(_hashes(source)) == dict(_hashes(restored))


def _hashes(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        with path.open("rb") as file:
            yield str(path.relative_to(folder)), hashlib.file_digest(file, "sha256").hexdigest()
