"""What verification found, kept in the repository: `health/broken/<backup id>.json` and `health/verified.json`.

A record says which objects a backup lacks and which files that concerns. It goes when everything is there again.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import HEALTH, checked_id, is_backup_id
from dw_platform.backup.sealed import seal, unseal
from dw_platform.backup.storage import Storage

BROKEN = f"{HEALTH}/broken"
VERIFIED = f"{HEALTH}/verified.json"
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Problem:
    """An object, or a manifest, that is not as it was stored."""

    file: str
    reason: str
    files: tuple[str, ...]
    """Those of the table that cannot be restored because of it."""


@dataclass(frozen=True, slots=True)
class BrokenBackup:
    """A backup that does not restore as a whole."""

    backup_id: str
    table: str
    found_at: datetime
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """The records of one repository."""

    storage: Storage
    keys: RepositoryKeys | None

    def broken_ids(self) -> frozenset[str]:
        """Return the backups that are known to be broken, from one listing."""
        names = (path.rpartition("/")[2].removesuffix(_SUFFIX) for path in self.storage.walk(BROKEN))
        return frozenset(name for name in names if is_backup_id(name))

    def broken(self, backup_id: str) -> BrokenBackup | None:
        """Return what is known to be wrong with a backup; raise DocumentDamagedError for a damaged record."""
        try:
            facts = unseal("health", self.storage.read(_path(backup_id)), self.keys)[0]
        except FileNotFoundError:
            return None
        problems = tuple(Problem(each["file"], each["reason"], tuple(each["files"])) for each in facts["problems"])
        return BrokenBackup(backup_id, facts["table"], datetime.fromisoformat(facts["found_at"]), problems)

    def record(self, found: Mapping[str, BrokenBackup], existing: Collection[str]) -> tuple[str, ...]:
        """Make the records of `existing` backups those that were `found`; return which are whole again."""
        healed = sorted(self.broken_ids().intersection(existing) - found.keys())
        for backup_id in healed:
            self.forget(backup_id)
        for backup_id, broken in found.items():
            facts = asdict(broken) | {"found_at": broken.found_at.isoformat()}
            self.storage.write(_path(backup_id), seal("health", facts, self.keys))
        return tuple(healed)

    def forget(self, backup_id: str) -> None:
        """Remove the record of a backup; harmless if there is none."""
        self.storage.remove(_path(backup_id))

    def verified_at(self) -> datetime | None:
        """Return when the last verification began that read everything, or everything that was new; None if none did.

        Raise DocumentDamagedError for a damaged record.
        """
        try:
            facts = unseal("verified", self.storage.read(VERIFIED), self.keys)[0]
        except FileNotFoundError:
            return None
        return datetime.fromisoformat(facts["started"])

    def set_verified(self, started: datetime) -> None:
        """Remember that everything up to now was read."""
        self.storage.write(VERIFIED, seal("verified", {"started": started.isoformat()}, self.keys))


def _path(backup_id: str) -> str:
    return f"{BROKEN}/{checked_id(backup_id)}{_SUFFIX}"
