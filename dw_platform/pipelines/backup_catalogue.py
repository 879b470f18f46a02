"""`ops.backups` and `ops.backup_files`: what there is in the repository, for SQL and for the catalog.

The manifests are the truth; these tables follow them, and `rebuild_catalogue` makes them again from the manifests
alone. A lake that cannot be written keeps no backup from counting: the next one brings the tables up to date.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dw_platform.backup import BackupHeader, BackupNotFoundError, BackupRepository, Manifest, ManifestDamagedError
from dw_platform.backup.manifests import ref_of
from dw_platform.foundation import PlatformError
from dw_platform.lake.opening import TableMissingError
from dw_platform.pipelines.platform import Platform
from dw_platform.store import Lease, LeaseLock, LeaseMode, internal_key
from dw_platform.store.owner import is_dead, process_owner

log = logging.getLogger(__name__)

BACKUPS_TABLE = "ops.backups"
FILES_TABLE = "ops.backup_files"
# Another process writes a few rows meanwhile.
_WAIT_S = 60.0

_TIME = pa.timestamp("us", "UTC")
_BACKUPS = pa.schema(
    [
        pa.field("backup_id", pa.string(), nullable=False),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("policy", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("chain_id", pa.string(), nullable=False),
        ("parent_id", pa.string()),
        pa.field("created_at", _TIME, nullable=False),
        pa.field("table_version", pa.int64(), nullable=False),
        pa.field("committed_at", _TIME, nullable=False),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("copied_files", pa.int64(), nullable=False),
        pa.field("copied_bytes", pa.int64(), nullable=False),
        pa.field("objects", pa.int64(), nullable=False),
        pa.field("stored_bytes", pa.int64(), nullable=False),
    ]
)
_FILES = pa.schema(
    [
        pa.field("backup_id", pa.string(), nullable=False),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("object", pa.string(), nullable=False),
        ("offset", pa.int64()),
    ]
)


def catalogue_backups(platform: Platform, repository: BackupRepository) -> None:
    """Bring both tables up to date with the repository, or say in the log why that must wait."""
    try:
        with _alone(platform):
            headers = {header.backup_id: header for header in repository.manifests.headers().headers}
            known = {name: _known(platform, name) for name in (FILES_TABLE, BACKUPS_TABLE)}
            if any(ids - headers.keys() for ids in known.values()):
                _rebuild(platform, repository, headers.values())  # some have expired
                return
            for name, ids in known.items():
                new = [header for backup_id, header in headers.items() if backup_id not in ids]
                if new:
                    platform.lake.table(name).append(_rows(name, repository, new))
    except PlatformError as error:
        log.warning("the tables of backups are not up to date", extra={"reason": str(error)})


def rebuild_catalogue(platform: Platform, repository: BackupRepository) -> int:
    """Make both tables again from the manifests alone and return how many backups they name."""
    with _alone(platform):
        headers = repository.manifests.headers().headers
        _rebuild(platform, repository, headers)
        return len(headers)


def _rebuild(platform: Platform, repository: BackupRepository, headers: Iterable[BackupHeader]) -> None:
    listed = list(headers)
    for name in (FILES_TABLE, BACKUPS_TABLE):
        platform.lake.table(name).overwrite(_rows(name, repository, listed))


def _alone(platform: Platform) -> Lease:
    """Keep other processes out: two that see the same new backup would both name it."""
    lock = LeaseLock(platform.store, internal_key("backup-catalogue"), owner=process_owner())
    lock.forget(is_dead)
    return lock.acquire(LeaseMode.EXCLUSIVE, timeout_s=_WAIT_S)


def _known(platform: Platform, name: str) -> set[str]:
    try:
        batches = platform.lake.table(name).snapshot().stream_arrow(["backup_id"])
    except TableMissingError:
        return set()
    return {backup_id for batch in batches for backup_id in pc.unique(batch.column(0)).to_pylist()}


def _rows(name: str, repository: BackupRepository, headers: Sequence[BackupHeader]) -> pa.Table:
    if name == BACKUPS_TABLE:
        return _table(map(_backup_row, headers), _BACKUPS)
    return _table(_file_rows(_manifests(repository, headers)), _FILES)


def _manifests(repository: BackupRepository, headers: Iterable[BackupHeader]) -> Iterator[Manifest]:
    for header in headers:
        try:
            yield repository.manifests.read(ref_of(header))
        except (BackupNotFoundError, ManifestDamagedError) as error:
            log.warning("backup left out of the tables", extra={"backup": header.backup_id, "reason": str(error)})


def _backup_row(header: BackupHeader) -> Mapping[str, Any]:
    totals = header.totals
    return {
        "backup_id": header.backup_id,
        "table_name": header.table,
        "policy": header.policy,
        "kind": header.kind.value,
        "chain_id": header.chain_id,
        "parent_id": header.parent_id,
        "created_at": header.created,
        "table_version": header.table_version,
        "committed_at": datetime.fromtimestamp(header.committed_at_ms / 1000, UTC),
        "files": totals.files,
        "bytes": totals.bytes,
        "copied_files": totals.copied_files,
        "copied_bytes": totals.copied_bytes,
        "objects": totals.objects,
        "stored_bytes": totals.stored_bytes,
    }


def _file_rows(manifests: Iterable[Manifest]) -> Iterator[Mapping[str, Any]]:
    for manifest in manifests:
        for stored in manifest.files:
            yield {
                "backup_id": manifest.header.backup_id,
                "table_name": manifest.header.table,
                "path": stored.source.path,
                "kind": stored.source.kind.value,
                "size": stored.source.size,
                "sha256": stored.sha256,
                "object": stored.object_name,
                "offset": stored.offset,
            }


def _table(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)
