"""How objects are read: piece by piece through the caller's gate, decoded, with the errors of a repository."""

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dw_platform.backup.codec import COMPRESSED, UndecodableError, decoded, suffix_of
from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import OBJECTS
from dw_platform.backup.repository_errors import ObjectDamagedError, ObjectMissingError
from dw_platform.backup.storage import Storage, translated

Gate = Callable[[int], AbstractContextManager[Any]]
"""Admits one read or write of so many bytes."""

# Large enough that Python's share of a copy vanishes, small enough that what was hashed is written from the cache.
PIECE_BYTES = 1024 * 1024


def no_gate(_size: int) -> AbstractContextManager[Any]:
    """Admit everything at once."""
    return nullcontext()


def content_of(
    storage: Storage, name: str, size: int, keys: RepositoryKeys | None, *, io: Gate = no_gate
) -> Iterator[bytes]:
    """Give an object's content, decoded but not yet compared with any hash; `size` is the one it was stored with.

    Compressed objects may be there in another size, if another release of zstd stored them anew.
    """
    suffix = suffix_of(name)
    size_counts = not suffix.startswith(COMPRESSED)
    try:
        yield from decoded(raw(storage, name, size if size_counts else None, io=io), suffix, keys)
    except UndecodableError as error:
        raise ObjectDamagedError(name, str(error)) from error


def raw(
    storage: Storage, name: str, size: int | None, *, start: int = 0, length: int | None = None, io: Gate = no_gate
) -> Iterator[bytes]:
    """Give an object's bytes as they are stored, all or a range; raise if it is not there, or not in `size`."""
    place, path = storage.place, f"{OBJECTS}/{name}"
    try:
        with translated(place):
            stream: Any = (
                (place.local / path).open("rb", buffering=0)
                if place.is_local
                else place.system.open_input_file(place.path(path))
            )
        with stream:
            found = stream.seek(0, 2) if place.is_local else stream.size()
            if size is not None and found != size:
                raise ObjectDamagedError(name, f"it has {found} bytes, {size} were stored")
            stream.seek(start)
            left = found - start if length is None else length
            while left > 0:
                piece = _piece(storage, stream, min(left, PIECE_BYTES), name, io)
                if not piece:
                    raise ObjectDamagedError(name, f"it ends {left} bytes early")
                left -= len(piece)
                yield piece
    except FileNotFoundError as error:
        storage.require_there()
        raise ObjectMissingError(name, place.shown) from error


def _piece(storage: Storage, stream: Any, size: int, name: str, io: Gate) -> bytes:
    with translated(storage.place):
        try:
            with io(size):
                return bytes(stream.read(size))
        except OSError as error:
            # A sector that cannot be read will not be readable tomorrow; a server that does not answer may be back.
            if storage.place.is_local and error.errno == errno.EIO:
                raise ObjectDamagedError(name, "the disk cannot read it") from error
            raise
