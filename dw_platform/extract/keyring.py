"""The keys that sign continuation tokens: shared by all processes through the control store, changed by themselves.

The newest key signs. An older one still proves the tokens it signed until the last of them has expired, and a while
longer, so that a late one is called expired and not forged; then it is dropped. The first use makes the first key.
"""

import base64
import hmac
import json
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dw_platform.foundation import Clock, InvalidValueError, PermanentError, SystemClock
from dw_platform.store import Entry, PersistentStore, internal_key, update

KEYS = internal_key("tokens", "keys")
KEY_ID_BYTES = 8
SIGNATURE_BYTES = 32

DEFAULT_TTL = timedelta(days=3)
# How long a process signs on with a key that another one has replaced; that one is kept for longer than this.
_LOOK_EVERY_S = 60.0
_GRACE = timedelta(days=1)


class CorruptTokenKeysError(PermanentError):
    """The record of the keys cannot be read, so no token can be signed or checked."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"The keys of continuation tokens, {key} in the control store, cannot be read. Delete that entry: new keys "
            "are made then, and pages under way start again."
        )


@dataclass(frozen=True, slots=True)
class TokenKey:
    """One secret, known by its id."""

    id: bytes
    secret: bytes = field(repr=False)
    made_at: datetime

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""
        return hmac.digest(self.secret, message, "sha256")

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key made `signature`, in a time that tells nothing about it."""
        return hmac.compare_digest(self.sign(message), signature)


class TokenKeyring:
    """The keys of one platform; any thread may use it."""

    def __init__(
        self,
        store: PersistentStore,
        *,
        ttl: timedelta = DEFAULT_TTL,
        rotate_every: timedelta = timedelta(days=30),
        clock: Clock | None = None,
    ) -> None:
        for name, value in (("ttl", ttl), ("rotate_every", rotate_every)):
            if value <= timedelta(0):
                raise InvalidValueError(name, value, "above 0")
        self.ttl, self._rotate_every = ttl, rotate_every
        self._store, self._clock = store, clock or SystemClock()
        self._lock = threading.Lock()
        self._keys: tuple[TokenKey, ...] = ()
        self._looked_at = float("-inf")

    def now(self) -> datetime:
        """Return the time that counts for issue and expiry."""
        return self._clock.now()

    def newest(self) -> TokenKey:
        """Return the key that signs now, after making or replacing it if it is time."""
        with self._lock:
            if self._clock.monotonic() - self._looked_at >= _LOOK_EVERY_S:
                self._load()
            if not self._keys or self._is_old(self._keys[-1]):
                self._replace(force=False)
            return self._keys[-1]

    def find(self, key_id: bytes) -> TokenKey | None:
        """Return the key with this id, if it still counts."""
        with self._lock:
            found = self._known(key_id)
            if found is None:
                self._load()  # another process may have made it a moment ago
                found = self._known(key_id)
            return found

    def rotate(self) -> str:
        """Make a new key now, which signs from now on, and return its id; tokens of the others stay valid."""
        with self._lock:
            self._replace(force=True)
            return self._keys[-1].id.hex()

    def _known(self, key_id: bytes) -> TokenKey | None:
        return next((key for key in self._keys if key.id == key_id), None)

    def _is_old(self, key: TokenKey) -> bool:
        return self._clock.now() - key.made_at >= self._rotate_every

    def _load(self) -> None:
        self._keys = _decode(self._store.get(KEYS))
        self._looked_at = self._clock.monotonic()

    def _replace(self, *, force: bool) -> None:
        now = self._clock.now()
        fresh = TokenKey(secrets.token_bytes(KEY_ID_BYTES), secrets.token_bytes(SIGNATURE_BYTES), now)

        def change(entry: Entry | None) -> bytes | None:
            known = _decode(entry)
            if not force and known and not self._is_old(known[-1]):
                return None  # another process was faster
            return _encode((*_still_needed(known, self.ttl, now), fresh))

        self._keys = _decode(update(self._store, KEYS, change))
        self._looked_at = self._clock.monotonic()


def _still_needed(keys: Sequence[TokenKey], ttl: timedelta, now: datetime) -> list[TokenKey]:
    """Return the keys that may have signed a token which is not expired; the last one signed until now."""
    replaced_at = [key.made_at for key in keys[1:]] + [now]
    return [key for key, at in zip(keys, replaced_at, strict=False) if now - at < ttl + _GRACE]


def _encode(keys: Sequence[TokenKey]) -> bytes:
    listed = [
        {"id": key.id.hex(), "secret": base64.b64encode(key.secret).decode(), "made_at": key.made_at.isoformat()}
        for key in keys
    ]
    return json.dumps({"keys": listed}).encode()


def _decode(entry: Entry | None) -> tuple[TokenKey, ...]:
    if entry is None:
        return ()
    try:
        return tuple(
            TokenKey(
                bytes.fromhex(each["id"]), base64.b64decode(each["secret"]), datetime.fromisoformat(each["made_at"])
            )
            for each in json.loads(entry.value)["keys"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTokenKeysError(entry.key) from error
