"""Logs on the machine's file system, which must be a local one.

Durability: `sync` is fdatasync, which also stores a file's new length. `sync_directory` is fsync of the directory.
The mark is 64 bytes in two slots that are written in turn, so that a reader who meets a half-written one uses the
other. It is written with pwrite: through mmap, a failing disk would kill the process instead of raising.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dw_platform.foundation import fsync_directory
from dw_platform.log.disk import DirectoryLockedError

MARK_NAME = "mark"
LOCK_NAME = "lock"
_SLOT = struct.Struct("<QQQ")
_SLOT_BYTES = 32
# Any number that is not 0, so that a file of zeros is no mark.
_SLOT_CHECK = 0x9E3779B97F4A7C15
_MOST_BUFFERS = 1000  # Linux takes 1024 in one call
_COPY_BYTES = 4 * 1024 * 1024


class _AppendFile:
    def __init__(self, path: Path, flags: int, size: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
        try:
            os.ftruncate(self._descriptor, size)
            os.lseek(self._descriptor, size, os.SEEK_SET)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, buffers: Sequence[Any]) -> None:
        for start in range(0, len(buffers), _MOST_BUFFERS):
            some = buffers[start : start + _MOST_BUFFERS]
            _write_all(self._descriptor, some)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def rewrite(self, position: int) -> None:
        while data := os.pread(self._descriptor, _COPY_BYTES, position):
            position += os.pwrite(self._descriptor, data, position)
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_all(descriptor: int, buffers: Sequence[Any]) -> None:
    written = os.writev(descriptor, buffers)
    total = sum(memoryview(buffer).nbytes for buffer in buffers)
    if written == total:
        return
    # A signal or a disk that fills up ends a write early; the next call goes on, or says why it cannot.
    rest = memoryview(b"".join(bytes(buffer) for buffer in buffers))[written:]
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class _ReadFile:
    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Mark:
    def __init__(self, path: Path, *, writable: bool) -> None:
        self._path, self._writable, self._turn, self._descriptor = path, writable, 0, -1
        if writable and not path.exists():
            path.write_bytes(bytes(2 * _SLOT_BYTES))
            fsync_directory(path.parent)
        self._open()

    def _open(self) -> None:
        self.close()
        with contextlib.suppress(FileNotFoundError):
            self._descriptor = os.open(self._path, os.O_CLOEXEC | (os.O_RDWR if self._writable else os.O_RDONLY))

    def publish(self, start: int, end: int) -> None:
        slot = _SLOT.pack(start, end, start ^ end ^ _SLOT_CHECK)
        os.pwrite(self._descriptor, slot, self._turn * _SLOT_BYTES)
        self._turn = 1 - self._turn

    def read(self) -> tuple[int, int] | None:
        # A topic that was deleted and made again has another file under the same name.
        if self._descriptor < 0 or os.fstat(self._descriptor).st_nlink == 0:
            self._open()
        if self._descriptor < 0:
            return None
        data = os.pread(self._descriptor, 2 * _SLOT_BYTES, 0)
        if len(data) < 2 * _SLOT_BYTES:
            return None
        slots = (_SLOT.unpack_from(data, 0), _SLOT.unpack_from(data, _SLOT_BYTES))
        valid = [(end, start) for start, end, check in slots if check == start ^ end ^ _SLOT_CHECK]
        if not valid:
            return None
        end, start = max(valid)
        return start, end

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Lock:
    def __init__(self, path: Path) -> None:
        # flock, because the kernel drops it with the process, and it also keeps two writers in one process apart.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            raise DirectoryLockedError(f"process {holder}") from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode("ascii"), 0)
        _HELD.add(self)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_HELD: "weakref.WeakSet[_Lock]" = weakref.WeakSet()


def _release_inherited() -> None:
    # A forked child shares its parent's locks and would keep them after the parent's death.
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_release_inherited)


class FileDisk:
    """A Disk whose directories are paths."""

    def make_directory(self, directory: str) -> None:
        path = Path(directory)
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            fsync_directory(folder.parent)

    def remove_directory(self, directory: str) -> None:
        path = Path(directory)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
            fsync_directory(path.parent)

    def directories(self, directory: str) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        except FileNotFoundError:
            return []

    def list(self, directory: str) -> dict[str, int]:
        sizes = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                # A file may go while the folder is read; it is then not in it.
                with contextlib.suppress(FileNotFoundError):
                    sizes[entry.name] = entry.stat().st_size
        return sizes

    def create(self, directory: str, name: str) -> _AppendFile:
        return _AppendFile(Path(directory, name), os.O_CREAT, 0)

    def open_append(self, directory: str, name: str, size: int) -> _AppendFile:
        return _AppendFile(Path(directory, name), 0, size)

    def open_read(self, directory: str, name: str) -> _ReadFile:
        return _ReadFile(Path(directory, name))

    def rename(self, directory: str, old: str, new: str) -> None:
        Path(directory, old).replace(Path(directory, new))

    def remove(self, directory: str, name: str) -> None:
        Path(directory, name).unlink(missing_ok=True)

    def sync_directory(self, directory: str) -> None:
        fsync_directory(Path(directory))

    def mark(self, directory: str, *, writable: bool) -> _Mark:
        return _Mark(Path(directory, MARK_NAME), writable=writable)

    def lock(self, directory: str) -> _Lock:
        return _Lock(Path(directory, LOCK_NAME))
