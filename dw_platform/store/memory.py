"""The store in memory: for tests, and for platforms whose state may end with their process."""

import threading
from collections.abc import Collection

from dw_platform.store.contract import (
    DEFAULT_PAGE,
    Entries,
    Entry,
    check_expected,
    check_key,
    check_page,
    check_prefix,
    check_value,
    next_version,
)


class MemoryStore:
    """A PersistentStore that lives as long as the object; threads may share it, processes cannot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._floor = 0

    def get(self, key: str) -> Entry | None:
        check_key(key)
        with self._lock:
            return self._entries.get(key)

    def put(self, key: str, value: bytes) -> Entry:
        check_key(key)
        check_value(key, value)
        with self._lock:
            return self._write(key, value)

    def compare_and_set(self, key: str, value: bytes, *, expected: int | None) -> Entry:
        check_key(key)
        check_value(key, value)
        with self._lock:
            check_expected(key, expected=expected, actual=self._version(key))
            return self._write(key, value)

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        check_key(key)
        with self._lock:
            actual = self._version(key)
            if actual is None:
                return False
            if expected is not None:
                check_expected(key, expected=expected, actual=actual)
            self._floor = max(self._floor, actual)
            del self._entries[key]
            return True

    def list(self, prefix: str, *, after: str | None = None, limit: int = DEFAULT_PAGE) -> Entries:
        check_page(prefix, after, limit)
        with self._lock:
            keys = sorted(key for key in self._entries if key.startswith(prefix) and (after is None or key > after))
            return [self._entries[key] for key in keys[:limit]]

    def list_versions(self, prefix: str) -> dict[str, int]:
        check_prefix(prefix)
        with self._lock:
            return {key: self._entries[key].version for key in sorted(self._entries) if key.startswith(prefix)}

    def versions_of(self, keys: Collection[str]) -> dict[str, int]:
        for key in keys:
            check_key(key)
        with self._lock:
            return {key: self._entries[key].version for key in keys if key in self._entries}

    def close(self) -> None:
        """Keep everything: the object is the store."""

    def _version(self, key: str) -> int | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.version

    def _write(self, key: str, value: bytes) -> Entry:
        entry = Entry(key, bytes(value), next_version(self._version(key), self._floor))
        self._entries[key] = entry
        return entry
