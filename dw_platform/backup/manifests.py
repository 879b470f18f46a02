"""The manifests of a repository: each is there twice, so that damage to one file takes no backup.

    manifests/TABLE/ID.manifest           a backup exists from the moment that this file does
    copies/manifests/TABLE/ID.manifest    its twin, written next and removed first

A twin alone means that the manifest was lost; it serves in its place. A manifest alone is what a crash between the
two leaves, and `mend` writes the other one again.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import (
    MANIFEST_SUFFIX,
    MANIFESTS,
    QUARANTINE,
    escaped,
    is_backup_id,
    manifest_path,
    twin_of,
    unescaped,
)
from dw_platform.backup.manifest import (
    BackupHeader,
    Manifest,
    decode_header,
    decode_manifest,
    decode_needs,
    encode_manifest,
)
from dw_platform.backup.repository_errors import BackupNotFoundError, ManifestDamagedError
from dw_platform.backup.sealed import DocumentDamagedError
from dw_platform.backup.storage import Storage

log = logging.getLogger(__name__)

# Longer than any header: a table's name has 200 characters at most.
_HEADER_BYTES = 16 * 1024
# Requests to a bucket wait for the network; headers of a local disk come faster one after the other.
_REQUESTS_AT_ONCE = 16

_MISSING = "it was missing"

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, order=True)
class BackupRef:
    """Which backup."""

    table: str
    backup_id: str

    @property
    def path(self) -> str:
        """Return where its manifest is."""
        return manifest_path(self.table, self.backup_id)


@dataclass(frozen=True, slots=True)
class BackupListing:
    """The backups there are, oldest first, and those whose manifest cannot be read in either copy."""

    headers: tuple[BackupHeader, ...]
    damaged: tuple[ManifestDamagedError, ...]


@dataclass(frozen=True, slots=True)
class ManifestStore:
    """Reads and writes the manifests of one repository."""

    storage: Storage
    keys: RepositoryKeys | None
    repository_id: str

    def refs(self, table: str | None = None) -> list[BackupRef]:
        """Return which backups there are, by table and time."""
        below = MANIFESTS if table is None else f"{MANIFESTS}/{escaped(table)}"
        found = {*self.storage.walk(below), *(path.partition("/")[2] for path in self.storage.walk(twin_of(below)))}
        return sorted(ref for ref in map(_ref, found) if ref is not None)

    def latest_id(self, table: str) -> str | None:
        """Return the id of the table's newest backup; the next one's must sort behind it."""
        refs = self.refs(table)
        return refs[-1].backup_id if refs else None

    def headers(self, table: str | None = None) -> BackupListing:
        """Return the headers of all backups, reading only the beginning of each manifest."""
        refs = self.refs(table)
        if self.storage.place.is_local:
            return _listing(map(self._tried, refs))
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            return _listing(pool.map(self._tried, refs))

    def read(self, ref: BackupRef) -> Manifest:
        """Return the manifest from whichever copy is as it was written."""
        return self._load(ref, lambda data: self._placed(ref, decode_manifest(data, self.keys)), at_most=None)

    def needs(self, ref: BackupRef) -> tuple[BackupHeader, dict[str, int]]:
        """Return the header and the objects that the backup needs, with their sizes."""

        def parse(data: bytes) -> tuple[BackupHeader, dict[str, int]]:
            header, objects = decode_needs(data, self.keys)
            return self._placed(ref, header), objects

        return self._load(ref, parse, at_most=None)

    def write(self, manifest: Manifest) -> BackupRef:
        """Write the manifest: from now on the backup exists."""
        ref = ref_of(manifest.header)
        self.storage.write(ref.path, encode_manifest(manifest, self.keys))
        return ref

    def write_twin(self, ref: BackupRef) -> None:
        """Write the second copy of a manifest that is there."""
        self.storage.write(twin_of(ref.path), self.storage.read(ref.path))

    def remove(self, ref: BackupRef) -> None:
        """Remove both copies for good; after a crash in between the backup still exists."""
        self.storage.remove(twin_of(ref.path))
        self.storage.remove(ref.path)

    def set_aside(self, ref: BackupRef) -> None:
        """Move whatever is there of a manifest out of the way, to be looked at."""
        for path in (twin_of(ref.path), ref.path):
            if self.storage.find(path) is not None:
                self.storage.move(path, f"{QUARANTINE}/{path}")

    def mend(self, ref: BackupRef, *, settled: datetime | None = None) -> str | None:
        """Write the copy again that is missing or damaged; return what was wrong, None if nothing.

        A manifest written after `settled` may have no twin: its backup may still be taken back, and a twin that comes
        after that would bring it to life again.
        """
        problems: dict[str, str] = {}
        intact = None
        for path in (ref.path, twin_of(ref.path)):
            try:
                data = self.storage.read(path)
                self._placed(ref, decode_needs(data, self.keys)[0])
                intact = data
            except FileNotFoundError:
                problems[path] = _MISSING
            except DocumentDamagedError as error:
                problems[path] = str(error)
        if len(problems) == 2 and set(problems.values()) == {_MISSING}:
            raise BackupNotFoundError(ref.backup_id, ref.table)
        if settled is not None and problems == {twin_of(ref.path): _MISSING}:
            written = self.storage.find(ref.path)
            if written is None or written.modified > settled:
                return None
        described = "; ".join(f"{path}: {problem}" for path, problem in problems.items())
        if intact is None:
            raise ManifestDamagedError(ref.table, ref.backup_id, described)
        for path in problems:
            self.storage.write(path, intact)
        return described or None

    def _tried(self, ref: BackupRef) -> BackupHeader | ManifestDamagedError | None:
        try:
            return self._load(
                ref, lambda data: self._placed(ref, decode_header(data, self.keys)), at_most=_HEADER_BYTES
            )
        except ManifestDamagedError as error:
            return error
        except BackupNotFoundError:
            return None  # removed since the names were listed

    def _load(self, ref: BackupRef, parse: Callable[[bytes], Part], *, at_most: int | None) -> Part:
        reasons = []
        for path in (ref.path, twin_of(ref.path)):
            try:
                return parse(self.storage.read(path, at_most=at_most))
            except FileNotFoundError:
                continue
            except DocumentDamagedError as error:
                log.warning("manifest damaged", extra={"file": path, "reason": str(error)})
                reasons.append(f"{path}: {error}")
        if not reasons:
            self.storage.require_there()
            raise BackupNotFoundError(ref.backup_id, ref.table)
        raise ManifestDamagedError(ref.table, ref.backup_id, "; ".join(reasons))

    def _placed(self, ref: BackupRef, part: Part) -> Part:
        """Return the part if it belongs where it was found: a check says nothing about the name of the file."""
        header = part.header if isinstance(part, Manifest) else part
        assert isinstance(header, BackupHeader)
        if (header.table, header.backup_id, header.repository_id) != (ref.table, ref.backup_id, self.repository_id):
            raise DocumentDamagedError(f"it is that of {header.backup_id} of {header.table}, moved here")
        return part


def ref_of(header: BackupHeader) -> BackupRef:
    """Return which backup the header is of."""
    return BackupRef(header.table, header.backup_id)


def _ref(path: str) -> BackupRef | None:
    """Return which backup a file below `manifests` is of; None for what is not a manifest."""
    _, table, name = path.split("/") if path.count("/") == 2 else ("", "", "")
    backup_id = name.removesuffix(MANIFEST_SUFFIX)
    return BackupRef(unescaped(table), backup_id) if is_backup_id(backup_id) and name != backup_id else None


def _listing(tried: Iterable[BackupHeader | ManifestDamagedError | None]) -> BackupListing:
    found = list(tried)
    return BackupListing(
        tuple(sorted((each for each in found if isinstance(each, BackupHeader)), key=lambda each: each.backup_id)),
        tuple(each for each in found if isinstance(each, ManifestDamagedError)),
    )
