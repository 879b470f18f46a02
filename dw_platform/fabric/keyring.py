"""The key that authenticates datagrams: made by the first node, kept in the control store, never shown.

Whoever can read the control store can speak for any node. Deleting the key makes the next node write a new one; the
others take it within a heartbeat, and until then their heartbeats go to the store.
"""

import secrets

from dw_platform.fabric.messages import KEY_BYTES
from dw_platform.fabric.records import KEY
from dw_platform.store import PersistentStore, update


class DatagramKey:
    """The key as this process knows it."""

    def __init__(self, store: PersistentStore) -> None:
        self._store = store
        self.version: int | None = None

    def read(self) -> bytes:
        """Return the key, a new one if there is none."""
        entry = update(self._store, KEY, lambda current: None if current else secrets.token_bytes(KEY_BYTES))
        assert entry is not None, "a key that was absent has just been written"
        self.version = entry.version
        return entry.value
