"""Verification: every manifest, the presence of every object, and the contents of all, of what is new, or of a share.

What is damaged is read a second time and then moved to `quarantine/`, so that the next backup stores it again from the
source; a document is mended from its twin. What each bad object breaks is worked out from the manifests and recorded in
`health/`; a record goes when everything is there again. An object that cannot be read right now, because a server does
not answer, is reported, and neither moved nor held against any backup.

Threads or tasks may do the reading: `each` is called like `map`, with a function that can be pickled.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from dw_platform.backup.description import mend_description
from dw_platform.backup.fence import Hold
from dw_platform.backup.findings import (
    Each,
    Finding,
    FindingKind,
    ObjectCheck,
    VerifyReport,
    VerifyScope,
    select_objects,
)
from dw_platform.backup.health import BROKEN, VERIFIED, BrokenBackup, Problem
from dw_platform.backup.journal import read_note
from dw_platform.backup.layout import DESCRIPTION, FENCE, NOTES, OBJECTS, PINS, QUARANTINE, is_backup_id
from dw_platform.backup.manifest import Manifest
from dw_platform.backup.objects import lacking
from dw_platform.backup.repository import BackupRepository
from dw_platform.backup.repository_errors import BackupNotFoundError, ManifestDamagedError
from dw_platform.backup.sealed import DocumentDamagedError
from dw_platform.foundation.durable import TEMPORARY_SUFFIX

log = logging.getLogger(__name__)

# A backup is taken back within moments of being published, if at all; clocks of machines differ by more than that.
_SETTLED = timedelta(hours=1)
_EVERYTHING = ("every file",)


def verify(repository: BackupRepository, scope: VerifyScope | None = None, *, each: Each = map) -> VerifyReport:
    """Verify the repository beside backups and restores; mend, or set aside, what is damaged."""
    with repository.shared() as hold:
        return _Verification(repository, scope or VerifyScope(), hold).run(each)


class _Verification:
    def __init__(self, repository: BackupRepository, scope: VerifyScope, hold: Hold) -> None:
        self._repository, self._scope, self._hold = repository, scope, hold
        self._findings: list[Finding] = []
        self._needed: dict[str, set[int]] = {}
        """Objects that backups need, with the sizes that they were stored in."""
        self._broken: dict[str, BrokenBackup] = {}
        self._existing: set[str] = set()
        self._started = repository.clock.now()

    def run(self, each: Each) -> VerifyReport:
        # Manifests first: whatever they name was stored before they were read.
        self._manifests()
        self._documents()
        listing = self._repository.objects.listing()
        sizes = {name: listed.size for name, listed in listing.items()}
        doubtful = {name for name, stored in self._needed.items() if name in sizes and stored != {sizes[name]}}
        chosen = sorted(doubtful.union(select_objects(listing, self._scope, self._verified_at())))
        check = ObjectCheck(self._repository.objects)
        bad = [found for found in each(check, [(name, sizes[name]) for name in chosen]) if found is not None]
        confirmed = [self._confirmed(finding, sizes[finding.file], check) for finding in bad]
        report_bytes = sum(sizes[name] for name in chosen)
        for finding in confirmed:
            if finding.kind is not FindingKind.UNREADABLE:
                del sizes[finding.file]
        self._work_out(confirmed, sizes)
        self._hold.lease.ensure_held()
        healed = self._repository.health.record(self._broken, self._existing)
        if self._scope.share == 1 and not any(finding.kind is FindingKind.UNREADABLE for finding in confirmed):
            self._repository.health.set_verified(self._started)
        return VerifyReport(
            objects_present=len(listing),
            objects_read=len(chosen),
            bytes_read=report_bytes,
            findings=tuple(self._findings),
            broken=self._broken,
            healed=healed,
        )

    def _manifests(self) -> None:
        store = self._repository.manifests
        for ref in store.refs():
            self._existing.add(ref.backup_id)
            try:
                if mended := store.mend(ref, settled=self._started - _SETTLED):
                    self._findings.append(Finding(FindingKind.MENDED, ref.path, mended))
                for name, size in store.needs(ref)[1].items():
                    self._needed.setdefault(name, set()).add(size)
            except BackupNotFoundError:
                log.info("backup was taken back", extra={"table": ref.table, "backup": ref.backup_id})
            except ManifestDamagedError as error:
                breaks = {ref.backup_id: _EVERYTHING}
                self._findings.append(Finding(FindingKind.DAMAGED, ref.path, error.reason, breaks))
                self._break(ref.backup_id, ref.table, Problem(ref.path, error.reason, _EVERYTHING))

    def _documents(self) -> None:
        """Look at everything else that was written with a check."""
        repository = self._repository
        if problem := mend_description(repository.storage):
            self._findings.append(Finding(FindingKind.MENDED, DESCRIPTION, problem))
        try:
            repository.fence.read()
        except DocumentDamagedError as error:
            # A new token makes backups that run look for their objects once more, which is harmless.
            repository.fence.advance(self._hold.lease.owner, self._started)
            self._findings.append(Finding(FindingKind.MENDED, FENCE, str(error)))
        for folder in (PINS, NOTES, BROKEN):
            for path in repository.storage.walk(folder):
                if not path.endswith(TEMPORARY_SUFFIX) and (reason := self._damage(folder, path)):
                    self._findings.append(Finding(FindingKind.DAMAGED, path, reason))

    def _verified_at(self) -> datetime | None:
        try:
            return self._repository.health.verified_at()
        except DocumentDamagedError as error:
            self._findings.append(Finding(FindingKind.DAMAGED, VERIFIED, str(error)))
            return None  # everything counts as new

    def _damage(self, folder: str, path: str) -> str | None:
        repository = self._repository
        backup_id = path.rpartition("/")[2].removesuffix(".json")
        try:
            if folder == NOTES:
                read_note(repository.storage, path, repository.keys)
            elif not is_backup_id(backup_id):
                return "its name is not that of a backup"
            elif folder == PINS:
                repository.pins.get(backup_id)
            else:
                repository.health.broken(backup_id)
        except FileNotFoundError:
            return None  # just removed
        except DocumentDamagedError as error:
            return str(error)
        return None

    def _confirmed(self, finding: Finding, size: int, check: ObjectCheck) -> Finding:
        """Return the finding after a second look, with the damaged object moved out of the way."""
        if finding.kind is not FindingKind.DAMAGED:
            return finding
        again = check((finding.file, size))
        if again is None:
            return replace(finding, kind=FindingKind.UNREADABLE, reason=f"{finding.reason}; read again, it was right")
        if again.kind is FindingKind.DAMAGED:
            self._set_aside(again)
        return again

    def _set_aside(self, finding: Finding) -> None:
        # A backup that runs may count on the object; with a new token it looks again before it is done.
        self._repository.fence.advance(self._hold.lease.owner, self._started)
        path = f"{OBJECTS}/{finding.file}"
        self._repository.storage.move(path, f"{QUARANTINE}/{path}")
        log.error("object set aside", extra={"object": finding.file, "reason": finding.reason})

    def _work_out(self, confirmed: Iterable[Finding], sizes: dict[str, int]) -> None:
        """Add what bad and missing objects break; `sizes` are those of the objects that are still there."""
        bad = {finding.file: finding for finding in confirmed}
        for name, stored in self._needed.items():
            wanted = max(stored, key=lambda size: size != sizes.get(name))
            if name not in bad and lacking({name: wanted}, sizes):
                reason = f"it has {sizes[name]} bytes, {wanted} were stored" if name in sizes else "it is not there"
                bad[name] = Finding(FindingKind.MISSING, name, reason)
        if bad:
            for ref in self._repository.manifests.refs():
                try:
                    self._work_out_backup(self._repository.manifests.read(ref), bad)
                except (BackupNotFoundError, ManifestDamagedError):
                    continue  # told already
        self._findings += bad.values()

    def _work_out_backup(self, manifest: Manifest, bad: dict[str, Finding]) -> None:
        table, backup_id = manifest.header.table, manifest.header.backup_id
        files: dict[str, list[str]] = {}
        for stored in manifest.files:
            if stored.object_name in bad:
                files.setdefault(stored.object_name, []).append(stored.source.path)
        for name, paths in files.items():
            finding = bad[name]
            bad[name] = replace(finding, breaks={**finding.breaks, backup_id: tuple(paths)})
            if finding.kind is not FindingKind.UNREADABLE:
                self._break(backup_id, table, Problem(name, finding.reason, tuple(paths)))

    def _break(self, backup_id: str, table: str, problem: Problem) -> None:
        known = self._broken.get(backup_id, BrokenBackup(backup_id, table, self._started, ()))
        self._broken[backup_id] = replace(known, problems=(*known.problems, problem))
