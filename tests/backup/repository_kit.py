"""A small table, backed up and restored with the real parts of a repository, as a job would do it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from dw_platform.backup import (
    BackupIdentity,
    BackupKind,
    BackupRef,
    BackupRepository,
    FileKind,
    Hold,
    Place,
    SourceFile,
    StoredFile,
    TableCapture,
    TableState,
    current_chain,
    full_plan,
    incremental_plan,
    is_small,
    new_manifest,
    pack_groups,
)
from dw_platform.foundation import FakeClock
from dw_platform.store import MemoryStore, PersistentStore

PLATFORM = "shop"
SECRET = "correct horse battery staple"


def now_clock() -> FakeClock:
    """A clock that begins now, because the files of a test do, too."""
    return FakeClock(datetime.now(UTC))


def new_repository(
    folder: Path | Place,
    *,
    secret: str | None = None,
    clock: FakeClock | None = None,
    store: PersistentStore | None = None,
) -> BackupRepository:
    place = folder if isinstance(folder, Place) else Place.at(folder)
    return BackupRepository.open(
        place, platform=PLATFORM, store=store or MemoryStore(), secret=secret, create=True, clock=clock or now_clock()
    )


def write_table(folder: Path, contents: Mapping[str, bytes]) -> TableCapture:
    """Write the files that are not there yet, and capture exactly these."""
    files = []
    for path, content in sorted(contents.items()):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_bytes(content)
        status = target.stat()
        log = path.startswith("_delta_log/")
        files.append(
            SourceFile(
                path=path,
                kind=FileKind.LOG if log else FileKind.DATA,
                size=status.st_size,
                mtime_ns=status.st_mtime_ns,
                add=None if log else {"path": path, "size": status.st_size, "dataChange": True, "tags": {"ü": "é"}},
            )
        )
    state = TableState(
        version=len(files),
        committed_at_ms=1_760_000_000_000,
        protocol={"minReaderVersion": 1},
        metadata={"id": "x", "schemaString": "{}"},
        transactions={"app": 7},
        rows=None,
        files=len(files),
        bytes=sum(file.size for file in files),
    )
    return TableCapture(state=state, files=tuple(files))


def store_files(
    repository: BackupRepository, source: Place, capture: TableCapture, *, table: str, full: bool, job: str
) -> tuple[list[StoredFile], list[StoredFile]]:
    """Store what is not there yet, with notes, and return all files and those that were copied."""
    chain = current_chain(repository.manifests.headers(table).headers, table, "daily")
    parent = repository.manifests.read(BackupRef(table, chain.newest.backup_id)).files if chain else ()
    journal, index = repository.journal(job), repository.objects.index()
    plan = (full_plan if full or chain is None else incremental_plan)(capture, parent, index, journal.entries())
    copied = []
    for file in plan.copy:
        if not is_small(file):
            copied.append(repository.objects.put_file(source, file, known=plan.known.get(file.path)))
            journal.add(copied[-1:])
    for group in pack_groups(filter(is_small, plan.copy), plan.known):
        packed = repository.objects.put_pack(source, group, known=plan.known)
        journal.add(packed)
        copied += packed
    files = sorted([*plan.reuse, *copied], key=lambda stored: stored.source.path)
    return files, copied


def back_up(
    repository: BackupRepository,
    source: Path | Place,
    capture: TableCapture,
    *,
    table: str = "shop.orders",
    full: bool = False,
    job: str = "job",
    hold: Hold | None = None,
) -> BackupRef:
    """Back up the captured table and return the backup."""
    if hold is None:
        with repository.shared() as mine:
            return back_up(repository, source, capture, table=table, full=full, job=job, hold=mine)
    place = source if isinstance(source, Place) else Place.at(source)
    chain = current_chain(repository.manifests.headers(table).headers, table, "daily")
    files, copied = store_files(repository, place, capture, table=table, full=full, job=job)
    manifest = new_manifest(
        BackupIdentity(
            repository_id=repository.id, platform=repository.platform, table=table, policy="daily", job_id=job
        ),
        capture.state,
        files,
        copied=copied,
        parent=None if full or chain is None else chain.newest,
        latest_id=repository.manifests.latest_id(table),
        fence=hold.token,
        now=repository.clock.now(),
    )
    ref = repository.publish(manifest, hold)
    assert manifest.header.kind is (BackupKind.FULL if full or chain is None else BackupKind.INCREMENTAL)
    repository.journal(job).clear()
    return ref


def restored(repository: BackupRepository, ref: BackupRef) -> dict[str, bytes]:
    """Read every file of a backup."""
    manifest = repository.manifests.read(ref)
    return {stored.source.path: b"".join(repository.objects.read(stored)) for stored in manifest.files}


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
