"""What can go wrong with a repository of backups, and whether waiting helps."""

from collections.abc import Sequence

from dw_platform.foundation import PermanentError, TransientError, UserError


class NotARepositoryError(UserError):
    """A folder that holds something else was given for a repository; nothing in it was touched."""

    def __init__(self, place: str, found: str) -> None:
        self.place, self.found = place, found
        super().__init__(
            f"{place} is not a repository of backups: {found}. Name the repository's own folder, or an empty one to "
            "make a new repository there."
        )


class NoRepositoryError(NotARepositoryError):
    """There is nothing yet where the repository is to be."""

    def __init__(self, place: str) -> None:
        super().__init__(place, "it is empty or not there")


class RepositoryTooNewError(UserError):
    """The repository was written by a later version of the platform."""

    def __init__(self, place: str, version: int, known: int) -> None:
        self.place, self.version, self.known = place, version, known
        super().__init__(
            f"The repository {place} has format {version}, this platform knows formats up to {known}. Update the "
            "platform; nothing was read or changed."
        )


class OtherPlatformError(UserError):
    """The repository belongs to a platform of another name."""

    def __init__(self, place: str, owner: str, platform: str) -> None:
        self.place, self.owner, self.platform = place, owner, platform
        super().__init__(
            f"The repository {place} belongs to the platform {owner!r}, this one is {platform!r}. Use a folder of its "
            "own for each platform: both would delete what the other needs."
        )


class KeyMissingError(UserError):
    """The repository is encrypted and no key was given."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(f"The repository {place} is encrypted. Give the key it was made with; without it nobody can.")


class KeyNotNeededError(UserError):
    """A key was given for a repository that is not encrypted."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(
            f"The repository {place} is not encrypted, but a key was given, so backups would be less protected than "
            "expected. Leave the key out, or make a new repository with it: one that exists cannot be encrypted later."
        )


class WrongKeyError(UserError):
    """The key is not the one that the repository was made with."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(f"The key does not fit the repository {place}. Give the one that it was made with.")


class RepositoryForbiddenError(UserError):
    """The file system or the bucket refuses access."""

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"{place} refuses access: {reason}. Grant this user the right to read and write there.")


class RepositoryFullError(TransientError):
    """There is no room for what was being written; it was removed again."""

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(
            f"{place} is full: {reason}. What was being written was removed again and earlier backups are untouched. "
            "Free space, or let retention remove old backups; the next run goes on from what is stored already."
        )


class RepositoryUnavailableError(TransientError):
    """The disk or the server did not do what it was asked."""

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(
            f"{place} could not be read or written: {reason}. Nothing half-written is visible; repeat the call when "
            "the disk or the server is healthy."
        )


class RepositoryBusyError(TransientError):
    """Others use the repository in a way that excludes this one."""

    def __init__(self, place: str, wanted: str, holders: Sequence[str]) -> None:
        self.place, self.wanted, self.holders = place, wanted, tuple(holders)
        super().__init__(
            f"No {wanted} use of the repository {place} yet; in the way: {', '.join(holders)}. Backups and "
            "restores run side by side, removal runs alone. Try again when they are done."
        )


class RepositoryDamagedError(PermanentError):
    """A document without which the repository cannot be used is not what was written."""

    def __init__(self, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(
            f"{file} is damaged: {reason}. Nothing was changed. Bring it back from a copy of the repository, or from "
            "its twin below copies/ if there is one."
        )


class ManifestDamagedError(PermanentError):
    """Neither copy of a backup's manifest is what was written, so the backup cannot be used."""

    def __init__(self, table: str, backup_id: str, reason: str) -> None:
        self.table, self.backup_id, self.reason = table, backup_id, reason
        super().__init__(
            f"The manifest of backup {backup_id} of {table} is damaged: {reason}. Restore another backup. Nothing is "
            "swept as long as it is there, because nobody knows what it needs; set it aside to give it up."
        )


class BackupNotFoundError(UserError):
    """There is no backup of that id."""

    def __init__(self, backup_id: str, table: str | None = None) -> None:
        self.backup_id, self.table = backup_id, table
        of = f" of {table}" if table else ""
        super().__init__(f"There is no backup {backup_id}{of}. It may have expired; list the backups to see which are.")


class ObjectMissingError(PermanentError):
    """An object that a backup needs is not in the repository."""

    def __init__(self, name: str, place: str) -> None:
        self.name, self.place = name, place
        super().__init__(
            f"The object {name} is not in the repository {place}. Restore another backup; the next backup stores it "
            "again if its source still has it."
        )


class ObjectDamagedError(PermanentError):
    """The bytes of an object are not those that were stored."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(
            f"The object {name} is damaged: {reason}. What was read of it must not be used. Verify the repository: it "
            "sets the object aside, and the next backup stores it again if its source still has it."
        )


class SourceFileGoneError(TransientError):
    """A file of the table vanished before it was copied."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path} was removed before it was copied. Capture the table again; if that happens often, the table's "
            "retention is shorter than its backup takes."
        )


class SourceFileChangedError(TransientError):
    """A file of the table is not as long as it was when the table was captured."""

    def __init__(self, path: str, expected: int, found: int) -> None:
        self.path, self.expected, self.found = path, expected, found
        super().__init__(
            f"{path} has {found} bytes, {expected} when the table was captured. Capture the table again; files that "
            "change for good are not those of a Delta table."
        )


class SourceUnreadableError(TransientError):
    """The source would not give a file."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(
            f"{path} cannot be read: {reason}. Nothing of it was stored; look after the source and repeat."
        )


class SweptMeanwhileError(TransientError):
    """Objects that a backup needs were removed while it was made, so it does not exist."""

    def __init__(self, backup_id: str, reason: str) -> None:
        self.backup_id, self.reason = backup_id, reason
        super().__init__(
            f"Backup {backup_id} was not made: {reason}. Run it again; what is still there is not copied twice."
        )


class TakenOverError(TransientError):
    """Another process removes objects now, so this one stopped."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(
            f"Another process has begun to sweep {place}, so this one stopped. What it had removed was not needed; the "
            "other one finishes the work."
        )
