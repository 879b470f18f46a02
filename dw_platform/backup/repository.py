"""A repository of backups: what there is, what may use it at once, and how a backup comes to be.

A backup exists from the moment that its manifest does, which is written last. Until then it is objects that nobody
needs and notes that say which, and a crash costs no more than going on from there.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from dw_platform.backup.description import create_description, read_description
from dw_platform.backup.fence import Fence, Hold
from dw_platform.backup.health import Health
from dw_platform.backup.journal import Journal
from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import DESCRIPTION, OBJECT_FOLDERS, OBJECTS
from dw_platform.backup.manifest import Manifest
from dw_platform.backup.manifests import BackupRef, ManifestStore
from dw_platform.backup.objects import ObjectStore, lacking
from dw_platform.backup.pins import Pins
from dw_platform.backup.place import Place
from dw_platform.backup.repository_errors import (
    BackupNotFoundError,
    RepositoryBusyError,
    SweptMeanwhileError,
)
from dw_platform.backup.storage import Storage, translated
from dw_platform.foundation import Clock, PlatformError, SystemClock
from dw_platform.store import Lease, LeaseLock, LeaseMode, LeaseTimeoutError, PersistentStore, internal_key
from dw_platform.store.owner import is_dead, process_owner

log = logging.getLogger(__name__)

# How long a backup waits for a sweep and the other way round, before it says who is in the way.
DEFAULT_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class BackupRepository:
    """One repository; `open` is the way in."""

    storage: Storage
    id: str
    platform: str
    keys: RepositoryKeys | None
    store: PersistentStore = field(repr=False)
    clock: Clock = field(default_factory=SystemClock, repr=False)
    """Tells ages of backups and files; leases go by the machine's own time, like the processes that hold them."""

    compress: bool = True

    @classmethod
    def open(
        cls,
        place: Place,
        *,
        platform: str,
        store: PersistentStore,
        secret: str | None = None,
        create: bool = False,
        compress: bool = True,
        clock: Clock | None = None,
    ) -> Self:
        """Open the repository in `place`, with `create` making it there if the folder is empty or missing.

        Of several processes that make it at once, one does and the others open it. `secret` is what an encrypted
        repository is made and opened with.
        """
        storage, clock = Storage(place), clock or SystemClock()
        made = create and storage.find(DESCRIPTION) is None and _create(storage, platform, store, secret, clock)
        description = read_description(storage, platform)
        keys = description.keys(secret, place.shown)
        repository = cls(storage, description.repository_id, platform, keys, store, clock, compress)
        if made:
            storage.make_folders(OBJECTS, OBJECT_FOLDERS)
            repository.fence.advance(process_owner(), clock.now())
        return repository

    @property
    def place(self) -> Place:
        return self.storage.place

    @property
    def objects(self) -> ObjectStore:
        return ObjectStore(self.place, self.keys, self.compress)

    @property
    def manifests(self) -> ManifestStore:
        return ManifestStore(self.storage, self.keys, self.id)

    @property
    def pins(self) -> Pins:
        return Pins(self.storage, self.keys)

    @property
    def health(self) -> Health:
        return Health(self.storage, self.keys)

    @property
    def fence(self) -> Fence:
        return Fence(self.storage, self.keys)

    def journal(self, job_id: str) -> Journal:
        """Return the notes of a job."""
        return Journal(self.storage, self.keys, job_id)

    def find(self, backup_id: str, table: str | None = None) -> BackupRef:
        """Return the backup with that id; raise BackupNotFoundError."""
        for ref in self.manifests.refs(table):
            if ref.backup_id == backup_id:
                return ref
        raise BackupNotFoundError(backup_id, table)

    def pin(self, backup_id: str, *, reason: str, by: str) -> None:
        """Keep a backup whatever retention says. Beside a sweep that is under way this waits, so it cannot be late."""
        with self.shared():
            self.find(backup_id)
            self.pins.add(backup_id, reason=reason, by=by, now=self.clock.now())

    @contextlib.contextmanager
    def shared(self, *, wait_s: float = DEFAULT_WAIT_S) -> Iterator[Hold]:
        """Use the repository beside others, to back up, restore or verify."""
        with self._held(LeaseMode.SHARED, wait_s) as hold:
            yield hold

    @contextlib.contextmanager
    def exclusive(self, *, wait_s: float = DEFAULT_WAIT_S) -> Iterator[Hold]:
        """Use the repository alone, to remove from it."""
        with self._held(LeaseMode.EXCLUSIVE, wait_s) as hold:
            yield hold

    def publish(self, manifest: Manifest, hold: Hold) -> BackupRef:
        """Make the backup exist; raise SweptMeanwhileError, with nothing published, if its objects are not safe."""
        hold.lease.ensure_held()
        if self.fence.current() != hold.token and (lost := self._lost(manifest)):
            raise SweptMeanwhileError(manifest.header.backup_id, lost)
        ref = self.manifests.write(manifest)
        try:
            reason = self._doubt(manifest, hold)
        except BaseException:
            self._take_back(ref)
            raise
        if reason is not None:
            self._take_back(ref)
            raise SweptMeanwhileError(manifest.header.backup_id, reason)
        self._write_twin(ref)
        log.info("backup published", extra={"table": ref.table, "backup": ref.backup_id})
        return ref

    def _doubt(self, manifest: Manifest, hold: Hold) -> str | None:
        """Return why a manifest that was just written must go again."""
        # First the token: a sweep that begins after it was read finds the manifest.
        moved = self.fence.current() != hold.token
        if hold.lease.lost:
            return "the right to use the repository ended before it was published"
        return self._lost(manifest) if moved else None

    def _lost(self, manifest: Manifest) -> str | None:
        names = lacking(manifest.objects(), self.objects.index())
        return (
            f"{len(names)} of its objects have been removed or set aside meanwhile, such as {names[0]}"
            if names
            else None
        )

    def _take_back(self, ref: BackupRef) -> None:
        try:
            self.manifests.remove(ref)
        except PlatformError as error:
            # Verification tells whether it restores.
            log.warning("backup not taken back", extra={"backup": ref.backup_id, "reason": str(error)})

    def _write_twin(self, ref: BackupRef) -> None:
        try:
            self.manifests.write_twin(ref)
        except (PlatformError, FileNotFoundError) as error:
            # The backup exists; the next verification writes the twin.
            log.warning("twin of the manifest not written", extra={"backup": ref.backup_id, "reason": str(error)})

    @contextlib.contextmanager
    def _held(self, mode: LeaseMode, wait_s: float) -> Iterator[Hold]:
        key = internal_key("backup-repository", self.id)
        lock = LeaseLock(self.store, key, owner=process_owner())
        with _lease(lock, mode, self.place, wait_s) as lease:
            yield Hold(lease, self.fence.current())


def _create(storage: Storage, platform: str, store: PersistentStore, secret: str | None, clock: Clock) -> bool:
    """Make the repository unless there is one; return whether this call did."""
    if storage.place.is_local:
        with translated(storage.place), contextlib.suppress(FileExistsError):
            storage.place.local.mkdir(parents=True)
    # Local folders need no lease for this; a bucket has no other way to let one writer be the first.
    key = internal_key("backup-repository", "create", storage.place.shown)
    with _lease(LeaseLock(store, key, owner=process_owner()), LeaseMode.EXCLUSIVE, storage.place, DEFAULT_WAIT_S):
        return create_description(storage, platform=platform, secret=secret, now=clock.now())


def _lease(lock: LeaseLock, mode: LeaseMode, place: Place, wait_s: float) -> Lease:
    lock.forget(is_dead)
    try:
        return lock.acquire(mode, timeout_s=wait_s)
    except LeaseTimeoutError as error:
        raise RepositoryBusyError(place.shown, mode.value, error.holders) from error
