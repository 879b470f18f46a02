"""A backup's manifest: everything that a restore has to know, in one document that needs no other.

Its first line is the header; it can be read and trusted by itself, so that listing backups reads a few hundred bytes of
each. The body is lines of JSON: first the table's state, then every file with the object that holds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from typing import Any

import orjson

from dw_platform.backup.contents import StoredFile, TableState
from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import checked_id, new_backup_id
from dw_platform.backup.sealed import DocumentDamagedError, facts_of, seal, unseal
from dw_platform.backup.stored_lines import from_lines, to_lines
from dw_platform.foundation import InvalidValueError

KIND = "manifest"


class BackupKind(StrEnum):
    """What was read to make a backup; every backup restores by itself."""

    FULL = "full"
    """Every file was read and hashed again."""

    INCREMENTAL = "incremental"
    """Files that the parent has unchanged were taken from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupTotals:
    """What a backup amounts to."""

    files: int
    bytes: int
    """Of all files as they are in the table."""

    objects: int
    stored_bytes: int
    """Of the objects that hold them; other backups may need the same ones."""

    copied_files: int
    copied_bytes: int
    """Of the files that this backup had to read."""

    @classmethod
    def of(cls, files: Iterable[StoredFile], copied: Iterable[StoredFile]) -> "BackupTotals":
        """Return the totals of a backup that has `files`, of which it read `copied`."""
        listed, read = tuple(files), [stored.source.size for stored in copied]
        objects = {stored.object_name: stored.object_size for stored in listed}
        return cls(
            files=len(listed),
            bytes=sum(stored.source.size for stored in listed),
            objects=len(objects),
            stored_bytes=sum(objects.values()),
            copied_files=len(read),
            copied_bytes=sum(read),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupHeader:
    """What one backup is; ids of a table sort by time."""

    backup_id: str
    job_id: str
    repository_id: str
    platform: str
    table: str
    policy: str
    kind: BackupKind
    chain_id: str
    """The id of the full backup that it stands on, its own if it is one."""

    parent_id: str | None
    """The backup whose hashes it trusts; not needed to restore it."""

    created: datetime
    fence: str
    """The token of the latest sweep when it began."""

    table_version: int
    committed_at_ms: int
    totals: BackupTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One backup, whole."""

    header: BackupHeader
    state: TableState
    files: tuple[StoredFile, ...]

    def objects(self) -> dict[str, int]:
        """Return the objects that it needs, with their sizes."""
        return {stored.object_name: stored.object_size for stored in self.files}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupIdentity:
    """Whose backup it is, and of what."""

    repository_id: str
    platform: str
    table: str
    policy: str
    job_id: str


def new_manifest(
    identity: BackupIdentity,
    state: TableState,
    files: Sequence[StoredFile],
    *,
    copied: Iterable[StoredFile],
    parent: BackupHeader | None,
    latest_id: str | None,
    fence: str,
    now: datetime,
) -> Manifest:
    """Return the manifest of a backup that is complete; with a parent it is an incremental one."""
    if parent is not None and (parent.table, parent.policy) != (identity.table, identity.policy):
        raise InvalidValueError("parent", parent.backup_id, f"a backup of {identity.table} by {identity.policy}")
    backup_id = new_backup_id(now, latest_id)
    header = BackupHeader(
        backup_id=backup_id,
        job_id=identity.job_id,
        repository_id=identity.repository_id,
        platform=identity.platform,
        table=identity.table,
        policy=identity.policy,
        kind=BackupKind.INCREMENTAL if parent else BackupKind.FULL,
        chain_id=parent.chain_id if parent else backup_id,
        parent_id=parent.backup_id if parent else None,
        created=now.astimezone(UTC),
        fence=fence,
        table_version=state.version,
        committed_at_ms=state.committed_at_ms,
        totals=BackupTotals.of(files, copied),
    )
    return Manifest(header=header, state=state, files=tuple(files))


def encode_manifest(manifest: Manifest, keys: RepositoryKeys | None) -> bytes:
    """Return the manifest as the bytes of its file."""
    facts = asdict(manifest.header)
    facts["created"] = manifest.header.created.isoformat()
    state = orjson.dumps(_state_document(manifest.state), option=orjson.OPT_APPEND_NEWLINE)
    return seal(KIND, facts, keys, chain([state], to_lines(manifest.files)))


def decode_header(data: bytes, keys: RepositoryKeys | None) -> BackupHeader:
    """Return the header from the first line; raise DocumentDamagedError if it is not as written."""
    return _header(facts_of(KIND, data, keys))


def decode_manifest(data: bytes, keys: RepositoryKeys | None) -> Manifest:
    """Return the manifest; raise DocumentDamagedError if any byte is not as written."""
    facts, body = unseal(KIND, data, keys)
    lines = iter(body.split(b"\n"))
    try:
        state = TableState(**orjson.loads(next(lines)))
        return Manifest(header=_header(facts), state=state, files=tuple(from_lines(lines)))
    except (ValueError, KeyError, TypeError) as error:
        raise DocumentDamagedError(f"its body is not that of a manifest ({error})") from error


def decode_needs(data: bytes, keys: RepositoryKeys | None) -> tuple[BackupHeader, dict[str, int]]:
    """Return the header and the objects that the backup needs, with their sizes, without building the rest."""
    facts, body = unseal(KIND, data, keys)
    try:
        listed = (orjson.loads(line) for line in body.split(b"\n")[1:] if line)
        return _header(facts), {each["object"]: each["object_size"] for each in listed}
    except (ValueError, KeyError, TypeError) as error:
        raise DocumentDamagedError(f"its body is not that of a manifest ({error})") from error


def _header(facts: dict[str, Any]) -> BackupHeader:
    try:
        named = {field.name: facts[field.name] for field in fields(BackupHeader)}
        named["kind"] = BackupKind(named["kind"])
        named["created"] = datetime.fromisoformat(named["created"])
        named["totals"] = BackupTotals(**named["totals"])
        checked_id(named["backup_id"])
        return BackupHeader(**named)
    except (InvalidValueError, ValueError, KeyError, TypeError) as error:
        raise DocumentDamagedError(f"its first line is not that of a manifest ({error})") from error


def _state_document(state: TableState) -> dict[str, Any]:
    return {field.name: _plain(getattr(state, field.name)) for field in fields(state)}


def _plain(value: Any) -> Any:
    """Return mappings of any kind as those that orjson knows."""
    return dict(value) if hasattr(value, "keys") else value
