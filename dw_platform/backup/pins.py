"""Backups that never expire, by order of an operator: `pins/<backup id>.json`, removed to let it go again."""

from dataclasses import dataclass
from datetime import UTC, datetime

from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import PINS, checked_id, is_backup_id
from dw_platform.backup.sealed import DocumentDamagedError, seal, unseal
from dw_platform.backup.storage import Storage

_KIND = "pin"
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Pin:
    """Why a backup stays, and since when."""

    backup_id: str
    reason: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of one repository."""

    storage: Storage
    keys: RepositoryKeys | None

    def ids(self) -> frozenset[str]:
        """Return the backups that are pinned; a pin whose file is damaged still holds."""
        names = (path.partition("/")[2].removesuffix(_SUFFIX) for path in self.storage.walk(PINS))
        return frozenset(name for name in names if is_backup_id(name))

    def get(self, backup_id: str) -> Pin:
        """Return what a pin says; raise FileNotFoundError or DocumentDamagedError."""
        facts = unseal(_KIND, self.storage.read(_path(backup_id)), self.keys)[0]
        if facts["backup_id"] != backup_id:
            raise DocumentDamagedError(f"it is that of {facts['backup_id']}, moved here")
        return Pin(backup_id, facts["reason"], facts["by"], datetime.fromisoformat(facts["at"]))

    def add(self, backup_id: str, *, reason: str, by: str, now: datetime) -> None:
        """Keep a backup from now on."""
        facts = {"backup_id": backup_id, "reason": reason, "by": by, "at": now.astimezone(UTC).isoformat()}
        self.storage.write(_path(backup_id), seal(_KIND, facts, self.keys))

    def remove(self, backup_id: str) -> None:
        """Let a backup expire like others; harmless if it is not pinned."""
        self.storage.remove(_path(backup_id))


def _path(backup_id: str) -> str:
    return f"{PINS}/{checked_id(backup_id)}{_SUFFIX}"
