"""Put a backup back: to a folder, to a bucket, or to a table of the lake.

1. The job is recorded and takes hold of the target; what is there already in part is compared by hash and kept.
2. Files are written by Spark tasks or threads, each verified by its hash while it is written.
3. The log appears last, at once, under the table's commit lock. Until then readers see what was there before.

After a crash the same call goes on; `undo_restore` takes it back instead.
"""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dw_platform.backup import (
    BackupHeader,
    BackupRepository,
    Gate,
    Manifest,
    ObjectDamagedError,
    ObjectStore,
    Place,
    RestorePlan,
    StoredFile,
    claim_target,
    existing_files,
    finish_publish,
    holds,
    plan_restore,
    publish_log,
    read_claim,
    restore_file,
    undo_publish,
)
from dw_platform.backup.restore_claim import Claim, Phase
from dw_platform.backup.restore_errors import RestoredBytesDifferError
from dw_platform.fileio import IoPriority
from dw_platform.fileio.streams import StreamPolicy, run_streams
from dw_platform.foundation import Clock, UserError
from dw_platform.lake.lake import TABLE_NAME
from dw_platform.lake.location import TableLocation
from dw_platform.lake.lock import table_lock
from dw_platform.pipelines.backup_jobs import BackupJob, job_on, recorded_jobs
from dw_platform.pipelines.backup_report import BackupProgress, OnProgress, RestoreReport
from dw_platform.pipelines.backup_repository import find_policy, open_repository, place_of
from dw_platform.pipelines.backup_tasks import run_tasks, stream_policy, task_count
from dw_platform.pipelines.platform import Platform
from dw_platform.store.owner import process_owner

# The lock's own files are no content of a target.
_LOCK_FILES = ("_dw_commit.",)
# Looking how far a restore is lists its target; that takes at most this share of the time.
_LOOKING_SHARE = 0.1


Written = tuple[int, int]
"""How many files were written, and how many bytes."""


class NoSuchBackupError(UserError):
    """No backup of the table fits what was asked for."""

    def __init__(self, table: str, asked: str, known: Sequence[BackupHeader]) -> None:
        self.table, self.asked = table, asked
        if known:
            oldest, newest = known[0], known[-1]
            told = (
                f"its backups hold it as of {_moment(oldest):%Y-%m-%d %H:%M:%S} (version "
                f"{oldest.table_version}) to {_moment(newest):%Y-%m-%d %H:%M:%S} UTC (version {newest.table_version})"
            )
        else:
            told = "it has no backup here"
        super().__init__(f"{table}: there is no backup {asked}; {told}. `dw backup list` shows all.")


def choose_backup(
    repository: BackupRepository,
    table: str,
    *,
    backup_id: str | None = None,
    at: datetime | None = None,
    version: int | None = None,
) -> BackupHeader:
    """Return the backup with that id, of that version, or the newest one that has the table as it was at that time.

    Backups that are known to be broken are passed over unless they are named.
    """
    headers = repository.manifests.headers(table).headers
    broken = repository.health.broken_ids() if backup_id is None else frozenset[str]()
    fit = [header for header in headers if header.backup_id not in broken]
    asked = "that is whole"
    if backup_id is not None:
        fit, asked = [header for header in fit if header.backup_id == backup_id], backup_id
    if version is not None:
        fit, asked = [header for header in fit if header.table_version == version], f"of version {version}"
    if at is not None:
        fit, asked = (
            [header for header in fit if _moment(header) <= at],
            f"as of {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        )
    if not fit:
        raise NoSuchBackupError(table, asked, headers)
    return fit[-1]


def restore_table(
    platform: Platform,
    table: str,
    target: str,
    *,
    backup_id: str | None = None,
    at: datetime | None = None,
    version: int | None = None,
    overwrite: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> RestoreReport:
    """Restore one table to `target`: a folder, an s3:// address, or another name in the lake."""
    repository = open_repository(platform)
    header = choose_backup(repository, table, backup_id=backup_id, at=at, version=version)
    return restore_backup(platform, header.backup_id, target, overwrite=overwrite, on_progress=on_progress)


def restore_policy(
    platform: Platform,
    policy: str,
    folder: str,
    *,
    at: datetime | None = None,
    overwrite: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> list[RestoreReport]:
    """Restore every table that a policy has backed up, `shop.orders` to FOLDER/shop/orders."""
    find_policy(platform.config, policy)
    headers = open_repository(platform).manifests.headers().headers
    tables = sorted({header.table for header in headers if header.policy == policy})
    if not tables:
        raise NoSuchBackupError(policy, "by this policy", [])
    return [
        restore_table(
            platform,
            table,
            f"{folder.rstrip('/')}/{table.replace('.', '/')}",
            at=at,
            overwrite=overwrite,
            on_progress=on_progress,
        )
        for table in tables
    ]


def restore_backup(
    platform: Platform,
    backup_id: str,
    target: str,
    *,
    overwrite: bool = False,
    resumes: str | None = None,
    on_progress: OnProgress = lambda _: None,
) -> RestoreReport:
    """Restore one backup; whatever is raised, readers of the target see what was there before, and a retry goes on.

    With `resumes` it only goes on with the job of that id.
    """
    started = platform.clock.monotonic()
    location = target_location(platform, target)
    repository = open_repository(platform)
    manifest = repository.manifests.read(repository.find(backup_id))
    options = {"backup": backup_id, "overwrite": overwrite}
    with job_on(platform, "restore", location.uri, options, resumes=resumes) as (job, _), repository.shared():
        restore = _Restore(platform, repository.objects, manifest, location, job, on_progress)
        written, replaced = restore.write(overwrite=overwrite)
        restore.publish()
    files = [entry.source for entry in manifest.files]
    return RestoreReport(
        table=manifest.header.table,
        backup_id=backup_id,
        version=manifest.state.version,
        target=location.uri,
        files=len(files),
        bytes=sum(file.size for file in files),
        written_files=sum(count for count, _ in written),
        written_bytes=sum(size for _, size in written),
        rows=manifest.state.rows,
        replaced=replaced,
        duration_s=platform.clock.monotonic() - started,
    )


def undo_restore(platform: Platform, job: BackupJob) -> None:
    """Take back what an unfinished restore has done to its target; files that no log names are left to VACUUM."""
    location = target_location(platform, job.subject)
    with table_lock(location, platform.store, owner=process_owner()).exclusive():
        _take_back(place_of(location), job.id)


def _take_back(target: Place, job_id: str) -> None:
    """Let readers see what was there before; where that is being removed already, the restore is finished instead."""
    claim = read_claim(target)
    if claim is not None and claim.job == job_id and claim.phase is Phase.SETTLED:
        finish_publish(target, job_id)
    else:
        undo_publish(target, job_id)


def target_location(platform: Platform, target: str) -> TableLocation:
    """Return where a target is: a table of the lake by its name, else a folder or an s3:// address."""
    if TABLE_NAME.fullmatch(target) and "." in target and not Path(target).exists():
        return platform.lake.location(target)
    s3 = platform.config.lake_settings.s3
    return TableLocation(target.rstrip("/") if "://" in target else str(Path(target).absolute()), s3)


def _moment(header: BackupHeader) -> datetime:
    return datetime.fromtimestamp(header.committed_at_ms / 1000, UTC)


@dataclass(slots=True)
class _Restore:
    """One restore under way; used by one thread."""

    platform: Platform
    objects: ObjectStore
    manifest: Manifest
    location: TableLocation
    job: BackupJob
    on_progress: OnProgress

    @property
    def target(self) -> Place:
        return place_of(self.location)

    def write(self, *, overwrite: bool) -> tuple[list[Written], bool]:
        """Bring all files to the target; return what was written, and whether a table was there before."""
        self._free_target()
        claim = claim_target(self.target, self.job.id, overwrite=overwrite, besides=_LOCK_FILES)
        there = existing_files(self.target)
        if _is_shown(claim, there):
            return [], claim.replaces
        plan = plan_restore(self.manifest.files, there, job=self.job.id)
        total = sum(entry.source.size for entry in self.manifest.files)
        tasks = task_count(self.platform, total)
        work = RestoreWork(
            objects=self.objects,
            target=self.target,
            job_id=self.job.id,
            hands=restore_hands(plan, tasks),
            check=frozenset(entry.source.path for entry in plan.check),
            streams=stream_policy(self.platform, IoPriority.HIGH),
        )
        progress = TargetProgress(
            f"restoring {self.manifest.header.table}", plan, self.target, self.on_progress, self.platform.clock
        )
        written = run_tasks(self.platform, work.restore, len(work.hands), in_spark=tasks > 1, on_wait=progress.tell)
        progress.done()
        return [(count, size) for count, size in written], claim.replaces

    def _free_target(self) -> None:
        """Take back what a restore has left there that nobody will go on with; this process alone works on it now."""
        held = read_claim(self.target)
        known = {job.id for job in recorded_jobs(self.platform)}
        if held is not None and (held.job not in known or held.phase is Phase.WITHDRAWN):
            with self._committing():
                _take_back(self.target, held.job)

    def _committing(self) -> contextlib.AbstractContextManager[None]:
        return table_lock(self.location, self.platform.store, owner=process_owner()).exclusive()

    def publish(self) -> None:
        """Let readers see the table; nobody commits to the target meanwhile."""
        with self._committing():
            if not _is_shown(read_claim(self.target), existing_files(self.target)):
                publish_log(self.target, self.job.id, self.manifest.files)
            finish_publish(self.target, self.job.id)


def _is_shown(claim: Claim | None, there: Collection[str]) -> bool:
    """Whether readers see the restored log already, so that there is nothing left to write."""
    if claim is None or claim.phase not in {Phase.STAGED, Phase.PUBLISHED, Phase.SETTLED}:
        return False
    waits = any(path.startswith(f"{claim.staging}/") for path in there)
    return claim.phase is not Phase.STAGED or not waits


Shelf = tuple[StoredFile, ...]
"""Files that lie in one object, read together."""


def restore_hands(plan: RestorePlan, count: int) -> tuple[tuple[Shelf, ...], ...]:
    """Return what is read at once, dealt out evenly by size."""
    shelves: dict[str, list[StoredFile]] = {}
    for entry in (*plan.write, *plan.check):
        shelves.setdefault(entry.object_name if entry.offset is not None else f"/{entry.source.path}", []).append(entry)
    ordered = sorted(map(tuple, shelves.values()), key=_size, reverse=True)
    return tuple(tuple(ordered[first::count]) for first in range(min(count, len(ordered))))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreWork:
    """What the tasks of one restore do; picklable."""

    objects: ObjectStore
    target: Place
    job_id: str
    hands: tuple[tuple[Shelf, ...], ...]
    check: frozenset[str]
    """Files that are there in the right size, perhaps with the right bytes."""

    streams: StreamPolicy

    def restore(self, hand: int) -> Written:
        """Write the files of one hand and return what was not there already."""
        written = run_streams(self.hands[hand], self._write, self.streams.shared_by(len(self.hands)))
        return sum(count for count, _ in written), sum(size for _, size in written)

    def _write(self, shelf: Shelf, io: Gate) -> Written:
        missing = [entry for entry in shelf if not self._is_there(entry, io)]
        if len(missing) == 1:
            self._write_one(missing[0], io)
        elif missing:
            for entry, content in self.objects.read_pack(missing, io=io):
                restore_file(entry, [content], self.target, job=self.job_id, gate=io)
        return len(missing), _size(missing)

    def _write_one(self, entry: StoredFile, io: Gate) -> None:
        # Hashed once, on its way to the target: twice takes as much of a core as all the rest.
        content = self.objects.read_unchecked(entry, io=io)
        try:
            restore_file(entry, content, self.target, job=self.job_id, gate=io)
        except RestoredBytesDifferError as error:
            reason = f"{entry.source.path} was to have {error.expected}, but has {error.found}"
            raise ObjectDamagedError(entry.object_name, reason) from error

    def _is_there(self, entry: StoredFile, io: Gate) -> bool:
        return entry.source.path in self.check and holds(entry, self.target, job=self.job_id, gate=io)


@dataclass(slots=True)
class TargetProgress:
    """How much of a restore is there, by listing its target now and then."""

    what: str
    plan: RestorePlan
    target: Place
    on_progress: OnProgress
    clock: Clock
    _next: float = 0.0

    def tell(self) -> None:
        """Say how far it is, unless looking again would take too much of the time."""
        began = self.clock.monotonic()
        if began < self._next:
            return
        there = existing_files(self.target)
        sizes = [entry.source.size for entry in self.plan.write if there.get(entry.source.path) == entry.source.size]
        self._say(sum(sizes), len(sizes))
        now = self.clock.monotonic()
        self._next = now + (now - began) / _LOOKING_SHARE

    def done(self) -> None:
        """Say that everything is there."""
        self._say(self.plan.bytes, len(self.plan.write))

    def _say(self, done: int, files: int) -> None:
        self.on_progress(
            BackupProgress(
                what=self.what,
                done_bytes=done,
                total_bytes=self.plan.bytes,
                files=files,
                of_files=len(self.plan.write),
            )
        )


def _size(shelf: Any) -> int:
    return sum(entry.source.size for entry in shelf)
