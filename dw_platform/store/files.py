"""The store in a directory: one file an entry, shared by the processes of one machine.

    {directory}/lock       held alone by a writer, shared while the directory is read
    {directory}/floor      the highest version at which a key was deleted
    {directory}/entries/   one file an entry, see entry_file.py

Durability: a write returns once file and directory are fsynced. A killed writer leaves the old or the new file
and perhaps a temporary one, which the next opening removes.

Damage: a file that does not match its checksum raises StoreUnusableError with its path, because answering
"no such key" would let a caller start from nothing.
"""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from dw_platform.foundation import fsync_directory, replace_file
from dw_platform.foundation.durable import TEMPORARY_SUFFIX
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
from dw_platform.store.entry_file import NAME_LENGTH, DamagedEntryError, encode, file_name, read_entry, read_header
from dw_platform.store.errors import StoreUnavailableError, StoreUnusableError
from dw_platform.store.file_lock import file_lock

# A write takes milliseconds; who holds the lock this long is stopped or its disk hangs.
_LOCK_TIMEOUT_S = 30.0

Keys = list[str]


class FileStore:
    """A PersistentStore in `directory`, which is created if missing and must be on a local file system."""

    def __init__(self, directory: str | Path, *, lock_timeout_s: float = _LOCK_TIMEOUT_S) -> None:
        self._directory = Path(directory).absolute()
        self._entries = self._directory / "entries"
        self._floor = self._directory / "floor"
        self._lock_timeout_s = lock_timeout_s
        # A file's name is the hash of its key, so what was read once stays true for as long as the file is there.
        self._keys: dict[str, str] = {}
        with self._translated():
            self._prepare()

    def __reduce__(self) -> tuple[type["FileStore"], tuple[str]]:
        return FileStore, (str(self._directory),)

    def get(self, key: str) -> Entry | None:
        check_key(key)
        with self._translated():
            return read_entry(self._path(key))

    def put(self, key: str, value: bytes) -> Entry:
        check_key(key)
        check_value(key, value)
        with self._locked(shared=False):
            return self._write(key, value, self._version(key))

    def compare_and_set(self, key: str, value: bytes, *, expected: int | None) -> Entry:
        check_key(key)
        check_value(key, value)
        with self._locked(shared=False):
            actual = self._version(key)
            check_expected(key, expected=expected, actual=actual)
            return self._write(key, value, actual)

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        check_key(key)
        with self._locked(shared=False):
            actual = self._version(key)
            if actual is None:
                return False
            if expected is not None:
                check_expected(key, expected=expected, actual=actual)
            self._raise_floor(actual)
            self._path(key).unlink()
            fsync_directory(self._entries)
            return True

    def list(self, prefix: str, *, after: str | None = None, limit: int = DEFAULT_PAGE) -> Entries:
        check_page(prefix, after, limit)
        page: Entries = []
        with self._translated():
            for key in self._sorted_keys(prefix):
                if (after is None or key > after) and (entry := read_entry(self._path(key))):
                    page.append(entry)
                    if len(page) == limit:
                        break
        return page

    def list_versions(self, prefix: str) -> dict[str, int]:
        check_prefix(prefix)
        with self._translated():
            return self._versions(self._sorted_keys(prefix))

    def versions_of(self, keys: Collection[str]) -> dict[str, int]:
        for key in keys:
            check_key(key)
        with self._translated():
            return self._versions(keys)

    def close(self) -> None:
        """Nothing stays open between two calls."""

    def _prepare(self) -> None:
        missing = [directory for directory in (self._entries, *self._entries.parents) if not directory.exists()]
        self._entries.mkdir(parents=True, exist_ok=True)
        for directory in missing:
            fsync_directory(directory.parent)
        with self._locked(shared=False):
            # Temporary files are written under the lock, so whichever is there now belongs to a dead writer.
            for directory in (self._directory, self._entries):
                for leftover in directory.glob(f".*{TEMPORARY_SUFFIX}"):
                    leftover.unlink()

    def _path(self, key: str) -> Path:
        return self._entries / file_name(key)

    def _version(self, key: str) -> int | None:
        header = read_header(self._path(key))
        return None if header is None else header.version

    def _versions(self, keys: Collection[str]) -> dict[str, int]:
        found = ((key, self._version(key)) for key in keys)
        return {key: version for key, version in found if version is not None}

    def _write(self, key: str, value: bytes, actual: int | None) -> Entry:
        entry = Entry(key, bytes(value), next_version(actual, self._read_floor()))
        replace_file(self._path(key), encode(entry))
        return entry

    def _sorted_keys(self, prefix: str) -> Keys:
        # Under the lock, because a directory that changes while it is read may hide a file that was there all along.
        with self._locked(shared=True):
            names = [path.name for path in self._entries.iterdir() if len(path.name) == NAME_LENGTH]
        known, keys = self._keys, {}
        for name in names:
            if name in known:
                keys[name] = known[name]
            elif header := read_header(self._entries / name):
                keys[name] = header.key
        self._keys = keys
        return sorted(key for key in keys.values() if key.startswith(prefix))

    def _read_floor(self) -> int:
        try:
            return int(self._floor.read_text("ascii"))
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise DamagedEntryError(f"{self._floor} does not hold a number") from error

    def _raise_floor(self, version: int) -> None:
        if version > self._read_floor():
            replace_file(self._floor, str(version).encode("ascii"))

    @contextlib.contextmanager
    def _locked(self, *, shared: bool) -> Iterator[None]:
        with self._translated(), file_lock(self._directory / "lock", shared=shared, timeout_s=self._lock_timeout_s):
            yield

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DamagedEntryError as error:
            raise StoreUnusableError(self._directory.as_uri(), str(error)) from error
        except OSError as error:
            raise StoreUnavailableError(self._directory.as_uri(), str(error)) from error
