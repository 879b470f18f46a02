"""A Delta table into a repository and back: the platform's two ways beside restic, borg, rclone and `cp`.

All copy the same table on the same disk, in turn, each into a place of its own, and end with what they wrote on disk.
Before each run the page cache is dropped, where root runs this; programs are read back into it first, because the
platform's is in memory. Ours runs inside this process: threads without a JVM, and tasks of a warm Spark session.

Afterwards restored tables are compared with their source, by rows; what peers restored, by the hashes of its files.
Last, an ingest in another process beside a backup that never ends.
"""

import contextlib
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.backup_beside import ALONE, BESIDE, measure_beside
from benchmarks.backup_ours import Ours, append_files, open_platform, same_files, same_rows
from benchmarks.backup_peers import Borg, Copy, Rclone, Restic, hash_files, installed, path_of
from benchmarks.harness import Measure, Options, measure

NAME = "backup"
DESCRIPTION = "1 GB of Delta in 100 files: full, increments, restore, verify against restic, borg, rclone, cp; ingest"

FILES, QUICK_FILES = 100, 10
LARGER = 4
NEW_FILES = 5
ROWS_A_FILE, QUICK_ROWS_A_FILE = 165_000, 16_000
ROUNDS, QUICK_ROUNDS = 3, 1
RECORDS, QUICK_RECORDS = 2_000_000, 20_000
PASSES, QUICK_PASSES = 10, 2

DROP_CACHES = Path("/proc/sys/vm/drop_caches")

THREADS, SPARK = "dw, threads of one process", "dw, Spark tasks"
HASHING = SHA256SUM, OPENSSL = "sha256sum", "openssl dgst -sha256"
DURABILITY = (
    "dw fsyncs every file and folder; restic and borg fsync their repositories; after rclone, cp, and whatever peers "
    "restore, `sync -f` is part of the time. dw hashes by SHA-256 and neither encrypts nor compresses Parquet; borg "
    "does neither; restic encrypts (it can do without from 0.17 on) and does not compress; cp does not hash"
)


def run(options: Options) -> dict[str, Any]:
    """Measure full backups, restores and verifications, then increments of two sizes, then an ingest beside."""
    assert options.directory is not None
    files = QUICK_FILES if options.quick else FILES
    rows = options.rows // files if options.rows else (QUICK_ROWS_A_FILE if options.quick else ROWS_A_FILE)
    repeats = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    with contextlib.ExitStack() as opened:
        bench = _Bench.at(options.directory, files, rows, repeats, opened, quick=options.quick)
        measures = [*bench.whole(), *bench.increments(bench.tools, files)]
        equal = bench.equal()
        bench.grow_to(LARGER * files)
        measures += bench.increments(bench.ours, LARGER * files)
        bench.stop_spark()
        records, passes = (QUICK_RECORDS, QUICK_PASSES) if options.quick else (RECORDS, PASSES)
        beside = options.directory / "beside"
        measures += measure_beside(
            bench.ours[0], bench.megabytes(), beside, records=records, passes=passes, repeats=repeats
        )
    return {
        "files": files,
        "megabytes": round(bench.first_megabytes, 1),
        "cache_dropped": bench.cold,
        "versions": {peer.name: peer.version for peer in bench.peers},
        "not_installed": bench.absent,
        "durability": DURABILITY,
        "measures": measures,
        "checks": equal | _checks({row["name"]: row for row in measures}, files),
    }


class _Bench:
    """One table and all who back it up."""

    def __init__(self, ours: Sequence[Ours], rows: int, repeats: int, *, cold: bool) -> None:
        self.ours, self._rows, self._repeats = ours, rows, repeats
        self.cold = cold and drop_caches()
        self.table = ours[0].table
        self.peers: list[Any] = []
        self.absent: list[str] = []
        self._files, self.first_megabytes = 0, 0.0

    @classmethod
    def at(
        cls, folder: Path, files: int, rows: int, repeats: int, opened: contextlib.ExitStack, *, quick: bool
    ) -> "_Bench":
        """Make the table and open the platforms; the second one runs Spark."""
        first = opened.enter_context(open_platform(folder / "threads"))
        table = first.lake.location("bench.orders").local
        ours = [Ours(THREADS, first, table)]
        if not quick:
            ours.append(Ours.beside(SPARK, table, folder / "spark"))
            opened.enter_context(ours[1].platform).spark.warm()
        bench = cls(ours, rows, repeats, cold=not quick)
        bench.grow_to(files)
        bench.first_megabytes = bench.megabytes()
        bench.peers, bench.absent = installed(table, folder / "peers")
        bench.absent += [name for name in HASHING if not path_of(name.split()[0])]
        return bench

    @property
    def tools(self) -> list[Any]:
        """Return all who can tell what is new from what they have."""
        return [*self.ours, *(peer for peer in self.peers if not isinstance(peer, Copy))]

    def stop_spark(self) -> None:
        """Leave the cores to the ingest and its own session."""
        for each in self.ours:
            each.platform.spark.stop()

    def megabytes(self) -> float:
        """Return the size of the table."""
        return sum(path.stat().st_size for path in self.table.rglob("*") if path.is_file()) / 1e6

    def grow_to(self, files: int) -> None:
        """Add files until there are so many."""
        append_files(self.ours[0].platform, self._files, files - self._files, self._rows)
        self._files = files

    def whole(self) -> list[dict[str, Any]]:
        """Measure copying everything, putting it back, and reading it again."""
        timed = partial(measure, repeats=self._repeats, units=self.megabytes(), unit="MB/s")
        both = [*self.ours, *(peer for peer in self.peers if isinstance(peer, Restic | Borg))]
        return [
            *timed([self._measure("full", tool, tool.back_up, tool.empty) for tool in [*self.ours, *self.peers]]),
            *timed([self._measure("restore", tool, tool.restore, tool.make_room) for tool in both]),
            *timed([*(self._measure("verify", tool, tool.verify, _nothing) for tool in both), *self._hashing()]),
        ]

    def _measure(self, what: str, tool: Any, work: Callable[[], Any], before: Callable[[], Any]) -> Measure:
        def prepare() -> None:
            before()
            self._cool()
            tool.load()

        return Measure(name=f"{what}: {tool.name}", run=work, before=prepare)

    def _cool(self) -> None:
        if self.cold:
            drop_caches()

    def _hashing(self) -> list[Measure]:
        """Hash the same objects, by what everybody has and by what is quickest on these processors."""
        objects = self.ours[0].objects()
        return [
            Measure(name=f"verify: {name}", run=partial(hash_files, name.split(), objects), before=self._cool)
            for name in HASHING
            if name not in self.absent
        ]

    def equal(self) -> dict[str, bool]:
        """Return whether what each restores now is what it backed up last."""
        equal: dict[str, bool] = {}
        for tool in [*self.ours, *(peer for peer in self.peers if isinstance(peer, Restic | Borg))]:
            tool.make_room()
            tool.restore()
            what, same = ("rows", same_rows) if isinstance(tool, Ours) else ("files", same_files)
            equal[f"equal {what}, restored by {tool.name}"] = same(self.table, tool.restored)
            tool.make_room()
        return equal

    def increments(self, tools: Sequence[Any], files: int) -> list[dict[str, Any]]:
        """Measure what five new files cost, in a table that began with so many; all have backed it up before."""
        for tool in tools:
            tool.back_up()

        def added() -> None:
            self.grow_to(self._files + NEW_FILES)

        # Who comes first in a round finds the files added for all.
        befores = [added, *[_nothing] * (len(tools) - 1)]
        what = f"{NEW_FILES} new beside {files}"
        measures = [
            self._measure(what, tool, _increment_of(tool), before) for tool, before in zip(tools, befores, strict=True)
        ]
        # A rate rounds less than seconds do.
        rates = measure(measures, repeats=self._repeats, units=1e6, unit="s")
        return [_in_seconds(row) for row in rates]


def _increment_of(tool: Any) -> Callable[[], Any]:
    return tool.back_up_increment if isinstance(tool, Ours) else tool.back_up


def _in_seconds(row: dict[str, Any]) -> dict[str, Any]:
    runs = [round(1e6 / rate, 2) for rate in row["runs"]]
    return row | {"runs": runs, "median": round(statistics.median(runs), 2)}


def _nothing() -> None:
    """Leave everything as the last run left it."""


def drop_caches() -> bool:
    """Let the next run read from disk; return whether this process may."""
    os.sync()
    try:
        DROP_CACHES.write_text("3")
    except OSError:
        return False
    return True


def _checks(rows: Mapping[str, Mapping[str, Any]], files: int) -> dict[str, str]:
    """Return what was aimed at and what came of it, for each of our ways."""
    aims = [
        ("full", {Restic.name: 3.0, Borg.name: 3.0, Rclone.name: 2.0, Copy.name: 0.7}),
        ("restore", {Restic.name: 2.0, Borg.name: 2.0}),
        ("verify", {SHA256SUM: 0.8, OPENSSL: 0.0}),
    ]
    checks: dict[str, str] = {}
    for ours in (THREADS, SPARK):
        for what, peers in aims:
            for peer, wanted in peers.items():
                told = _told(rows, f"{what}: {ours}", f"{what}: {peer}", wanted)
                checks |= {f"{what}: {ours} against {peer}, {_aim(wanted)}": told} if told else {}
        small, large = (rows.get(f"{NEW_FILES} new beside {count}: {ours}") for count in (files, LARGER * files))
        if small and large:
            cost = f"{small['median']} s beside {files} files, {large['median']} s beside {LARGER * files}"
            checks[f"{NEW_FILES} new: {ours}"] = cost
    checks[f"{BESIDE}, at least 0.85 of alone"] = _told(rows, BESIDE, ALONE, 0.85) or ""
    return checks


def _aim(wanted: float) -> str:
    return f"at least {wanted:g}" if wanted else "for comparison"


def _told(rows: Mapping[str, Mapping[str, Any]], ours: str, peer: str, wanted: float) -> str | None:
    """Return the ratios within each round, their median, and whether that is enough; None if one was not measured."""
    if ours not in rows or peer not in rows:
        return None
    ratios = [mine / theirs for mine, theirs in zip(rows[ours]["runs"], rows[peer]["runs"], strict=True)]
    median = statistics.median(ratios)
    figures = f"{median:.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
    return f"{figures} {'reached' if median >= wanted else 'MISSED'}" if wanted else figures
