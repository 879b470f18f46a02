"""The keys that count now, in a gateway that runs: who made one or took one back is heard within a second.

While the store does not answer, the keys known last count on; one that is revoked meanwhile ends when it is back.
"""

import logging
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock, SystemClock
from dw_platform.gateway.errors import KeyRefusedError, KeyRequiredError, QuotaExceededError, RightMissingError
from dw_platform.gateway.keys import KEYS, ApiKey, CorruptKeyError, matches, name_of
from dw_platform.gateway.quota import TokenBucket
from dw_platform.store import Change, MemoryStore, PersistentStore, Watcher, key_parts

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5


class Caller:
    """Who makes a request; without a key anybody may do anything, so such a gateway listens on loopback only."""

    name = "anonymous"

    def require(self, right: str, topic: str) -> None:
        """Raise RightMissingError unless the caller may do this."""

    def may(self, right: str, topic: str) -> bool:
        """Return whether the caller may do this."""
        del right, topic
        return True

    def require_quota(self) -> None:
        """Raise QuotaExceededError if the caller has to wait."""

    def charge(self, records: int) -> None:
        """Count records against the quota; a negative number takes that back."""


class KeyHolder(Caller):
    """A caller who showed a key."""

    def __init__(self, key: ApiKey, *, clock: Clock) -> None:
        self.key, self.name = key, key.name
        self._bucket = None if key.quota is None else TokenBucket(key.quota, clock=clock)

    def may(self, right: str, topic: str) -> bool:
        return self.key.allows(right, topic)

    def require(self, right: str, topic: str) -> None:
        if not self.key.allows(right, topic):
            raise RightMissingError(right, topic)

    def require_quota(self) -> None:
        if self._bucket is not None and (wait_s := self._bucket.wait_s()):
            raise QuotaExceededError(self._bucket.per_second, wait_s)

    def charge(self, records: int) -> None:
        if self._bucket is not None:
            self._bucket.take(records)


ANONYMOUS = Caller()


class KeyRing:
    """Knows the keys of a store and follows their changes between `start` and `close`."""

    def __init__(self, store: PersistentStore, *, required: bool, clock: Clock | None = None) -> None:
        self.required, self._clock = required, clock or SystemClock()
        self._holders: dict[str, KeyHolder] = {}
        self._watcher = Watcher(store, KEYS, self._on_change, interval_s=_LOOK_EVERY_S, clock=self._clock)
        self._store = store

    @classmethod
    def open_to_all(cls) -> "KeyRing":
        """Return one without any key, for which nobody is asked."""
        return cls(MemoryStore(), required=False)

    def start(self) -> None:
        """Read the keys and follow them; raise StoreUnavailableError if they cannot be read now."""
        self._store.list_versions(KEYS)  # an outage is nothing to the watcher, but here it would lock everybody out
        self._watcher.poll()
        self._watcher.start()

    def poll(self) -> None:
        """Look for changes once, on the caller's thread."""
        self._watcher.poll()

    def close(self) -> None:
        """Stop following."""
        self._watcher.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self.close()

    def caller(self, key: str | None) -> Caller:
        """Return who shows `key`; raise KeyRequiredError or KeyRefusedError for those who may not come in."""
        if key is None:
            if self.required:
                raise KeyRequiredError
            return ANONYMOUS
        holder = self._holders.get(name_of(key))
        known = matches(key, holder.key if holder else None)
        if holder is None or not known or holder.key.expired(self._clock.now()):
            raise KeyRefusedError
        return holder

    def _on_change(self, change: Change) -> None:
        name = key_parts(change.key)[-1]
        # Gone first: whatever happens below, an old version of the key no longer counts.
        self._holders.pop(name, None)
        if change.entry is not None:
            try:
                self._holders[name] = KeyHolder(ApiKey.decode(change.entry), clock=self._clock)
            except CorruptKeyError as error:
                log.warning("key does not count: %s", error)
        log.info("key changed", extra={"key_name": name, "kind": change.kind.value})
