"""What a repository is: `dw_repository.json`, made once by whoever is first, with a twin below `copies/`.

    {"check": ..., "document": {"type": "repository", "format": 1, "repository_id": ..., "platform": ...,
                                "hash": "sha256", "created": ..., "encryption": null or
                                {"cipher": "aes-256-gcm", "kdf": "scrypt", "salt": ..., "key_id": ...}}}

Its check is SHA-256 also in an encrypted repository, because the salt in it is needed to derive any key. Without the
salt nothing can be decrypted, hence the twin.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dw_platform.backup.keys import RepositoryKeys, new_salt
from dw_platform.backup.layout import DESCRIPTION, twin_of
from dw_platform.backup.repository_errors import (
    KeyMissingError,
    KeyNotNeededError,
    NoRepositoryError,
    NotARepositoryError,
    OtherPlatformError,
    RepositoryDamagedError,
    RepositoryTooNewError,
    WrongKeyError,
)
from dw_platform.backup.sealed import DocumentDamagedError, seal, unseal
from dw_platform.backup.storage import Storage

FORMAT = 1
_KIND = "repository"
# The root of a file system of its own is as good as an empty folder.
_HARMLESS = frozenset({"lost+found"})


@dataclass(frozen=True, slots=True)
class Description:
    """Which repository it is, and the salt and the id of its key if it is encrypted."""

    repository_id: str
    platform: str
    created: datetime
    salt: bytes | None
    key_id: bytes | None

    def keys(self, secret: str | None, shown: str) -> RepositoryKeys | None:
        """Return the keys that `secret` gives; raise if it is not the one, or there should be none."""
        if self.salt is None:
            if secret is not None:
                raise KeyNotNeededError(shown)
            return None
        if secret is None:
            raise KeyMissingError(shown)
        keys = RepositoryKeys.derive(secret, self.salt)
        if keys.id != self.key_id:
            raise WrongKeyError(shown)
        return keys


def create_description(storage: Storage, *, platform: str, secret: str | None, now: datetime) -> bool:
    """Make the repository unless there is one; return whether this call did. Its folder must be empty."""
    foreign = _names(storage)
    if foreign:
        if DESCRIPTION in foreign:
            return False
        raise _missing(storage)
    encryption: dict[str, str] | None = None
    if secret is not None:
        salt = new_salt()
        key_id = RepositoryKeys.derive(secret, salt).id.hex()
        encryption = {"cipher": "aes-256-gcm", "kdf": "scrypt", "salt": salt.hex(), "key_id": key_id}
    facts = {
        "format": FORMAT,
        "repository_id": secrets.token_hex(16),
        "platform": platform,
        "hash": "sha256",
        "created": now.astimezone(UTC).isoformat(),
        "encryption": encryption,
    }
    content = seal(_KIND, facts, None)
    if not storage.create(DESCRIPTION, content):
        return False
    storage.write(twin_of(DESCRIPTION), content)
    return True


def read_description(storage: Storage, platform: str) -> Description:
    """Return what the repository is; raise what keeps it from being used."""
    try:
        data = storage.read(DESCRIPTION)
    except FileNotFoundError:
        raise _missing(storage) from None
    description = _parsed(storage.place.shown, data)
    if description.platform != platform:
        raise OtherPlatformError(storage.place.shown, description.platform, platform)
    return description


def mend_description(storage: Storage) -> str | None:
    """Write the twin again if it is missing or damaged; return what was wrong, None if nothing."""
    content, twin = storage.read(DESCRIPTION), twin_of(DESCRIPTION)
    try:
        problem = None if storage.read(twin) == content else f"{twin} was not equal to {DESCRIPTION}"
    except FileNotFoundError:
        problem = f"{twin} was missing"
    if problem is not None:
        storage.write(twin, content)
    return problem


def _parsed(shown: str, data: bytes) -> Description:
    try:
        facts = unseal(_KIND, data, None)[0]
        if facts["format"] > FORMAT:
            raise RepositoryTooNewError(shown, facts["format"], FORMAT)
        encryption = facts["encryption"]
        return Description(
            repository_id=facts["repository_id"],
            platform=facts["platform"],
            created=datetime.fromisoformat(facts["created"]),
            salt=bytes.fromhex(encryption["salt"]) if encryption else None,
            key_id=bytes.fromhex(encryption["key_id"]) if encryption else None,
        )
    except (DocumentDamagedError, ValueError, KeyError, TypeError) as error:
        newer = _claimed_format(data)
        if newer > FORMAT:  # a later format may be checked in another way
            raise RepositoryTooNewError(shown, newer, FORMAT) from error
        raise RepositoryDamagedError(f"{shown}/{DESCRIPTION}", str(error)) from error


def _claimed_format(data: bytes) -> int:
    try:
        document: Any = json.loads(data)["document"]
        return int(document["format"]) if document["type"] == _KIND else 0
    except (ValueError, KeyError, TypeError):
        return 0


def _missing(storage: Storage) -> Exception:
    shown = storage.place.shown
    if storage.find(twin_of(DESCRIPTION)) is not None:
        reason = f"it is missing, while its twin {twin_of(DESCRIPTION)} is there; copy that back"
        return RepositoryDamagedError(f"{shown}/{DESCRIPTION}", reason)
    found = _names(storage)
    return NotARepositoryError(shown, _holds(found)) if found else NoRepositoryError(shown)


def _names(storage: Storage) -> list[str]:
    if storage.place.is_local and storage.place.local.is_file():
        raise NotARepositoryError(storage.place.shown, "it is a file")
    return [name for name in storage.names() if name not in _HARMLESS]


def _holds(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"it holds {', '.join(names[:3])}{more}"
