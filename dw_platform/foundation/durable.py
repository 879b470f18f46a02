"""Files that are either the old or the new version after a crash, never half of one.

Durability: `replace_file` returns once the bytes and the directory entry are on disk. A crash before that
leaves the old file; the temporary one carries the suffix `.tmp` and may be removed by anyone.
"""

import contextlib
import os
import secrets
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def fsync_directory(directory: Path) -> None:
    """Make the directory's entries (created, renamed, removed files) durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically and durably; the parent directory must exist."""
    # The name does not contain the target's, which may already be as long as the file system allows.
    temporary = path.with_name(f".{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    fsync_directory(path.parent)
