"""The bytes under a log: what it needs from a place that keeps files.

`FileDisk` is the machine's file system; a database and the tests' faulty disk fulfil the same Protocol. Errors of
the medium are OSError. A directory is a text that only its disk understands; names in it are the log's own.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self


class DirectoryLockedError(Exception):
    """Somebody else holds the directory's lock; the partition that wanted it says so in its words."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(holder)


class AppendFile(Protocol):
    """A file that grows at its end."""

    def write(self, buffers: Sequence[Any]) -> None:
        """Append all buffers, or raise OSError with any part of them appended."""

    def sync(self) -> None:
        """Return once everything written is on disk; after an OSError nothing may be assumed about it."""

    def rewrite(self, position: int) -> None:
        """Write the bytes from `position` to the end once more and sync them.

        After a failed fsync the operating system may show bytes that the disk does not have and that another
        fsync would not write; this makes them dirty again.
        """

    def close(self) -> None:
        """Release the file; closing twice is harmless."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ReadFile(Protocol):
    """A file as it was when it was opened; it stays readable when its name goes to another file."""

    @property
    def name(self) -> str:
        """Return what to call the file in a message."""

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes, fewer only at the end; FileNotFoundError if the disk cannot keep it open."""

    def size(self) -> int:
        """Return its present size."""

    def close(self) -> None:
        """Release the file; closing twice is harmless."""


class Mark(Protocol):
    """How far a partition's records are acknowledged and from where on they are kept, for readers to see at once.

    It is not forced to disk with every change: after a crash of the machine it may show an earlier state, or none.
    """

    def publish(self, start: int, end: int) -> None:
        """Show both numbers to all readers, also to those of other processes."""

    def read(self) -> tuple[int, int] | None:
        """Return start and end, or None if this disk keeps no mark or it is damaged."""

    def close(self) -> None:
        """Release it; closing twice is harmless."""


class Lock(Protocol):
    """A lock that is held until it is released or its process ends."""

    def release(self) -> None:
        """Let others have it; releasing twice is harmless."""


class Disk(Protocol):
    """A place for the files of logs."""

    def make_directory(self, directory: str) -> None:
        """Make the directory and its parents; return once they survive a crash."""

    def remove_directory(self, directory: str) -> None:
        """Remove the directory and everything in it; nothing to remove is harmless."""

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories in it, in order; none if it does not exist."""

    def list(self, directory: str) -> dict[str, int]:
        """Return the names and sizes of the files in it; FileNotFoundError if it does not exist."""

    def create(self, directory: str, name: str) -> AppendFile:
        """Return a new file, empty also if there was one of that name."""

    def open_append(self, directory: str, name: str, size: int) -> AppendFile:
        """Return an existing file, cut to `size` bytes."""

    def open_read(self, directory: str, name: str) -> ReadFile:
        """Return an existing file for reading; FileNotFoundError if there is none."""

    def rename(self, directory: str, old: str, new: str) -> None:
        """Give a file another name, in place of the one that had it; durable after `sync_directory`."""

    def remove(self, directory: str, name: str) -> None:
        """Remove a file; durable after `sync_directory`."""

    def sync_directory(self, directory: str) -> None:
        """Return once created, renamed and removed names are on disk."""

    def mark(self, directory: str, *, writable: bool) -> Mark:
        """Return the directory's mark; a writable one is made if it is missing."""

    def lock(self, directory: str) -> Lock:
        """Return the directory's lock, or raise DirectoryLockedError at once."""


def replace(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Write a small file atomically and durably: after a crash it is the old or the new one."""
    with disk.create(directory, f"{name}.tmp") as file:
        file.write([content])
        file.sync()
    disk.rename(directory, f"{name}.tmp", name)
    disk.sync_directory(directory)


def read_all(disk: Disk, directory: str, name: str) -> bytes | None:
    """Return a small file's content, or None if there is no such file."""
    try:
        file = disk.open_read(directory, name)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, file.size())
    finally:
        file.close()
