"""The files below a place: one listing instead of a question for each file, and errors that say what they mean."""

import contextlib
import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow.fs as pafs

from dw_platform.backup.delta_errors import TableForbiddenError, TableStorageError
from dw_platform.backup.place import Place

_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
# pyarrow gives S3's answers as text only.
_FORBIDDEN_TEXT = ("ACCESS_DENIED", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "HTTP status 403")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file in a listing, by its path below the place that was listed."""

    path: str
    size: int
    mtime_ns: int


def list_files(place: Place, folder: str = "") -> Mapping[str, FoundFile]:
    """Return every file of the place, or below a folder of it; what comes or goes meanwhile may be missing.

    On S3 this is one request for a thousand files; on a disk one stat a file, made by pyarrow outside of Python.
    """
    # pyarrow repeats the folder as it was asked for, so a slash at its end would end up in the paths.
    root = place.root.rstrip("/")
    selector = pafs.FileSelector(f"{root}/{folder}" if folder else root, recursive=True, allow_not_found=True)
    with storage_errors(place):
        found = place.system.get_file_info(selector)
    cut = len(root) + 1
    return {info.path[cut:]: FoundFile(info.path[cut:], info.size, info.mtime_ns) for info in found if info.is_file}


def read_file(place: Place, path: str) -> bytes:
    """Return the file's bytes; raise FileNotFoundError if there is none."""
    with storage_errors(place), place.system.open_input_stream(place.path(path), compression=None) as stream:
        return bytes(stream.read())


@contextlib.contextmanager
def storage_errors(place: Place) -> Iterator[None]:
    """Raise the errors of files as those of a table's storage, except FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        cause = error.strerror or str(error)
        if error.errno in _FORBIDDEN or any(text in cause for text in _FORBIDDEN_TEXT):
            raise TableForbiddenError(place.shown, cause) from error
        raise TableStorageError(place.shown, cause) from error
