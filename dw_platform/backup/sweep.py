"""Removing expired backups, and then what no backup needs any more.

Order: a new token; every manifest that stays is read, before anything changes; expired manifests go, durably; then
objects that nothing names. A crash at any step leaves whole backups and objects that the next sweep finds, because each
sweep works out anew what is needed.

What is needed: every object that a manifest names, or a note of a job that may still be resumed. What is spared
besides: everything younger than the grace period. Nothing is removed as long as one manifest cannot be read.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dw_platform.backup.fence import Hold
from dw_platform.backup.health import BROKEN
from dw_platform.backup.journal import is_note, read_note
from dw_platform.backup.layout import NOTES, OBJECTS, QUARANTINE
from dw_platform.backup.manifest import BackupHeader
from dw_platform.backup.manifests import BackupRef, ref_of
from dw_platform.backup.objects import lacking
from dw_platform.backup.policy import RetentionPolicy, SweepPolicy
from dw_platform.backup.repository import BackupRepository
from dw_platform.backup.repository_errors import BackupNotFoundError, TakenOverError
from dw_platform.backup.retention import ExpiryPlan, HeldBackup, plan_expiry
from dw_platform.backup.sealed import DocumentDamagedError
from dw_platform.backup.storage import Listed
from dw_platform.foundation import InvalidValueError
from dw_platform.foundation.durable import TEMPORARY_SUFFIX
from dw_platform.store import LeaseMode

log = logging.getLogger(__name__)

# Between two looks for new backups: few enough that one look costs little beside them.
_BATCH = 256


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Which files go, and how much was spared because it is young."""

    remove: tuple[str, ...]
    bytes: int
    spared_bytes: int


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What was removed."""

    backups: tuple[str, ...]
    files: int
    bytes: int
    spared_bytes: int


def held_backups(repository: BackupRepository) -> tuple[list[HeldBackup], dict[str, int]]:
    """Return every backup with its objects, and the size of every object; names are shared between backups."""
    names: dict[str, str] = {}
    sizes: dict[str, int] = {}
    held = []
    for ref in repository.manifests.refs():
        try:
            header, objects = repository.manifests.needs(ref)
        except BackupNotFoundError:
            continue  # removed since the names were listed
        sizes.update(objects)
        held.append(HeldBackup(header, tuple(names.setdefault(name, name) for name in objects)))
    return held, sizes


def expiry(repository: BackupRepository, policy: RetentionPolicy | Mapping[str, RetentionPolicy]) -> ExpiryPlan:
    """Return what retention would remove now; nothing is changed, so this is also the dry run."""
    held, sizes = held_backups(repository)
    index = repository.objects.index()
    lost = set(lacking(sizes, index))
    broken = repository.health.broken_ids().union(each.id for each in held if not lost.isdisjoint(each.objects))
    return plan_expiry(held, sizes, policy, now=repository.clock.now(), pins=repository.pins.ids(), broken=broken)


def plan_sweep(
    files: Mapping[str, Listed],
    *,
    needed: Collection[str],
    backups: Collection[str],
    now: datetime,
    policy: SweepPolicy,
) -> SweepPlan:
    """Return which of a repository's files go; `needed` are objects, `backups` the ids there are."""
    remove, spared = list[str](), 0
    finished = _finished_jobs(files, now, policy)
    for path, listed in sorted(files.items()):
        top, _, rest = path.partition("/")
        age = now - listed.modified
        if path.endswith(TEMPORARY_SUFFIX):
            gone = age > policy.grace
        elif top == OBJECTS:
            gone = rest not in needed and age > policy.grace
            spared += 0 if gone or rest in needed else listed.size
        elif top == NOTES:
            gone = rest.partition("/")[0] in finished
        elif top == QUARANTINE:
            gone = age > policy.quarantine_for
        else:
            gone = path.startswith(f"{BROKEN}/") and _backup_of(path) not in backups and age > policy.quarantine_for
        if gone:
            remove.append(path)
    return SweepPlan(tuple(remove), sum(files[path].size for path in remove), spared)


def prune(
    repository: BackupRepository, remove: Iterable[BackupHeader], hold: Hold, policy: SweepPolicy | None = None
) -> SweepReport:
    """Remove these backups, except those pinned since, and everything that is needed no more.

    `hold` is exclusive. Raise ManifestDamagedError, with nothing changed, if a manifest that stays cannot be read.
    """
    if hold.lease.mode is not LeaseMode.EXCLUSIVE:
        raise InvalidValueError("hold", hold.lease.mode.value, "exclusive: backups must not run beside a sweep")
    return _Sweep(repository, hold, policy or SweepPolicy()).run(remove)


@dataclass
class _Sweep:
    """One sweep; knows which backups it has read."""

    repository: BackupRepository
    hold: Hold
    policy: SweepPolicy
    seen: set[BackupRef] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    token: str = ""

    def run(self, remove: Iterable[BackupHeader]) -> SweepReport:
        self.hold.lease.ensure_held()
        self.token = self.repository.fence.advance(self.hold.lease.owner, self.repository.clock.now())
        pinned = self.repository.pins.ids()
        expired = [ref_of(header) for header in remove if header.backup_id not in pinned]
        self._read_backups(besides=expired)
        for ref in expired:
            self.hold.lease.ensure_held()
            self.repository.manifests.remove(ref)
            self.repository.health.forget(ref.backup_id)
        files = self.repository.storage.walk()
        self._read_notes(files)
        plan = plan_sweep(
            files,
            needed=self.needed,
            backups={ref.backup_id for ref in self.seen},
            now=self.repository.clock.now(),
            policy=self.policy,
        )
        removed = self._remove(plan.remove, files)
        report = SweepReport(tuple(ref.backup_id for ref in expired), len(removed), sum(removed), plan.spared_bytes)
        log.info("repository swept", extra={"backups": len(expired), "files": report.files, "bytes": report.bytes})
        return report

    def _read_backups(self, besides: Collection[BackupRef] = ()) -> None:
        """Read the backups that were not read before, so that what they need stays."""
        for ref in self.repository.manifests.refs():
            if ref not in self.seen and ref not in besides:
                self.seen.add(ref)
                try:
                    self.needed.update(self.repository.manifests.needs(ref)[1])
                except BackupNotFoundError:
                    log.info("backup was taken back", extra={"table": ref.table, "backup": ref.backup_id})

    def _read_notes(self, files: Mapping[str, Listed]) -> None:
        now = self.repository.clock.now()
        finished = _finished_jobs(files, now, self.policy)
        for path in files:
            if path.startswith(f"{NOTES}/") and is_note(path) and path.split("/")[1] not in finished:
                try:
                    entries = read_note(self.repository.storage, path, self.repository.keys)
                except DocumentDamagedError as error:
                    # Its job copies these files again; objects of a job that runs are younger than the grace anyway.
                    log.warning("note protects nothing", extra={"file": path, "reason": str(error)})
                    continue
                self.needed.update(entry.object_name for entry in entries)

    def _remove(self, paths: Sequence[str], files: Mapping[str, Listed]) -> list[int]:
        removed = []
        for batch in _batches(paths):
            if self.repository.fence.current() != self.token:
                raise TakenOverError(self.repository.place.shown)
            self._read_backups()
            for path in batch:
                if path.startswith(f"{OBJECTS}/") and path.partition("/")[2] in self.needed:
                    continue
                self.hold.lease.ensure_held()
                # Not durably: one that comes back after a crash is found by the next sweep.
                self.repository.storage.remove(path, durably=False)
                removed.append(files[path].size)
        return removed


def _finished_jobs(files: Mapping[str, Listed], now: datetime, policy: SweepPolicy) -> set[str]:
    """Return the jobs whose newest note is so old that nobody will resume them, by their folder."""
    newest: dict[str, datetime] = {}
    for path, listed in files.items():
        if path.startswith(f"{NOTES}/"):
            job = path.split("/")[1]
            newest[job] = max(newest.get(job, listed.modified), listed.modified)
    return {job for job, modified in newest.items() if now - modified > policy.notes_for}


def _backup_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")


def _batches(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), _BATCH):
        yield paths[start : start + _BATCH]
