"""A shop with two tables that are backed up, what its tables hold, and harm that is done to its repository."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from dw_platform.backup import BackupHeader, BackupRepository
from dw_platform.config import parse_config
from dw_platform.foundation import FakeClock
from dw_platform.lake.snapshot import Snapshot
from dw_platform.pipelines import Platform, backup_care
from dw_platform.pipelines.backup import back_up_table
from dw_platform.pipelines.backup_report import BackupReport
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.backup_restore import restore_table, target_location

ORDERS, ITEMS = "shop.orders", "shop.items"
SHOP = """
name: shop
home: {home}
lake:
  tables:
    - {{name: shop.orders, generate: {{kind: orders, rows: 10, days: 1}}}}
    - {{name: shop.items, generate: {{kind: orders, rows: 10, days: 1}}}}
    - {{name: shop.never_built, generate: {{kind: orders, rows: 10, days: 1}}}}
backups:
  {backups}
  policies:
    - {{name: nightly, tables: ["shop.*"]{policy}}}
"""
LARGE = 300_000
"""More bytes than a file has that lies in a pack."""


def shop_text(*, home: str = "home", backups: str = "", policy: str = "") -> str:
    """Return platform.yaml; `backups` is one more line of that section, `policy` more of the policy's."""
    return SHOP.format(home=home, backups=backups or "compress: true", policy=f", {policy}" if policy else "")


def open_shop(folder: Path, text: str | None = None, clock: FakeClock | None = None) -> Platform:
    """Open the platform; its clock begins now, because the files of a test do, too."""
    config = parse_config(text or shop_text(), source=folder / "platform.yaml", environ={})
    return Platform(config, clock=clock or FakeClock(datetime.now(UTC)))


def grow(platform: Platform, table: str = ORDERS, *, rows: int = 1, size: int = LARGE) -> int:
    """Append one file whose rows cannot be compressed, with the position after it; return the version."""
    handle = platform.lake.table(table)
    first = handle.snapshot().row_count or 0 if handle.exists() else 0
    noise = random.Random(f"{table} {first}")
    content = pa.table(
        {"id": range(first, first + rows), "noise": [noise.randbytes(size // rows) for _ in range(rows)]}
    )
    return handle.append(content, positions={f"source of {table}": first + rows}).version


def back_up(platform: Platform, table: str = ORDERS, *, policy: str = "nightly", full: bool = False) -> BackupReport:
    """Back the table up a minute after whatever was before."""
    assert isinstance(platform.clock, FakeClock)
    platform.clock.advance(60)
    return back_up_table(platform, policy, table, full=full)


def held(platform: Platform, target: str | Path = ORDERS, version: int | None = None) -> tuple[pa.Table, int | None]:
    """Return the rows of a table by its name, folder or address, in order, and the position it was committed with."""
    snapshot = Snapshot(ORDERS, target_location(platform, str(target)), version=version)
    return snapshot.read_arrow().sort_by("id"), snapshot.position(f"source of {ORDERS}")


def headers(platform: Platform, table: str | None = None) -> list[BackupHeader]:
    return list(open_repository(platform).manifests.headers(table).headers)


def objects_of(repository: BackupRepository, backup_id: str, *, only: bool = False) -> list[str]:
    """Return the objects that a backup needs, largest first; with `only`, those that no other backup needs."""
    sizes = {ref.backup_id: repository.manifests.needs(ref)[1] for ref in repository.manifests.refs()}
    wanted = sizes.pop(backup_id)
    others = {name for needed in sizes.values() for name in needed} if only else set()
    return sorted(wanted.keys() - others, key=lambda name: (-wanted[name], name))


def object_file(repository: BackupRepository, name: str) -> Path:
    return repository.place.local / "objects" / name


def flip(file: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def table_files(folder: Path) -> dict[str, bytes]:
    """Return every file of a table, but not those of its lock."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("_dw_commit"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@contextmanager
def vanishing(folder: Path, pattern: str) -> Iterator[None]:
    """Take the files away as VACUUM does, and bring them back at the end."""
    aside = folder.parent / f"{folder.name}-vacuumed"
    aside.mkdir()
    gone = {path: aside / path.name for path in folder.glob(pattern)}
    assert gone
    for path, kept in gone.items():
        path.rename(kept)
    try:
        yield
    finally:
        for path, kept in gone.items():
            kept.rename(path)
        aside.rmdir()


def die_while(kind: str, folder: Path, target: str = "") -> None:
    """Begin what `kind` says, and be killed in the middle of it; for a process of its own."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with open_shop(folder) as platform:
        match kind:
            case "backup":
                back_up_table(platform, "nightly", ORDERS, on_progress=die)
            case "restore":
                restore_table(platform, ORDERS, target, overwrite=True, on_progress=die)
            case "prune":
                setattr(backup_care, "prune", die)  # noqa: B010  it holds the repository alone by then
                backup_care.prune_backups(platform)
