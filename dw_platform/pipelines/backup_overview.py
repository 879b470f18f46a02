"""What there is in the repository, for `dw backup list` and `show`, `dw status` and Dagster; no JVM."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from dw_platform.backup import BackupChain, BackupHeader, ManifestDamagedError, NoRepositoryError, build_chains
from dw_platform.backup.manifests import ref_of
from dw_platform.pipelines.backup_jobs import BackupJob, recorded_jobs
from dw_platform.pipelines.backup_report import header_json
from dw_platform.pipelines.backup_repository import open_repository, policy_tables
from dw_platform.pipelines.platform import Platform


@dataclass(frozen=True, slots=True)
class BackupsOverview:
    """The repository at a glance."""

    place: str
    chains: tuple[BackupChain, ...]
    broken: frozenset[str]
    pinned: frozenset[str]
    damaged: tuple[ManifestDamagedError, ...]
    jobs: tuple[BackupJob, ...]
    stored_bytes: int
    """Of all objects that are there."""

    @property
    def headers(self) -> list[BackupHeader]:
        return [header for chain in self.chains for header in chain.members]

    def as_json(self) -> dict[str, Any]:
        return {
            "repository": self.place,
            "stored_bytes": self.stored_bytes,
            "chains": [
                {
                    "table": chain.table,
                    "policy": chain.policy,
                    "chain_id": chain.chain_id,
                    "started": chain.started.isoformat(),
                    "backups": [header_json(header) | self._marks(header.backup_id) for header in chain.members],
                }
                for chain in self.chains
            ],
            "damaged": [str(error) for error in self.damaged],
            "unfinished": [
                {"job": job.id, "kind": job.kind, "of": job.subject, "began": job.began.isoformat(), "error": job.error}
                for job in self.jobs
            ],
        }

    def _marks(self, backup_id: str) -> dict[str, bool]:
        return {"broken": backup_id in self.broken, "pinned": backup_id in self.pinned}


def backups_overview(platform: Platform, table: str | None = None) -> BackupsOverview:
    """Return the chains of one table or of all; a repository that was never made is an empty one."""
    try:
        repository = open_repository(platform)
    except NoRepositoryError:
        return _empty(platform)
    listing = repository.manifests.headers(table)
    return BackupsOverview(
        place=repository.place.shown,
        chains=build_chains(listing.headers),
        broken=repository.health.broken_ids(),
        pinned=repository.pins.ids(),
        damaged=listing.damaged,
        jobs=tuple(recorded_jobs(platform)),
        stored_bytes=sum(repository.objects.index().values()),
    )


@dataclass(frozen=True, slots=True)
class TableBackups:
    """How one table is backed up."""

    table: str
    policy: str
    newest: BackupHeader | None
    """The newest backup that is whole."""

    backups: int
    broken: int

    def as_json(self) -> dict[str, Any]:
        newest = self.newest
        return {
            "table": self.table,
            "policy": self.policy,
            "newest": None if newest is None else newest.backup_id,
            "created": None if newest is None else newest.created.isoformat(),
            "version": None if newest is None else newest.table_version,
            "backups": self.backups,
            "broken": self.broken,
        }


def table_backups(platform: Platform) -> list[TableBackups]:
    """Return, for each table of each policy, its newest backup and how many there are."""
    overview, found = backups_overview(platform), list[TableBackups]()
    for policy in platform.config.backups.policies:
        for table in policy_tables(platform.config, policy):
            mine = [header for header in overview.headers if (header.table, header.policy) == (table, policy.name)]
            whole = sorted((each for each in mine if each.backup_id not in overview.broken), key=lambda h: h.backup_id)
            found.append(
                TableBackups(table, policy.name, whole[-1] if whole else None, len(mine), len(mine) - len(whole))
            )
    return found


def backup_details(platform: Platform, backup_id: str, *, files: bool = False) -> dict[str, Any]:
    """Return everything that a backup's manifest says, and what verification found; the list of files on request."""
    repository = open_repository(platform)
    manifest = repository.manifests.read(repository.find(backup_id))
    state, broken = manifest.state, repository.health.broken(backup_id)
    counted: dict[str, list[int]] = {}
    for stored in manifest.files:
        counted.setdefault(stored.source.kind.value, []).append(stored.source.size)
    schema = json.loads(state.metadata.get("schemaString") or '{"fields": []}')
    details = header_json(manifest.header) | {
        "manifest": ref_of(manifest.header).path,
        "committed_at": datetime.fromtimestamp(state.committed_at_ms / 1000, UTC).isoformat(),
        "rows": state.rows,
        "pinned": backup_id in repository.pins.ids(),
        "broken": None if broken is None else [asdict(problem) for problem in broken.problems],
        "protocol": dict(state.protocol),
        "columns": {field["name"]: field["type"] for field in schema["fields"]},
        "partition_by": list(state.metadata.get("partitionColumns") or ()),
        "properties": dict(state.metadata.get("configuration") or {}),
        "positions": dict(state.transactions),
        "contents": {kind: {"files": len(sizes), "bytes": sum(sizes)} for kind, sizes in sorted(counted.items())},
    }
    if files:
        details["files"] = [
            {
                "path": stored.source.path,
                "kind": stored.source.kind.value,
                "size": stored.source.size,
                "sha256": stored.sha256,
                "object": stored.object_name,
            }
            for stored in manifest.files
        ]
    return details


def _empty(platform: Platform) -> BackupsOverview:
    return BackupsOverview(
        place=platform.config.backup_repository,
        chains=(),
        broken=frozenset(),
        pinned=frozenset(),
        damaged=(),
        jobs=tuple(recorded_jobs(platform)),
        stored_bytes=0,
    )
