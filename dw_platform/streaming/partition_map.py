"""How many partitions publishers of a topic use; a number of its own, because order within a key depends on it.

    dw://internal/streaming/map/{topic}    {"partitions": 4}

A broker's topic may already have more: it was grown from outside, or this process died while it grew it. Publishers
go on with the number that is written here until every group has read what was published under it.
"""

import contextlib
import json

from dw_platform.foundation import PermanentError
from dw_platform.store import PersistentStore, StaleVersionError, internal_key


class CorruptMapError(PermanentError):
    """What is stored about a topic's partitions makes no sense; its records are untouched."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(
            f"{key} does not say how many partitions are used: {reason}. When every group has read everything, "
            "delete the key; publishers then use all partitions."
        )


class PartitionMap:
    """The number of one topic; whoever changes it sees to it that nobody publishes meanwhile."""

    def __init__(self, store: PersistentStore, topic: str) -> None:
        self._store, self._key = store, internal_key("streaming", "map", topic)

    def load(self, partitions: int) -> int:
        """Return the number in use; the first time that is `partitions`, the broker's own, and it is written down."""
        with contextlib.suppress(StaleVersionError):
            if self._store.get(self._key) is None:
                self._store.compare_and_set(self._key, _encode(partitions), expected=None)
        entry = self._store.get(self._key)
        try:
            used = int(json.loads(entry.value)["partitions"]) if entry else partitions
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptMapError(self._key, str(error)) from error
        if used < 1:
            raise CorruptMapError(self._key, f"{used} partitions")
        # A topic that was deleted and made again with fewer.
        return min(used, partitions)

    def save(self, partitions: int) -> None:
        """Write the new number, before anybody publishes under it."""
        self._store.put(self._key, _encode(partitions))


def _encode(partitions: int) -> bytes:
    return json.dumps({"partitions": partitions}).encode()
