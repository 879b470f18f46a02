"""A disk in memory that does what real ones do to those who did not fsync.

`crash` is a power cut: of every write since the last sync, any sectors may be on disk and any may not, in any
order; of created, renamed and removed names since the last directory sync, any first ones have happened.
`kill` ends the process only: what was written stays. A failed sync leaves bytes that can be read but are not on
disk and that a later sync does not write, as on Linux.
"""

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from dw_platform.log.disk import DirectoryLockedError

SECTOR = 512
Write = tuple[int, bytes]


@dataclass(eq=False)
class _Inode:
    """One file: what readers see, what the platters have, and the writes in between."""

    seen: bytearray = field(default_factory=bytearray)
    stored: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    cut: int | None = None

    def put(self, position: int, data: bytes) -> None:
        _put(self.seen, position, data)
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        if size < len(self.seen):
            del self.seen[size:]
            self.cut = size if self.cut is None else min(self.cut, size)
            self.pending = [(at, data[: size - at]) for at, data in self.pending if at < size]

    def sync(self) -> None:
        if self.cut is not None:
            del self.stored[self.cut :]
        for position, data in self.pending:
            _put(self.stored, position, data)
        self.pending, self.cut = [], None

    def crash(self, chance: random.Random) -> None:
        if self.cut is not None and chance.random() < 0.5:
            del self.stored[self.cut :]
        share = chance.choice([0.0, 0.3, 0.7, 1.0])
        for position, data in self.pending:
            for start, end in _sectors(position, position + len(data)):
                if chance.random() < share:
                    # Inside a sector, too, the last bytes may be missing.
                    kept = end if chance.random() < 0.9 else chance.randint(start, end)
                    _put(self.stored, start, data[start - position : kept - position])
        self.pending, self.cut = [], None
        self.seen = bytearray(self.stored)


def _put(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _sectors(start: int, end: int) -> list[tuple[int, int]]:
    edges = [start, *range(start - start % SECTOR + SECTOR, end, SECTOR), end]
    return list(pairwise(edges))


class _AppendFile:
    def __init__(self, disk: "FaultyDisk", inode: _Inode) -> None:
        self._disk, self._inode, self._life = disk, inode, disk.life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, buffers: Sequence[Any]) -> None:
        self._disk.check(self._life)
        data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)
        room = len(data) if self._disk.room is None else min(self._disk.room, len(data))
        self._inode.put(len(self._inode.seen), data[:room])
        if self._disk.room is not None:
            self._disk.room -= room
        if room < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync(self) -> None:
        self._disk.check(self._life)
        if self._disk.failing_syncs:
            self._disk.failing_syncs -= 1
            self._inode.pending = []
            raise OSError(errno.EIO, "Input/output error")
        self._inode.sync()

    def rewrite(self, position: int) -> None:
        self._disk.check(self._life)
        self._inode.put(position, bytes(self._inode.seen[position:]))
        self.sync()

    def close(self) -> None:
        """Nothing stays open."""


class _ReadFile:
    def __init__(self, name: str, inode: _Inode) -> None:
        self.name, self._inode = name, inode

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._inode.seen[position : position + length])

    def size(self) -> int:
        return len(self._inode.seen)

    def close(self) -> None:
        """Nothing stays open."""


class _Mark:
    def __init__(self, disk: "FaultyDisk", directory: str) -> None:
        self._disk, self._directory, self._life = disk, directory, disk.life

    def publish(self, start: int, end: int) -> None:
        self._disk.check(self._life)
        self._disk.marks.setdefault(self._directory, []).append((start, end))

    def read(self) -> tuple[int, int] | None:
        shown = self._disk.marks.get(self._directory)
        return shown[-1] if shown else None

    def close(self) -> None:
        """Nothing stays open."""


class _Lock:
    def __init__(self, disk: "FaultyDisk", directory: str) -> None:
        self._disk, self._directory, self._life = disk, directory, disk.life

    def release(self) -> None:
        if self._life == self._disk.life:
            self._disk.locked.discard(self._directory)


class FaultyDisk:
    """A Disk whose faults a test chooses."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.life = 0
        self.room: int | None = None
        self.failing_syncs = 0
        self.steps: int | None = None
        self.locked: set[str] = set()
        self.marks: dict[str, list[tuple[int, int]]] = {}
        self._seen: dict[str, dict[str, _Inode]] = {}
        self._stored: dict[str, list[dict[str, _Inode]]] = {}

    def crash(self) -> None:
        """Cut the power and start again."""
        self.kill()
        for directory, states in self._stored.items():
            kept = self.chance.choice(states)
            for inode in {id(inode): inode for inode in [*kept.values(), *self._seen[directory].values()]}.values():
                inode.crash(self.chance)
            self._seen[directory], self._stored[directory] = dict(kept), [dict(kept)]
        for directory, shown in self.marks.items():
            # Any earlier state of the mark may be the one that reached the disk.
            self.marks[directory] = [] if self.chance.random() < 0.1 else [self.chance.choice(shown)] if shown else []

    def kill(self) -> None:
        """End the process: its locks go, and whatever it still holds is dead."""
        self.life += 1
        self.room, self.failing_syncs, self.steps = None, 0, None
        self.locked.clear()

    def check(self, life: int) -> None:
        """Raise OSError for whoever belongs to a process that has ended."""
        if life != self.life:
            raise OSError(errno.EBADF, "this process has ended")
        self.step()

    def step(self) -> None:
        """Count one change; with `steps` set, that many succeed and all later ones fail."""
        if self.steps is not None:
            if self.steps <= 0:
                raise OSError(errno.EIO, "the disk is gone")
            self.steps -= 1

    def content(self, directory: str, name: str) -> bytearray:
        """Return what readers see of a file, to be damaged."""
        return self._seen[directory][name].seen

    def make_directory(self, directory: str) -> None:
        parts = directory.split("/")
        for count in range(1, len(parts) + 1):
            self._seen.setdefault("/".join(parts[:count]), {})
            self._stored.setdefault("/".join(parts[:count]), [{}])

    def remove_directory(self, directory: str) -> None:
        for name in [name for name in self._seen if f"{name}/".startswith(f"{directory}/")]:
            del self._seen[name], self._stored[name]
            self.marks.pop(name, None)

    def directories(self, directory: str) -> list[str]:
        below = [name.removeprefix(f"{directory}/") for name in self._seen if name.startswith(f"{directory}/")]
        return sorted(name for name in below if "/" not in name)

    def list(self, directory: str) -> dict[str, int]:
        if directory not in self._seen:
            raise FileNotFoundError(directory)
        return {name: len(inode.seen) for name, inode in self._seen[directory].items()}

    def create(self, directory: str, name: str) -> _AppendFile:
        self.step()
        inode = self._seen[directory].get(name)
        if inode is None:
            inode = self._seen[directory][name] = _Inode()
            self._changed(directory)
        inode.truncate(0)
        return _AppendFile(self, inode)

    def open_append(self, directory: str, name: str, size: int) -> _AppendFile:
        inode = self._find(directory, name)
        inode.truncate(size)
        return _AppendFile(self, inode)

    def open_read(self, directory: str, name: str) -> _ReadFile:
        return _ReadFile(f"{directory}/{name}", self._find(directory, name))

    def rename(self, directory: str, old: str, new: str) -> None:
        self.step()
        inode = self._find(directory, old)
        del self._seen[directory][old]
        self._seen[directory][new] = inode
        self._changed(directory)

    def remove(self, directory: str, name: str) -> None:
        self.step()
        if self._seen[directory].pop(name, None) is not None:
            self._changed(directory)

    def sync_directory(self, directory: str) -> None:
        self.step()
        self._stored[directory] = [dict(self._seen[directory])]

    def mark(self, directory: str, *, writable: bool) -> _Mark:  # noqa: ARG002 - the Protocol's arguments
        return _Mark(self, directory)

    def lock(self, directory: str) -> _Lock:
        if directory not in self._seen:
            raise FileNotFoundError(directory)
        if directory in self.locked:
            raise DirectoryLockedError("another writer")
        self.locked.add(directory)
        return _Lock(self, directory)

    def _changed(self, directory: str) -> None:
        # Each state since the last sync is one that a crash may leave.
        self._stored[directory].append(dict(self._seen[directory]))

    def _find(self, directory: str, name: str) -> _Inode:
        try:
            return self._seen[directory][name]
        except KeyError:
            raise FileNotFoundError(f"{directory}/{name}") from None
