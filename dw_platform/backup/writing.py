"""How an object comes to be: staged under another name, synced, and only then given the name of its content.

In a local repository the stage is a file of the repository, so that giving it its name is one rename. For a bucket it
is a file without a name on this machine, uploaded when hash and size are known: an object under a valid name is then
either whole or shorter than it should be, and a shorter one counts as absent.

A crash leaves a file in `tmp/` at most.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dw_platform.backup.codec import Buffer, encoder
from dw_platform.backup.contents import SourceFile
from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.place import Place
from dw_platform.backup.reading import PIECE_BYTES, Gate, no_gate
from dw_platform.backup.repository_errors import (
    SourceFileChangedError,
    SourceFileGoneError,
    SourceUnreadableError,
)
from dw_platform.backup.storage import Storage, written

# So much is on its way to the disk while more is read and hashed. Left to the end, one sync would wait for all of it,
# and with it the syncs of everybody else on that file system.
_STRETCH_BYTES = 4 * 1024 * 1024


class Staged:
    """One object while it is written; its content's hash grows with it. Leaving the block removes what is left."""

    def __init__(self, storage: Storage, suffix: str, keys: RepositoryKeys | None, *, io: Gate) -> None:
        self.suffix, self._storage, self._keys, self._io = suffix, storage, keys, io
        self._place = storage.place if storage.place.is_local else Place.at(tempfile.gettempdir())
        self.content, self.size = hashlib.sha256(), 0
        """Hash of what was taken, and bytes of its encoding."""
        self._on_its_way = 0
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with written(self._place), contextlib.ExitStack() as opened:
            if self._storage.place.is_local:
                self._path = self._storage.temporary()
                opened.callback(_discard, self._path)
                self._file: Any = opened.enter_context(self._path.open("wb", buffering=0))
            else:
                # It has no name, so it goes with its process, however that ends.
                self._file = opened.enter_context(tempfile.TemporaryFile(buffering=0))
            self._encoder = encoder(_Output(self), self.suffix, self._keys)
            self._left = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.close()

    def write(self, piece: Buffer) -> None:
        """Take the next piece of the content."""
        self.content.update(piece)
        with written(self._place):
            self._encoder.write(piece)

    def finish(self) -> None:
        """Write what the encoder holds back; `size` is final then."""
        with written(self._place):
            self._encoder.close()

    def publish(self, path: str) -> None:
        """Make it last, under `path` in the repository."""
        with written(self._place):
            if self._storage.place.is_local:
                os.fsync(self._file.fileno())
                self._storage.settle(self._path, path)
                return
        self._upload(self._storage.place, path)

    def append(self, data: Buffer) -> None:
        """Put encoded bytes into the file."""
        view = memoryview(data).cast("B")
        with self._io(len(view)):
            while view:
                count = os.write(self._file.fileno(), view)
                self.size += count
                view = view[count:]
            if self.size - self._on_its_way >= _STRETCH_BYTES and self._storage.place.is_local:
                self._write_out()

    def _write_out(self) -> None:
        """Let the disk begin with what it has not got yet, and the cache forget what it has: nobody reads it soon."""
        with contextlib.suppress(OSError):  # a hint; what goes wrong with the bytes is told by the sync
            start, self._on_its_way = self._on_its_way, self.size
            os.posix_fadvise(self._file.fileno(), start, self.size - start, os.POSIX_FADV_DONTNEED)

    def _upload(self, place: Place, path: str) -> None:
        with written(place):
            self._file.seek(0)
            try:
                # By default pyarrow goes by the name and would compress what ends in .zst once more.
                with place.system.open_output_stream(place.path(path), compression=None) as stream:
                    while piece := self._file.read(PIECE_BYTES):
                        with self._io(len(piece)):
                            stream.write(piece)
            except BaseException:
                # pyarrow finishes the upload on its way out; what it finished is too short and would count as damage.
                with contextlib.suppress(OSError):
                    place.system.delete_file(place.path(path))
                raise


class _Output:
    def __init__(self, staged: Staged) -> None:
        self.write = staged.append


def source_pieces(source: Place, file: SourceFile, *, io: Gate) -> Iterator[memoryview]:
    """Give the content of a table's file; each piece is overwritten by the next."""
    buffer = memoryview(bytearray(min(PIECE_BYTES, max(file.size, 1))))
    total = 0
    with _reading(file.path):
        stream = _open(source, file.path)
    with stream:
        while True:
            with _reading(file.path), io(len(buffer)):
                count = stream.readinto(buffer)
            if not count:
                break
            total += count
            if total > file.size:
                break
            yield buffer[:count]
    if total != file.size:
        raise SourceFileChangedError(file.path, file.size, total)


def source_middle(source: Place, file: SourceFile, size: int, *, io: Gate = no_gate) -> bytes:
    """Return so many bytes from the middle of a table's file; all of it if it is smaller."""
    with _reading(file.path), io(size):
        if not source.is_local:
            with source.system.open_input_file(source.path(file.path)) as stored:
                stored.seek(max(0, file.size - size) // 2)
                return bytes(stored.read(size))
        with (source.local / file.path).open("rb", buffering=0) as stream:
            stream.seek(max(0, file.size - size) // 2)
            return stream.read(size)


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise SourceFileGoneError(path) from error
    except OSError as error:
        raise SourceUnreadableError(path, error.strerror or str(error)) from error


def _open(source: Place, path: str) -> Any:
    if source.is_local:
        return (source.local / path).open("rb", buffering=0)
    return source.system.open_input_stream(source.path(path), compression=None)


def _discard(path: Path) -> None:
    # What cannot be removed now is removed by the sweep, once it is old.
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
