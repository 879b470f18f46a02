"""What a job has stored so far, so that one that is started again copies nothing twice.

Each batch is a small file of its own, written when its objects are on disk; a task that dies loses its batch at most.
The notes of a job protect the objects they name from the sweep until the job clears them or is long gone.
"""

import contextlib
import logging
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dw_platform.backup.contents import StoredFile
from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import NOTES, escaped
from dw_platform.backup.sealed import DocumentDamagedError, seal, unseal
from dw_platform.backup.storage import Storage
from dw_platform.backup.stored_lines import from_lines, to_lines

log = logging.getLogger(__name__)
_KIND = "note"
_SUFFIX = ".note"


@dataclass(frozen=True, slots=True)
class Journal:
    """The notes of one job; picklable, and any number of tasks may add to it at once."""

    storage: Storage
    keys: RepositoryKeys | None
    job_id: str

    @property
    def folder(self) -> str:
        """Return where the notes are."""
        return f"{NOTES}/{escaped(self.job_id)}"

    def add(self, entries: Sequence[StoredFile]) -> None:
        """Note what was stored; when this returns, a later run finds it."""
        if entries:
            content = seal(_KIND, {"job": self.job_id, "files": len(entries)}, self.keys, to_lines(entries))
            self.storage.write(f"{self.folder}/{secrets.token_hex(8)}{_SUFFIX}", content)

    def entries(self) -> tuple[StoredFile, ...]:
        """Return everything that was noted; a damaged note is passed over, and its files are copied again."""
        return tuple(entry for _, entries in self.notes() for entry in entries)

    def notes(self, besides: Collection[str] = ()) -> Iterator[tuple[str, tuple[StoredFile, ...]]]:
        """Give each note that can be read, by its path, except those that were read before."""
        for path in filter(is_note, self.storage.walk(self.folder)):
            if path not in besides:
                try:
                    yield path, read_note(self.storage, path, self.keys)
                except DocumentDamagedError as error:
                    log.warning("note passed over", extra={"file": path, "reason": str(error)})

    def clear(self) -> None:
        """Forget the job; its backup exists, or was given up."""
        for path in self.storage.walk(self.folder):
            self.storage.remove(path, durably=False)
        if self.storage.place.is_local:
            with contextlib.suppress(OSError):
                (self.storage.place.local / self.folder).rmdir()


def is_note(path: str) -> bool:
    """Return whether a file is a note, and not what a crash left of writing one."""
    return path.endswith(_SUFFIX)


def read_note(storage: Storage, path: str, keys: RepositoryKeys | None) -> tuple[StoredFile, ...]:
    """Return what one note says, nothing if it was just cleared; raise DocumentDamagedError if it is not whole."""
    try:
        _, body = unseal(_KIND, storage.read(path), keys)
    except FileNotFoundError:
        return ()
    try:
        return tuple(from_lines(body.split(b"\n")))
    except (ValueError, KeyError, TypeError) as error:
        raise DocumentDamagedError(f"its body is not that of a note ({error})") from error
