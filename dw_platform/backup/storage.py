"""How a repository writes, lists and removes files, in a local folder or in a bucket.

Writing is atomic and durable: a file has its old content or the new one, and what was written is on disk (local) or
acknowledged (S3) when the call returns.

A local folder looks empty when its disk is not mounted. So whoever finds nothing, or has to make a folder, looks for
the repository's description first: without it nothing is written, and nothing is taken for missing.

A missing file raises FileNotFoundError, whatever the caller makes of it. Every other failure is one of
RepositoryFullError, RepositoryForbiddenError and RepositoryUnavailableError.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.fs as pafs

from dw_platform.backup.layout import DESCRIPTION, TEMPORARY
from dw_platform.backup.place import Place
from dw_platform.backup.repository_errors import (
    RepositoryForbiddenError,
    RepositoryFullError,
    RepositoryUnavailableError,
)
from dw_platform.foundation import fsync_directory, replace_file
from dw_platform.foundation.durable import TEMPORARY_SUFFIX

# EFBIG: a quota that some systems enforce as a limit on the size of one file.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
# pyarrow gives S3's answers as text only.
_FORBIDDEN_TEXT = ("ACCESS_DENIED", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "HTTP status 403")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file in a listing."""

    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Storage:
    """The files of one place; picklable, and any thread may use it."""

    place: Place

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        """Return the file's bytes, or the first of them."""
        with translated(self.place):
            if self.place.is_local:
                with (self.place.local / path).open("rb") as file:
                    return file.read(-1 if at_most is None else at_most)
            with self.place.system.open_input_file(self.place.path(path)) as stored:
                return bytes(stored.read(at_most))

    def write(self, path: str, content: bytes) -> None:
        """Write the file, in place of the one that may be there."""
        with written(self.place):
            if self.place.is_local:
                with self._folder_of(path) as target:
                    replace_file(target, content)
            else:
                self._upload(path, content)

    def create(self, path: str, content: bytes) -> bool:
        """Write the file unless there is one; return whether this call made it.

        Local folders decide that by themselves. In a bucket the caller must hold a lease: pyarrow has no conditional
        write.
        """
        with written(self.place):
            if self.place.is_local:
                return self._link(self.place.local / path, content)
            if self.find(path) is not None:
                return False
            self._upload(path, content)
            return True

    def find(self, path: str) -> Listed | None:
        """Return size and time of the file, or None if there is none."""
        with translated(self.place):
            if not self.place.is_local:
                info = self.place.system.get_file_info(self.place.path(path))
                return _listed(info) if info.type == pafs.FileType.File else None
            try:
                return _stat((self.place.local / path).stat())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def walk(self, folder: str = "") -> dict[str, Listed]:
        """Return every file below `folder` by its path in the place; what comes or goes meanwhile may be missing."""
        with translated(self.place):
            found = self._walk_local(folder) if self.place.is_local else self._walk_bucket(folder)
        if not found:
            self.require_there()
        return found

    def require_there(self) -> None:
        """Raise unless there is a repository, so that nobody takes a disk that is not mounted for an empty one."""
        if self.find(DESCRIPTION) is None:
            raise RepositoryUnavailableError(self.place.shown, f"{DESCRIPTION} is not there; is the disk mounted")

    def names(self) -> list[str]:
        """Return what is directly in the place, without the leftovers of a write that was cut off."""
        with translated(self.place):
            if self.place.is_local:
                root = self.place.local
                found = [path.name for path in root.iterdir()] if root.is_dir() else []
            else:
                selector = pafs.FileSelector(self.place.root, allow_not_found=True)
                found = [info.base_name for info in self.place.system.get_file_info(selector)]
            return sorted(name for name in found if not name.endswith(TEMPORARY_SUFFIX))

    def remove(self, path: str, *, durably: bool = True) -> None:
        """Remove the file if it is there; one call with `durably` makes all before it in its folder last."""
        with translated(self.place), contextlib.suppress(FileNotFoundError):
            if self.place.is_local:
                (self.place.local / path).unlink()
                if durably:
                    fsync_directory((self.place.local / path).parent)
            else:
                self.place.system.delete_file(self.place.path(path))

    def move(self, path: str, to: str) -> None:
        """Move a file of the place, if it is still there."""
        with translated(self.place), contextlib.suppress(FileNotFoundError):
            if self.place.is_local:
                self.settle(self.place.local / path, to)
                fsync_directory((self.place.local / path).parent)
            else:
                self.place.system.move(self.place.path(path), self.place.path(to))

    def settle(self, staged: Path, path: str) -> None:
        """Give a synced file of this local place its name, durably."""
        with self._folder_of(path) as target:
            staged.replace(target)
            fsync_directory(target.parent)

    def temporary(self) -> Path:
        """Return a new name in the folder for files being written; the sweep removes what crashes leave there."""
        with self._folder_of(f"{TEMPORARY}/{secrets.token_hex(8)}{TEMPORARY_SUFFIX}") as path:
            return path

    @contextlib.contextmanager
    def _folder_of(self, path: str) -> Iterator[Path]:
        """Give the path of a local file whose folder is there."""
        target = self.place.local / path
        if not target.parent.is_dir():
            self._make(target.parent)
        yield target

    def make_folders(self, parent: str, names: Iterable[str]) -> None:
        """Make many folders below one of a local place with one sync, where one at a time would cost one each."""
        if not self.place.is_local:
            return
        with translated(self.place):
            folder = self.place.local / parent
            self._make(folder)
            for name in names:
                (folder / name).mkdir(exist_ok=True)
            fsync_directory(folder)

    def _make(self, folder: Path) -> None:
        self.require_there()
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for each in missing:
            fsync_directory(each.parent)

    def _walk_local(self, folder: str) -> dict[str, Listed]:
        return dict(_walk(str(self.place.local / folder), f"{folder}/" if folder else ""))

    def _walk_bucket(self, folder: str) -> dict[str, Listed]:
        root = self.place.path(folder) if folder else self.place.root
        found = self.place.system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
        cut = len(self.place.root) + 1
        return {info.path[cut:]: _listed(info) for info in found if info.type == pafs.FileType.File}

    def _upload(self, path: str, content: bytes) -> None:
        try:
            with self.place.system.open_output_stream(self.place.path(path), compression=None) as stream:
                stream.write(content)
        except BaseException:
            # pyarrow finishes an upload that failed, so that a part of it may be there under its name.
            with contextlib.suppress(OSError):
                self.place.system.delete_file(self.place.path(path))
            raise

    @staticmethod
    def _link(target: Path, content: bytes) -> bool:
        """Write aside and link: of two processes exactly one gets the name, and it never names half a file."""
        aside = target.with_name(f".{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
        replace_file(aside, content)
        try:
            os.link(aside, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS or target.exists():
                raise
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
            fsync_directory(target.parent)
        return True


@contextlib.contextmanager
def translated(place: Place) -> Iterator[None]:
    """Raise the errors of files as those of a repository, except FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(error.errno, error.strerror, error.filename) from error
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise RepositoryFullError(place.shown, reason) from error
        if error.errno in _FORBIDDEN or any(text in reason for text in _FORBIDDEN_TEXT):
            raise RepositoryForbiddenError(place.shown, reason) from error
        raise RepositoryUnavailableError(place.shown, reason) from error


@contextlib.contextmanager
def written(place: Place) -> Iterator[None]:
    """Like `translated`, for writing: there a missing folder or bucket is a failure as well."""
    with translated(place):
        try:
            yield
        except FileNotFoundError as error:
            raise RepositoryUnavailableError(place.shown, str(error)) from error


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, Listed]]:
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            # Between two steps of a listing a file may go.
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(entry.path, f"{prefix}{entry.name}/")
                else:
                    yield f"{prefix}{entry.name}", _stat(entry.stat(follow_symlinks=False))


def _stat(status: os.stat_result) -> Listed:
    return Listed(status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _listed(info: pafs.FileInfo) -> Listed:
    return Listed(info.size, info.mtime.astimezone(UTC))
