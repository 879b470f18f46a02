"""A restore's note at its target: whose it is and how far it has come, so that it survives every crash.

    writing     files are being written; of the log nothing is where readers look
    staged      the log is complete, durable and listed here; from here on the restore can always be finished
    published   readers see the restored table; it can still be taken back
    settled     what it replaced is being removed; it cannot be taken back any more
    withdrawn   it is being taken back; when the logs are where they were before, it is `writing` again

The note is written first and removed last. Making it is exclusive on a disk; a bucket has no such operation, there
the caller's own lease keeps a second restore away.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dw_platform.backup.delta_files import read_file, storage_errors
from dw_platform.backup.delta_listing import LOG
from dw_platform.backup.place import Place
from dw_platform.backup.restore_aside import aside, remove_aside
from dw_platform.backup.restore_errors import ClaimUnreadableError, TargetClaimedError
from dw_platform.foundation import InvalidValueError, fsync_directory, replace_file

CLAIM = "_dw_restore.json"
_FORMAT = 1
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Phase(StrEnum):
    """How far a restore has come."""

    WRITING = "writing"
    STAGED = "staged"
    PUBLISHED = "published"
    SETTLED = "settled"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The note."""

    job: str
    phase: Phase = Phase.WRITING
    replaces: bool = False
    """Whether there was a log before."""

    log: Mapping[str, int] = field(default_factory=dict)
    """Files of the log with their sizes, by their path below it; from `staged` on."""

    def __post_init__(self) -> None:
        if not _JOB.fullmatch(self.job):
            raise InvalidValueError("job", self.job, "up to 100 letters, digits, '.', '_' and '-', as part of a name")

    @property
    def staging(self) -> str:
        """The folder in which the log waits."""
        return staging_folder(self.job)

    @property
    def before(self) -> str:
        """The folder that keeps the log that was there before."""
        return f"{LOG}.dw-before-{self.job}"

    def to_json(self) -> bytes:
        told = {"format": _FORMAT, "job": self.job, "phase": self.phase, "replaces": self.replaces, "log": self.log}
        return json.dumps(told).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Claim":
        told: dict[str, Any] = json.loads(text)
        if told["format"] != _FORMAT:
            raise ValueError(f"format {told['format']}")
        return cls(job=told["job"], phase=Phase(told["phase"]), replaces=told["replaces"], log=told["log"])


def staging_folder(job: str) -> str:
    """Return the folder in which the log of a restore waits, beside the one in which readers look."""
    return f"{LOG}.dw-{job}"


def read_claim(target: Place) -> Claim | None:
    """Return the target's note, or None if no restore is under way."""
    try:
        return Claim.from_json(read_file(target, CLAIM))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ClaimUnreadableError(f"{target.shown}/{CLAIM}", str(error)) from error


def make_claim(target: Place, claim: Claim) -> None:
    """Leave the first note; raise TargetClaimedError if another is faster."""
    if not target.is_local:
        write_claim(target, claim)
        return
    with storage_errors(target):
        begun = aside(target.local)
        replace_file(begun, claim.to_json())
        try:
            os.link(begun, target.local / CLAIM)
        except FileExistsError as error:
            holder = read_claim(target)
            raise TargetClaimedError(target.shown, holder.job if holder else "another process") from error
        finally:
            begun.unlink(missing_ok=True)
        fsync_directory(target.local)


def write_claim(target: Place, claim: Claim) -> None:
    """Replace the note."""
    with storage_errors(target):
        if target.is_local:
            replace_file(target.local / CLAIM, claim.to_json())
            return
        # One small object appears as a whole.
        with target.system.open_output_stream(target.path(CLAIM), compression=None) as stream:
            stream.write(claim.to_json())


def drop_claim(target: Place) -> None:
    """Remove the note, after what else a killed process of the restore may have left."""
    with storage_errors(target):
        if target.is_local:
            remove_aside(target.local)
            (target.local / CLAIM).unlink(missing_ok=True)
            fsync_directory(target.local)
            return
        with contextlib.suppress(FileNotFoundError):
            target.system.delete_file(target.path(CLAIM))
