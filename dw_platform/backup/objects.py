"""The contents of a repository: objects named by the hash of what they hold, written once and never changed.

An object is there when its name and its size are: it gets its name only when it is whole and on disk. A plain object
is the file's own bytes and its name is their SHA-256, so `sha256sum` checks it. In an encrypted repository the name is
an HMAC of that hash. Small files lie together in packs, which are objects like any other.

Reading gives the bytes that were stored or raises ObjectDamagedError, at the latest after the last piece: what was
read counts when the reading has ended.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dw_platform.backup.codec import COMPRESSED, SAMPLE_BYTES, Buffer, shrinks, suffix_for, suffix_of
from dw_platform.backup.contents import SourceFile, StoredFile
from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import OBJECTS, object_name
from dw_platform.backup.place import Place
from dw_platform.backup.reading import Gate, content_of, no_gate, raw
from dw_platform.backup.repository_errors import ObjectDamagedError
from dw_platform.backup.storage import Listed, Storage
from dw_platform.backup.writing import Staged, source_middle, source_pieces


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The objects of one repository; picklable, so that tasks read and write them side by side."""

    place: Place
    keys: RepositoryKeys | None = None
    compress: bool = True
    """Whether contents that shrink are compressed."""

    @property
    def storage(self) -> Storage:
        """Return the files that the objects are."""
        return Storage(self.place)

    def put_file(
        self, source: Place, file: SourceFile, *, known: StoredFile | None = None, io: Gate = no_gate
    ) -> StoredFile:
        """Store the file's content and return where it is; nothing is written if the content is there already.

        `known` is where an earlier backup has it: while the file still has that hash, it is read and not written.
        """
        if known is not None and self.has(known):
            digest = hashlib.sha256()
            for piece in source_pieces(source, file, io=io):
                digest.update(piece)
            if digest.hexdigest() == known.sha256:
                return replace(known, source=file)
        pieces = source_pieces(source, file, io=io)
        sha256, name, size = self._store(pieces, lambda: source_middle(source, file, SAMPLE_BYTES, io=io), io)
        return StoredFile(source=file, sha256=sha256, object_name=name, object_size=size)

    def put_pack(
        self,
        source: Place,
        files: Sequence[SourceFile],
        *,
        known: Mapping[str, StoredFile] | None = None,
        io: Gate = no_gate,
    ) -> list[StoredFile]:
        """Store small files in one object; `known` is by path, and what it is still right about is not written.

        They are held in memory: `pack_groups` forms groups of a fit size.
        """
        contents = {file.path: b"".join(map(bytes, source_pieces(source, file, io=io))) for file in files}
        hashes = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
        there = {path: stored for path, stored in (known or {}).items() if hashes.get(path) == stored.sha256}
        there = {path: stored for path, stored in there.items() if self.has(stored)}
        missing = [file for file in files if file.path not in there]
        if missing:
            pack = b"".join(contents[file.path] for file in missing)
            _, name, size = self._store(iter([memoryview(pack)]), lambda: _middle(pack), io)
            position = 0
            for file in missing:
                offset = position if len(missing) > 1 else None
                there[file.path] = StoredFile(
                    source=file, sha256=hashes[file.path], object_name=name, object_size=size, offset=offset
                )
                position += len(contents[file.path])
        return [replace(there[file.path], source=file) for file in files]

    def read(self, entry: StoredFile, *, io: Gate = no_gate) -> Iterator[bytes]:
        """Give the file's content; raise ObjectMissingError or ObjectDamagedError.

        What was given counts only once the iterator has ended: the hash is compared at the end.
        """
        digest, size = hashlib.sha256(), 0
        for piece in self.read_unchecked(entry, io=io):
            digest.update(piece)
            size += len(piece)
            yield piece
        _require(entry, size == entry.source.size, digest.hexdigest())

    def read_unchecked(self, entry: StoredFile, *, io: Gate = no_gate) -> Iterator[bytes]:
        """Give the file's content for somebody who compares size and hash himself, so that it is hashed only once."""
        left = entry.source.size
        for piece in self._file_pieces(entry, io):
            yield piece
            left -= len(piece)
            if left < 0:
                return  # it is wrong already, however much more there is

    def read_pack(self, entries: Sequence[StoredFile], *, io: Gate = no_gate) -> Iterator[tuple[StoredFile, bytes]]:
        """Give the content of files that lie in one object, which is read once; only checked content is given."""
        name, size = entries[0].object_name, entries[0].object_size
        pack = memoryview(b"".join(content_of(self.storage, name, size, self.keys, io=io)))
        for entry in entries:
            start = entry.offset or 0
            content = bytes(pack[start : start + entry.source.size])
            whole = len(content) == entry.source.size and entry.object_name == name
            _require(entry, whole, hashlib.sha256(content).hexdigest())
            yield entry, content

    def check(self, name: str, size: int, *, io: Gate = no_gate) -> None:
        """Read the whole object and raise unless its content is what its name says."""
        digest = hashlib.sha256()
        for piece in content_of(self.storage, name, size, self.keys, io=io):
            digest.update(piece)
        if self._name(digest.hexdigest(), suffix_of(name)) != name:
            raise ObjectDamagedError(name, "its content does not have the hash that its name says")

    def has(self, entry: StoredFile) -> bool:
        """Return whether the object of the file is there in its size."""
        found = self.storage.find(f"{OBJECTS}/{entry.object_name}")
        return found is not None and found.size == entry.object_size

    def listing(self) -> dict[str, Listed]:
        """Return every object by its name."""
        cut = len(OBJECTS) + 1
        found = self.storage.walk(OBJECTS)
        return {path[cut:]: listed for path, listed in found.items() if "/." not in path}

    def index(self) -> dict[str, int]:
        """Return the size of every object by its name, from one listing."""
        return {name: listed.size for name, listed in self.listing().items()}

    def _file_pieces(self, entry: StoredFile, io: Gate) -> Iterator[bytes]:
        name, size = entry.object_name, entry.object_size
        if entry.offset is None:
            return content_of(self.storage, name, size, self.keys, io=io)
        if not suffix_of(name):
            return raw(self.storage, name, size, start=entry.offset, length=entry.source.size, io=io)
        return (content for _, content in self.read_pack([entry], io=io))

    def _store(self, pieces: Iterator[memoryview], middle: Callable[[], Buffer], io: Gate) -> tuple[str, str, int]:
        """Return the content's hash and the name and size of its object, new or old."""
        first = next(pieces, memoryview(b""))
        # Parquet often begins with a column of ascending numbers, which shrinks again and stands for nothing else.
        compress = self.compress and shrinks(first[:SAMPLE_BYTES]) and shrinks(middle())
        with Staged(self.storage, suffix_for(compress=compress, keys=self.keys), self.keys, io=io) as staged:
            for piece in chain([first], pieces):
                staged.write(piece)
            staged.finish()
            sha256 = staged.content.hexdigest()
            name = self._name(sha256, staged.suffix)
            there = self._intact(name, staged.size)
            if there is None:
                staged.publish(f"{OBJECTS}/{name}")
        return sha256, name, staged.size if there is None else there

    def _intact(self, name: str, size: int) -> int | None:
        """Return the size of the object if it is there; another size than ours is believed only after reading it.

        Another release of zstd may compress to another size, but so may a writer have been cut off.
        """
        found = self.storage.find(f"{OBJECTS}/{name}")
        if found is None or found.size == size:
            return None if found is None else size
        try:
            self.check(name, found.size)
        except ObjectDamagedError:
            return None
        return found.size

    def _name(self, sha256: str, suffix: str) -> str:
        return object_name(self.keys.name_of(sha256) if self.keys else sha256, suffix)


def _middle(content: bytes) -> bytes:
    start = max(0, (len(content) - SAMPLE_BYTES) // 2)
    return content[start : start + SAMPLE_BYTES]


def lacking(objects: Mapping[str, int], index: Mapping[str, int]) -> list[str]:
    """Return the objects that are not there in the size they were stored with.

    A compressed one may have been stored anew by another release of zstd; whether it is whole only reading it tells.
    """
    return [
        name
        for name, size in objects.items()
        if index.get(name) != size and not (name in index and suffix_of(name).startswith(COMPRESSED))
    ]


def _require(entry: StoredFile, whole: bool, sha256: str) -> None:  # noqa: FBT001 - the one caller's condition
    if not whole or sha256 != entry.sha256:
        raise ObjectDamagedError(entry.object_name, f"it does not hold {entry.source.path} as it was stored")
