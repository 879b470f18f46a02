"""Writing a table's files back, each by itself: any thread or task may write any of them.

A file has its name only when it is whole: on a disk it is written aside, compared with the backup's size and SHA-256,
synced and renamed. In a bucket an upload appears when it is complete; if its bytes turn out to be wrong it is removed,
and until the log is published nobody reads it. Folders are synced by whoever publishes the log, once for all files.

Files of the log get the time that they had, because without in-commit timestamps it is the time of their version. A
bucket sets its own times.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from dw_platform.backup.contents import FileKind, StoredFile
from dw_platform.backup.delta_errors import TableStorageError
from dw_platform.backup.delta_files import storage_errors
from dw_platform.backup.place import Place
from dw_platform.backup.restore_aside import aside
from dw_platform.backup.restore_errors import RestoredBytesDifferError
from dw_platform.backup.restore_plan import destination

_PIECE_BYTES = 1024 * 1024

Gate = Callable[[int], AbstractContextManager[Any]]
"""Admits one read or write of so many bytes."""


def no_gate(_size: int) -> AbstractContextManager[Any]:
    """Admit everything at once."""
    return nullcontext()


def restore_file(entry: StoredFile, chunks: Iterable[bytes], target: Place, *, job: str, gate: Gate = no_gate) -> None:
    """Write one file from its bytes; raise RestoredBytesDifferError if they are not those of the backup."""
    path = destination(entry.source, job)
    try:
        with storage_errors(target):
            if target.is_local:
                _write_local(entry, chunks, target.local / path, gate)
            else:
                _upload(entry, chunks, target, path, gate)
    except FileNotFoundError as error:
        raise TableStorageError(target.shown, str(error)) from error


def holds(entry: StoredFile, target: Place, *, job: str, gate: Gate = no_gate) -> bool:
    """Return whether the target has the file with the backup's bytes; if so, they are durable."""
    path = target.path(destination(entry.source, job))
    digest, size = hashlib.sha256(), 0
    try:
        with storage_errors(target), target.system.open_input_stream(path, compression=None) as stream:
            while piece := _read_piece(stream, gate):
                digest.update(piece)
                size += len(piece)
    except FileNotFoundError:
        return False
    same = (size, digest.hexdigest()) == (entry.source.size, entry.sha256)
    if same and target.is_local:
        with storage_errors(target):
            _settle_existing(entry, Path(path))
    return same


def _read_piece(stream: Any, gate: Gate) -> bytes:
    with gate(_PIECE_BYTES):
        return bytes(stream.read(_PIECE_BYTES))


def _settle_existing(entry: StoredFile, path: Path) -> None:
    """Sync a file that somebody else may have written, and give one of the log its time."""
    with path.open("rb") as file:
        _set_time(entry, file.fileno())
        os.fsync(file.fileno())


def _write_local(entry: StoredFile, chunks: Iterable[bytes], path: Path, gate: Gate) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = aside(path.parent)
    try:
        with begun.open("xb", buffering=0) as file:
            _copy(entry, chunks, file, gate)
            _set_time(entry, file.fileno())
            os.fsync(file.fileno())
        begun.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            begun.unlink()
        raise


def _upload(entry: StoredFile, chunks: Iterable[bytes], target: Place, path: str, gate: Gate) -> None:
    try:
        with target.system.open_output_stream(target.path(path), compression=None) as stream:
            _copy(entry, chunks, stream, gate)
    except BaseException:
        # pyarrow completes an upload whose writer failed, so a part of the file may have its name.
        with contextlib.suppress(OSError):
            target.system.delete_file(target.path(path))
        raise


def _copy(entry: StoredFile, chunks: Iterable[bytes], sink: BinaryIO | Any, gate: Gate) -> None:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        with gate(len(chunk)):
            rest = memoryview(chunk)
            while rest:
                # An unbuffered file may take less than it is given.
                rest = rest[sink.write(rest) :]
    if size != entry.source.size:
        raise RestoredBytesDifferError(entry.source.path, expected=f"length {entry.source.size}", found=f"{size}")
    if digest.hexdigest() != entry.sha256:
        expected, found = f"SHA-256 {entry.sha256}", digest.hexdigest()
        raise RestoredBytesDifferError(entry.source.path, expected=expected, found=found)


def _set_time(entry: StoredFile, descriptor: int) -> None:
    # Data keeps its new time: VACUUM takes old files that no log names, and until the log is published none names it.
    if entry.source.kind is FileKind.LOG:
        os.utime(descriptor, ns=(entry.source.mtime_ns, entry.source.mtime_ns))
