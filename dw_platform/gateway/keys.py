"""API keys as they are kept: the control store knows a key's hash and what it allows, never the key.

    dw://internal/gateway/keys/{name}    {"sha256": "...", "topics": ["orders.*"], "rights": ["publish"], ...}

A key is `dw.NAME.SECRET`: the name finds the record, the secret (32 random bytes) is compared with its hash. SHA-256
without salt or stretching is enough for a random secret of that length; it would not be for a password.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from dw_platform.foundation import Clock, InvalidValueError, PermanentError, UserError
from dw_platform.store import Entry, PersistentStore, StaleVersionError, internal_key, internal_prefix, key_parts

KEYS = internal_prefix("gateway", "keys")
RIGHTS = ("publish", "read")
PREFIX = "dw"
_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_NOBODY = b"\0" * hashlib.sha256().digest_size


class KeyExistsError(UserError):
    """There is a key of that name; nothing was changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is a key named {name}. Choose another name, or revoke it first: dw keys revoke {name}")


class UnknownKeyError(UserError):
    """There is no key of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is no key named {name[:80]!r}. `dw keys list` shows those that there are.")


class CorruptKeyError(PermanentError):
    """A key's record cannot be read, so the key does not count."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"The record of the key {name} cannot be read ({reason}). Revoke it and create another.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What a key allows, and how to tell that somebody has it."""

    name: str
    sha256: bytes
    topics: tuple[str, ...]
    """Patterns such as `orders.*`."""

    rights: tuple[str, ...]
    quota: float | None
    """Records a second; None: as many as the platform takes."""

    created_at: datetime
    expires_at: datetime | None

    def allows(self, right: str, topic: str) -> bool:
        """Return whether its holder may do this."""
        return right in self.rights and any(fnmatchcase(topic, pattern) for pattern in self.topics)

    def expired(self, now: datetime) -> bool:
        """Return whether its time is over."""
        return self.expires_at is not None and now >= self.expires_at

    def encode(self) -> bytes:
        """Return its value in the store, without what the key of the entry says."""
        content = {
            "sha256": self.sha256.hex(),
            "topics": self.topics,
            "rights": self.rights,
            "quota": self.quota,
            "created_at": self.created_at.isoformat(),
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
        }
        return json.dumps(content).encode()

    @classmethod
    def decode(cls, entry: Entry) -> "ApiKey":
        """Read a record; raise CorruptKeyError for one that makes no sense."""
        name = key_parts(entry.key)[-1]
        try:
            content: dict[str, Any] = json.loads(entry.value)
            expires, quota = content["expires_at"], content["quota"]
            return cls(
                name=name,
                sha256=bytes.fromhex(content["sha256"]),
                topics=tuple(map(str, content["topics"])),
                rights=tuple(map(str, content["rights"])),
                quota=None if quota is None else float(quota),
                created_at=datetime.fromisoformat(content["created_at"]),
                expires_at=None if expires is None else datetime.fromisoformat(expires),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptKeyError(name, type(error).__name__) from error


def name_of(key: str) -> str:
    """Return the name inside a key, whoever made it up; empty if it does not look like one."""
    parts = key.split(".")
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX else ""


def matches(key: str, known: ApiKey | None) -> bool:
    """Return whether `key` is the one that was made for `known`, in the same time whatever the answer."""
    given = hashlib.sha256(key.encode()).digest()
    return hmac.compare_digest(given, known.sha256 if known else _NOBODY) and known is not None


def create_key(
    store: PersistentStore,
    name: str,
    *,
    clock: Clock,
    topics: Sequence[str] = ("*",),
    rights: Sequence[str] = ("publish",),
    quota: float | None = None,
    expires_in: timedelta | None = None,
) -> tuple[ApiKey, str]:
    """Store a new key and return its record and the key itself, which can never be read again."""
    _check(name, topics, rights, quota, expires_in)
    now = clock.now()
    key = f"{PREFIX}.{name}.{secrets.token_urlsafe(_SECRET_BYTES)}"
    record = ApiKey(
        name=name,
        sha256=hashlib.sha256(key.encode()).digest(),
        topics=tuple(topics),
        rights=tuple(right for right in RIGHTS if right in rights),
        quota=quota,
        created_at=now,
        expires_at=None if expires_in is None else now + expires_in,
    )
    try:
        store.compare_and_set(KEYS + name, record.encode(), expected=None)
    except StaleVersionError as error:
        raise KeyExistsError(name) from error
    return record, key


def _check(
    name: str, topics: Sequence[str], rights: Sequence[str], quota: float | None, expires_in: timedelta | None
) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidValueError("name", name[:80], "up to 64 letters, digits, '_' and '-', with no '-' or '_' first")
    if not topics or not all(topics):
        raise InvalidValueError("topic", "", "a topic, or a pattern such as orders.*")
    if not rights or any(right not in RIGHTS for right in rights):
        raise InvalidValueError("right", ", ".join(rights), f"one of {', '.join(RIGHTS)}")
    if quota is not None and not 0 < quota <= 1e12:
        raise InvalidValueError("quota", quota, "records a second, above 0")
    if expires_in is not None and expires_in <= timedelta(0):
        raise InvalidValueError("expires", expires_in, "above 0")


def list_keys(store: PersistentStore) -> list[ApiKey]:
    """Return all keys by name; raise CorruptKeyError if one cannot be read."""
    return [ApiKey.decode(store_entry) for store_entry in _entries(store)]


def _entries(store: PersistentStore) -> list[Entry]:
    found: list[Entry] = []
    while page := store.list(KEYS, after=found[-1].key if found else None):
        found += page
    return found


def revoke_key(store: PersistentStore, name: str) -> None:
    """Remove the key; gateways that run notice within a second."""
    if not _NAME.fullmatch(name) or not store.delete(internal_key("gateway", "keys", name)):
        raise UnknownKeyError(name)
