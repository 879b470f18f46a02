"""What can keep a table from being captured, and whether waiting helps."""

from collections.abc import Sequence
from datetime import datetime

from dw_platform.foundation import PermanentError, TransientError, UserError, format_bytes


class NotADeltaTableError(UserError):
    """There is no Delta table at the place."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(
            f"{place} is not a Delta table: its folder _delta_log holds no commit. Name the table's own folder."
        )


class VersionNotKeptError(UserError):
    """The table was never at that version or time, or its log no longer knows."""

    def __init__(self, place: str, asked: str, earliest: int, newest: int, earliest_at: datetime | None = None) -> None:
        self.place, self.asked, self.earliest, self.newest = place, asked, earliest, newest
        self.earliest_at = earliest_at
        since = f" of {earliest_at.isoformat()}" if earliest_at else ""
        super().__init__(
            f"{place} cannot be read as of {asked}: its log goes from version {earliest}{since} to {newest}. Name one "
            "of these, or restore an earlier one from a backup taken then."
        )


class DamagedTableError(PermanentError):
    """What is there is not what the table's log says, so that a copy of it would not be the table."""


class DamagedLogError(DamagedTableError):
    """The log cannot be read as far as the version."""

    def __init__(self, place: str, version: int, cause: str) -> None:
        self.place, self.version, self.cause = place, version, cause
        super().__init__(
            f"{place}: the log cannot be read up to version {version}: {cause}. Nothing was backed up. Restore the "
            "table from an earlier backup, or bring the log's files back."
        )


class FilesMissingError(DamagedTableError):
    """Files that the version needs are gone."""

    def __init__(self, place: str, version: int, missing: Sequence[str]) -> None:
        self.place, self.version, self.missing = place, version, tuple(missing)
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        super().__init__(
            f"{place}: {len(missing)} files of version {version} are gone: {shown}. VACUUM removes what newer versions "
            "no longer need, so back up a newer version; if this is the newest, restore the table from a backup."
        )


class FileSizeDiffersError(DamagedTableError):
    """A file of the version is shorter or longer than its log says."""

    def __init__(self, place: str, path: str, expected: int, found: int) -> None:
        self.place, self.path, self.expected, self.found = place, path, expected, found
        super().__init__(
            f"{place}: {path} has {found} bytes, the log says {expected}. The file is damaged: restore it from an "
            "earlier backup, or remove its rows from the table, before the table is backed up again."
        )


class ChecksumMismatchError(DamagedTableError):
    """The version's checksum file counts other files than the log gives."""

    def __init__(self, place: str, version: int, *, stated: tuple[int, int], found: tuple[int, int]) -> None:
        self.place, self.version, self.stated, self.found = place, version, stated, found
        super().__init__(
            f"{place}: by its log version {version} has {found[0]} files with {format_bytes(found[1])}, by its "
            f"checksum file {stated[0]} with {format_bytes(stated[1])}. A commit may have been lost or replaced. "
            "Nothing was backed up; compare the table's history with what its writers report."
        )


class LogKeepsChangingError(TransientError):
    """Files of the log vanished each time between listing and reading."""

    def __init__(self, place: str, attempts: int) -> None:
        self.place, self.attempts = place, attempts
        super().__init__(
            f"{place}: files of the log vanished while it was read, {attempts} times in a row. Log cleanup is at work; "
            "try again."
        )


class NotRestorableError(PermanentError):
    """The table refers to something that a copy of its folder would not contain."""


class AbsolutePathError(NotRestorableError):
    """A file lies outside the table's folder."""

    def __init__(self, place: str, path: str) -> None:
        self.place, self.path = place, path
        super().__init__(
            f"{place} refers to {path}, which a copy of its folder does not contain; shallow clones do so. Back up the "
            "table that it was cloned from, or write the rows into a table of their own (CREATE TABLE ... AS SELECT). "
            "If only earlier versions refer to it, a backup without history is possible."
        )


class CatalogOwnedError(NotRestorableError):
    """A catalog, not the log's folder, knows which commits count."""

    def __init__(self, place: str, cause: str) -> None:
        self.place, self.cause = place, cause
        super().__init__(
            f"{place} is managed by a catalog ({cause}), which alone knows its newest commits. Back it up with the "
            "catalog's own means, or copy its rows into a table that its folder describes alone."
        )


class UnknownFeatureError(NotRestorableError):
    """The table can only be read by who knows a feature that this platform does not."""

    def __init__(self, place: str, unknown: Sequence[str], known: Sequence[str]) -> None:
        self.place, self.unknown, self.known = place, tuple(unknown), tuple(known)
        super().__init__(
            f"{place} needs {', '.join(unknown)} of its readers, and may keep data where this platform does not look. "
            f"Known are: {', '.join(known)}. Update the platform, or drop the feature from the table."
        )


class TableStorageError(TransientError):
    """The disk or the server did not do what it was asked."""

    def __init__(self, place: str, cause: str) -> None:
        self.place, self.cause = place, cause
        super().__init__(
            f"{place} cannot be read or written: {cause}. Check the disk, its free space or the server, and try again."
        )


class TableForbiddenError(UserError):
    """The file system or the bucket refuses access."""

    def __init__(self, place: str, cause: str) -> None:
        self.place, self.cause = place, cause
        super().__init__(f"{place} refuses access: {cause}. Grant this user the right to it.")
