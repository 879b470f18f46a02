"""Logs in the control store, for small queues where there is no local disk to keep: SQLite, PostgreSQL, or memory.

    dw://internal/log/directories/{directory}               the directory exists
    dw://internal/log/files/{directory}/{name}              the id of the file's content
    dw://internal/log/chunks/{directory}/{id}/{position}    the bytes that one write added

Durability: every write is stored when it returns, whatever the fsync policy says, and readers see nothing else, so
there is no mark. A chunk is made only where there is none, so a writer whose lease ran out without its noticing
fails at the first byte that another one has written.

A killed writer keeps others out until its lease ends, half a minute at most.
"""

import bisect
import contextlib
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from dw_platform.foundation import PlatformError
from dw_platform.log.disk import DirectoryLockedError
from dw_platform.store import (
    MAX_VALUE_BYTES,
    Lease,
    LeaseLock,
    LeaseMode,
    LeaseTimeoutError,
    PersistentStore,
    internal_key,
    internal_prefix,
    key_parts,
)

_PAGE = 200


@contextlib.contextmanager
def _medium() -> Iterator[None]:
    """Report what the store reports the way a disk does."""
    try:
        yield
    except PlatformError as error:
        raise OSError(str(error)) from error


def _chunk_key(directory: str, content: str, position: int) -> str:
    return internal_key("log", "chunks", directory, content, f"{position:020}")


class _Content:
    """The chunks of one file."""

    def __init__(self, store: PersistentStore, directory: str, content: str) -> None:
        self._store, self._directory, self._content = store, directory, content
        self._prefix = internal_prefix("log", "chunks", directory, content)

    def starts(self) -> list[int]:
        with _medium():
            return [int(key_parts(key)[-1]) for key in self._store.list_versions(self._prefix)]

    def chunk(self, start: int) -> bytes:
        with _medium():
            entry = self._store.get(_chunk_key(self._directory, self._content, start))
        if entry is None:
            raise FileNotFoundError(f"{self._directory}: the content {self._content} was removed")
        return entry.value

    def size(self) -> int:
        starts = self.starts()
        return starts[-1] + len(self.chunk(starts[-1])) if starts else 0

    def from_chunk(self, before: int | None) -> Iterator[bytes]:
        """Yield the chunks behind the one that starts at `before`."""
        after = None if before is None else _chunk_key(self._directory, self._content, before)
        while True:
            with _medium():
                page = self._store.list(self._prefix, after=after, limit=_PAGE)
            yield from (entry.value for entry in page)
            if len(page) < _PAGE:
                return
            after = page[-1].key

    def add(self, position: int, data: bytes) -> None:
        with _medium():
            self._store.compare_and_set(_chunk_key(self._directory, self._content, position), data, expected=None)

    def cut(self, size: int) -> None:
        for start in reversed(self.starts()):
            if start >= size:
                self.remove(start)
            elif start + len(chunk := self.chunk(start)) > size:
                with _medium():
                    self._store.put(_chunk_key(self._directory, self._content, start), chunk[: size - start])

    def remove(self, start: int) -> None:
        with _medium():
            self._store.delete(_chunk_key(self._directory, self._content, start))

    def remove_all(self) -> None:
        for start in reversed(self.starts()):
            self.remove(start)


class _AppendFile:
    def __init__(self, content: _Content, size: int, lease: Lease | None) -> None:
        self._content, self._size, self._lease = content, size, lease

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, buffers: Sequence[Any]) -> None:
        data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)
        for start in range(0, len(data), MAX_VALUE_BYTES):
            if self._lease is not None:
                with _medium():
                    self._lease.ensure_held()
            some = data[start : start + MAX_VALUE_BYTES]
            self._content.add(self._size, some)
            self._size += len(some)

    def sync(self) -> None:
        """Do nothing: a write that returned is stored."""

    def rewrite(self, position: int) -> None:
        """Do nothing: a transaction that failed shows nothing."""

    def close(self) -> None:
        """Nothing stays open."""


class _ReadFile:
    def __init__(self, name: str, content: _Content) -> None:
        self.name, self._content = name, content
        self._starts: list[int] = []

    def read(self, position: int, length: int) -> bytes:
        self._starts = self._content.starts()
        number = bisect.bisect_right(self._starts, position) - 1
        if number < 0:
            return b""
        first, parts, wanted = self._starts[number], list[bytes](), position + length - self._starts[number]
        for chunk in self._content.from_chunk(self._starts[number - 1] if number else None):
            parts.append(chunk)
            wanted -= len(chunk)
            if wanted <= 0:
                break
        return b"".join(parts)[position - first : position - first + length]

    def size(self) -> int:
        return self._content.size()

    def close(self) -> None:
        """Nothing stays open."""


class _NoMark:
    def publish(self, start: int, end: int) -> None:
        """Do nothing: what can be read is stored."""

    def read(self) -> tuple[int, int] | None:
        return None

    def close(self) -> None:
        """Nothing stays open."""


class _LeaseLock:
    def __init__(self, disk: "StoreDisk", directory: str, lease: Lease) -> None:
        self._disk, self._directory, self._lease = disk, directory, lease

    def release(self) -> None:
        self._disk.leases.pop(self._directory, None)
        self._lease.release()


class StoreDisk:
    """A Disk in `store`; one object may serve any number of logs and threads."""

    def __init__(self, store: PersistentStore) -> None:
        self._store = store
        self.leases: dict[str, Lease] = {}

    def make_directory(self, directory: str) -> None:
        parts = directory.split("/")
        with _medium():
            for count in range(1, len(parts) + 1):
                key = internal_key("log", "directories", "/".join(parts[:count]))
                if self._store.get(key) is None:
                    self._store.put(key, b"")

    def remove_directory(self, directory: str) -> None:
        with _medium():
            below = [name for name in self._all_directories() if name == directory or name.startswith(f"{directory}/")]
            for name in sorted(below, reverse=True):
                for file in self._ids(name):
                    self.remove(name, file)
                self._store.delete(internal_key("log", "directories", name))

    def directories(self, directory: str) -> list[str]:
        with _medium():
            below = [name.removeprefix(f"{directory}/") for name in self._all_directories() if name != directory]
        return sorted({name for name in below if "/" not in name})

    def list(self, directory: str) -> dict[str, int]:
        with _medium():
            if self._store.get(internal_key("log", "directories", directory)) is None:
                raise FileNotFoundError(directory)
            ids = self._ids(directory)
        sizes = {}
        for name, content in ids.items():
            # A file may go while the directory is read; it is then not in it.
            with contextlib.suppress(FileNotFoundError):
                sizes[name] = _Content(self._store, directory, content).size()
        return sizes

    def create(self, directory: str, name: str) -> _AppendFile:
        old, content = self._id(directory, name), secrets.token_hex(8)
        self._point(directory, name, content)
        self._drop_unnamed(directory, old)
        return _AppendFile(_Content(self._store, directory, content), 0, self.leases.get(directory))

    def open_append(self, directory: str, name: str, size: int) -> _AppendFile:
        content = _Content(self._store, directory, self._existing(directory, name))
        content.cut(size)
        return _AppendFile(content, size, self.leases.get(directory))

    def open_read(self, directory: str, name: str) -> _ReadFile:
        content = _Content(self._store, directory, self._existing(directory, name))
        return _ReadFile(f"{directory}/{name}", content)

    def rename(self, directory: str, old: str, new: str) -> None:
        replaced, content = self._id(directory, new), self._existing(directory, old)
        self._point(directory, new, content)
        with _medium():
            self._store.delete(internal_key("log", "files", directory, old))
        self._drop_unnamed(directory, replaced)

    def remove(self, directory: str, name: str) -> None:
        content = self._id(directory, name)
        with _medium():
            self._store.delete(internal_key("log", "files", directory, name))
        self._drop_unnamed(directory, content)

    def sync_directory(self, directory: str) -> None:
        """Do nothing: every change is stored when it returns."""

    def mark(self, directory: str, *, writable: bool) -> _NoMark:  # noqa: ARG002 - the Protocol's arguments
        return _NoMark()

    def lock(self, directory: str) -> _LeaseLock:
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            with _medium():
                if self._store.get(internal_key("log", "directories", directory)) is None:
                    raise FileNotFoundError(directory)
                key = internal_key("log", "locks", directory)
                lease = LeaseLock(self._store, key, owner=owner).acquire(LeaseMode.EXCLUSIVE, timeout_s=0)
        except OSError as error:
            if isinstance(error.__cause__, LeaseTimeoutError):
                raise DirectoryLockedError(", ".join(error.__cause__.holders)) from error
            raise
        self.leases[directory] = lease
        self._sweep(directory)
        return _LeaseLock(self, directory, lease)

    def _sweep(self, directory: str) -> None:
        """Remove what a killed writer left without a name."""
        with _medium():
            keys = self._store.list_versions(internal_prefix("log", "chunks", directory))
            named = set(self._ids(directory).values())
        for content in {key_parts(key)[-2] for key in keys} - named:
            _Content(self._store, directory, content).remove_all()

    def _drop_unnamed(self, directory: str, content: str | None) -> None:
        with _medium():
            named = self._ids(directory).values()
        if content is not None and content not in named:
            _Content(self._store, directory, content).remove_all()

    def _all_directories(self) -> Iterator[str]:
        return (key_parts(key)[-1] for key in self._store.list_versions(internal_prefix("log", "directories")))

    def _ids(self, directory: str) -> dict[str, str]:
        ids, after, prefix = dict[str, str](), None, internal_prefix("log", "files", directory)
        while True:
            page = self._store.list(prefix, after=after, limit=_PAGE)
            ids.update({key_parts(entry.key)[-1]: entry.value.decode("ascii") for entry in page})
            if len(page) < _PAGE:
                return ids
            after = page[-1].key

    def _id(self, directory: str, name: str) -> str | None:
        with _medium():
            entry = self._store.get(internal_key("log", "files", directory, name))
        return None if entry is None else entry.value.decode("ascii")

    def _existing(self, directory: str, name: str) -> str:
        content = self._id(directory, name)
        if content is None:
            raise FileNotFoundError(f"{directory}/{name}")
        return content

    def _point(self, directory: str, name: str, content: str) -> None:
        with _medium():
            self._store.put(internal_key("log", "files", directory, name), content.encode("ascii"))
