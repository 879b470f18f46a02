"""Copying a table's files into a repository; runs in Spark tasks, or in threads of this process.

A task has its hand of pieces: a piece is one file, or a group of small ones that become one object. Several streams
work on them at once, as many as the disks take (see fileio/streams.py). What is stored is noted in the repository
every second or so, so whoever goes on after a crash copies no more than that again.

Workers of Spark import this module, so it stays light: no deltalake, no Spark.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dw_platform.backup import Gate, Journal, ObjectStore, Place, SourceFile, StoredFile, is_small, pack_groups
from dw_platform.fileio.streams import StreamPolicy, run_streams
from dw_platform.foundation import Clock, SystemClock

Piece = tuple[SourceFile, ...]
"""One file, or small ones that lie together."""

# A note is a file with two syncs of its own: so rarely that they do not count, so often that little is copied twice.
_NOTE_EVERY_S = 1.0
_NOTE_BYTES = 64 * 1024 * 1024


def pieces_of(files: Iterable[SourceFile], known: Mapping[str, StoredFile]) -> list[Piece]:
    """Return what is copied at once, the largest first, without what the log says about each file."""
    bare = [_without_log(file) for file in files]
    large = [(file,) for file in bare if not is_small(file)]
    return sorted([*large, *pack_groups(filter(is_small, bare), known)], key=_size, reverse=True)


def hands_of(pieces: Sequence[Piece], count: int) -> tuple[tuple[Piece, ...], ...]:
    """Return the pieces dealt out evenly by size; fewer hands if there are fewer pieces."""
    hands = [list[Piece]() for _ in range(min(count, len(pieces)))]
    sizes = [0] * len(hands)
    for piece in pieces:
        least = sizes.index(min(sizes))
        hands[least].append(piece)
        sizes[least] += _size(piece)
    return tuple(tuple(hand) for hand in hands)


def without_log(known: Mapping[str, StoredFile]) -> dict[str, StoredFile]:
    """Return stored files without what the log says about them: statistics and tags, which no task needs."""
    return {path: replace(stored, source=_without_log(stored.source)) for path, stored in known.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWork:
    """What the tasks of one backup do; picklable."""

    objects: ObjectStore
    source: Place
    journal: Journal
    hands: tuple[tuple[Piece, ...], ...]
    known: Mapping[str, StoredFile]
    """Where an earlier backup has a file; what still has that content is read and not written."""

    streams: StreamPolicy

    def copy(self, hand: int) -> int:
        """Store the files of one hand and return how many there were."""
        notes = _Notes(self.journal)
        policy = self.streams.shared_by(len(self.hands))
        try:
            stored = run_streams(self.hands[hand], lambda piece, io: notes.add(self._stored(piece, io)), policy)
        finally:
            # Whatever failed, what is stored need not be copied again.
            notes.write()
        return sum(stored)

    def _stored(self, piece: Piece, io: Gate) -> list[StoredFile]:
        if len(piece) == 1 and not is_small(piece[0]):
            return [self.objects.put_file(self.source, piece[0], known=self.known.get(piece[0].path), io=io)]
        return self.objects.put_pack(self.source, piece, known=self.known, io=io)


@dataclass(slots=True)
class _Notes:
    """What was stored and is not noted yet; any thread may add."""

    journal: Journal
    clock: Clock = field(default_factory=SystemClock)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: list[StoredFile] = field(default_factory=list)
    _bytes: int = 0
    _since: float | None = None

    def add(self, stored: Sequence[StoredFile]) -> int:
        """Take what was stored; write a note if enough has gathered. Returns how many files it was."""
        now = self.clock.monotonic()
        with self._lock:
            self._since = now if self._since is None else self._since
            self._waiting += stored
            self._bytes += sum(each.source.size for each in stored)
            due = self._bytes >= _NOTE_BYTES or now - self._since >= _NOTE_EVERY_S
        if due:
            self.write()
        return len(stored)

    def write(self) -> None:
        """Note everything that waits."""
        with self._lock:
            taken, self._waiting, self._bytes, self._since = self._waiting, [], 0, None
        self.journal.add(taken)


def _without_log(file: SourceFile) -> SourceFile:
    return replace(file, add=None)


def _size(piece: Piece) -> int:
    return sum(file.size for file in piece)
