"""What can go wrong while a table is put back, and what to do about each."""

from collections.abc import Sequence

from dw_platform.foundation import PermanentError, UserError


class RestoredBytesDifferError(PermanentError):
    """What was read for a file is not what the backup had; nothing of it stays at the target."""

    def __init__(self, path: str, *, expected: str, found: str) -> None:
        self.path, self.expected, self.found = path, expected, found
        super().__init__(
            f"{path}: its bytes were to have {expected}, but have {found}. The file was not restored. Verify the "
            "backup, and restore another one if it is damaged."
        )


class TargetRefusedError(UserError):
    """The table cannot be restored to that place; nothing there was changed."""


class TargetNotEmptyError(TargetRefusedError):
    """Something is there already."""

    def __init__(self, target: str, found: str, *, files: int) -> None:
        self.target, self.found, self.files = target, found, files
        super().__init__(
            f"{target} is not empty: it has {files} files, {found} among them. Name an empty folder, or let "
            "the table there be replaced (--overwrite)."
        )


class TargetNestedError(TargetRefusedError):
    """One table would lie inside another, whose VACUUM would delete its files."""

    def __init__(self, target: str, other: str) -> None:
        self.target, self.other = target, other
        super().__init__(
            f"{target} cannot hold a table, because {other} is one: VACUUM of the outer one would delete the files of "
            "the inner one. Name a folder beside it."
        )


class TargetClaimedError(TargetRefusedError):
    """Another restore has begun there and was neither finished nor taken back."""

    def __init__(self, target: str, holder: str) -> None:
        self.target, self.holder = target, holder
        super().__init__(
            f"{target} is being restored by {holder}. If that has stopped, resume it, finish it or take it back first."
        )


class ReplaceNeedsRenameError(TargetRefusedError):
    """A log in a bucket cannot be replaced at once."""

    def __init__(self, target: str) -> None:
        self.target = target
        super().__init__(
            f"{target} holds a table, and a bucket has no rename: while its log is replaced, readers would see a "
            "mixture of both. Restore to an empty prefix and let readers use that, or delete this table first."
        )


class TargetTakenError(PermanentError):
    """Somebody made a table at the target while it was being restored."""

    def __init__(self, target: str, found: str) -> None:
        self.target, self.found = target, found
        super().__init__(
            f"{target} got a log of its own while it was being restored ({found}). It was left as it is: move it away "
            "to finish the restore, or take the restore back."
        )


class LogIncompleteError(PermanentError):
    """Files of the log are not ready, so nothing was made visible."""

    def __init__(self, target: str, missing: Sequence[str]) -> None:
        self.target, self.missing = target, tuple(missing)
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        super().__init__(
            f"{target}: {len(missing)} files of the log are not restored yet: {shown}. Nothing is visible. Restore "
            "all files, then publish."
        )


class RestorePhaseError(PermanentError):
    """The restore is past, or not yet at, the point where that is possible."""

    def __init__(self, target: str, job: str, phase: str, advice: str) -> None:
        self.target, self.job, self.phase = target, job, phase
        super().__init__(f"{target}: the restore {job} is {phase}. {advice}")


class RestoredTableUsedError(PermanentError):
    """Somebody has written to the restored table, so that taking it back would lose that."""

    def __init__(self, target: str, added: Sequence[str]) -> None:
        self.target, self.added = target, tuple(added)
        super().__init__(
            f"{target} has been written to since it was restored ({', '.join(added[:3])}). It was left as it is: "
            "finish the restore, or delete the table by hand."
        )


class ClaimUnreadableError(PermanentError):
    """The note about a restore under way is not what this platform writes."""

    def __init__(self, file: str, cause: str) -> None:
        self.file, self.cause = file, cause
        super().__init__(
            f"{file} does not describe a restore: {cause}. If a newer version of the platform wrote it, finish the "
            "restore with that; otherwise look at the folder's logs and remove the file."
        )
