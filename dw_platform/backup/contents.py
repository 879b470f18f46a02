"""What a table consists of at one version: the files of its folder, and what its log says about them.

Paths are those of the file system below the table's folder, with `/` between names and nothing escaped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FileKind(StrEnum):
    """What a file is to its table."""

    DATA = "data"
    DELETION_VECTOR = "deletion_vector"
    CHANGE = "change"
    """Rows of the change data feed."""

    VALUE = "value"
    """A value too large for its row, which has the file's name; the log does not know of it."""

    LOG = "log"
    """A commit, checkpoint, sidecar or checksum below `_delta_log`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file as it lies at its source; Delta never writes one again under its name, but for checksums of its log."""

    path: str
    kind: FileKind
    size: int
    mtime_ns: int
    """When it was written; without in-commit timestamps, that of a commit file is the time of its version."""

    add: Mapping[str, Any] | None = None
    """For data: its `add` action as the log has it, with deletion vector, tags, row ids and statistics."""

    @property
    def identity(self) -> tuple[str, int, int]:
        """What does not change as long as the content does not: Delta never writes a data file again."""
        return self.path, self.size, self.mtime_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A version of a table, as its log describes it; values are Delta's own actions."""

    version: int
    committed_at_ms: int
    """In-commit timestamp, or the time of the commit file."""

    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Source positions: the version of each `txn` action by application id."""

    domains: Mapping[str, Any] = field(default_factory=dict)
    """`domainMetadata` actions by domain that are not removed."""

    rows: int | None = None
    """By the statistics of its files, less what deletion vectors mask; None if a file has none."""

    files: int = 0
    bytes: int = 0
    """Of its live data files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCapture:
    """Everything that has to be copied for the table to be there again at this version."""

    state: TableState
    files: tuple[SourceFile, ...]
    """Log files included; sorted by path, none twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a table as it lies in a repository."""

    source: SourceFile
    sha256: str
    """Of the file's own bytes, in hex."""

    object_name: str
    """The object that holds it, relative to the repository's folder of objects."""

    object_size: int
    """Of the whole object as it is stored."""

    offset: int | None = None
    """Where it begins in an object that holds several files, after decoding; None if the object is this file alone."""
