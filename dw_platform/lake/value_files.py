"""Values too large for a row, kept as files beside their table; the row has the file's name.

A file is named after the SHA-256 of its content, so a value that is read twice is stored once, and a file that is
there is whole. The folder is hidden from Spark and from VACUUM.

Durability: a file and its folder are fsynced before its name is given out, on a local disk.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from dw_platform.foundation import fsync_directory
from dw_platform.lake.location import TableLocation

FOLDER = "_dw_values"

Feed = Callable[[Callable[[bytes], Any]], Any]
"""Calls what it is given with one piece of the value after the other."""


@dataclass(frozen=True, slots=True)
class ValueFiles:
    """The values of one table; picklable."""

    location: TableLocation

    def store(self, feed: Feed) -> str:
        """Store what `feed` hands over and return its name, relative to the table's root."""
        system, root = self.location.filesystem()
        digest, temporary = hashlib.sha256(), f"{root}/{FOLDER}/new-{secrets.token_hex(12)}"
        if not self.location.is_s3:
            Path(temporary).parent.mkdir(parents=True, exist_ok=True)
        try:
            with system.open_output_stream(temporary, compression=None) as sink:

                def write(piece: bytes) -> None:
                    digest.update(piece)
                    sink.write(piece)

                feed(write)
            name = f"{FOLDER}/{digest.hexdigest()[:2]}/{digest.hexdigest()}"
            self._place(system, temporary, f"{root}/{name}")
        except BaseException:
            with contextlib.suppress(OSError):
                system.delete_file(temporary)
            raise
        return name

    def _place(self, system: pafs.FileSystem, temporary: str, final: str) -> None:
        if self.location.is_s3:
            system.move(temporary, final)
            return
        with Path(temporary).open("rb") as file:
            os.fsync(file.fileno())
        Path(final).parent.mkdir(exist_ok=True)
        Path(temporary).rename(final)
        for folder in (Path(final).parent, Path(final).parent.parent):
            fsync_directory(folder)
