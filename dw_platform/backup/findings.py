"""What a verification looks at and what it finds: choosing objects, reading one of them, and the words for a result."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from dw_platform.backup.health import BrokenBackup
from dw_platform.backup.objects import ObjectStore
from dw_platform.backup.reading import Gate, no_gate
from dw_platform.backup.repository_errors import ObjectDamagedError, ObjectMissingError, RepositoryUnavailableError
from dw_platform.backup.storage import Listed
from dw_platform.foundation import InvalidValueError

# The clocks of machines and of file servers differ; what is this much older than the last verification is read again.
_CLOCKS_DIFFER = timedelta(hours=1)
_DRAWS = 2**64


class FindingKind(StrEnum):
    """What is wrong with a file of the repository."""

    MISSING = "missing"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    """It could not be read this time, which says nothing about its content."""

    MENDED = "mended"
    """It was damaged or missing, and was written again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One file of the repository that is not as it was written, and what does not restore because of it."""

    kind: FindingKind
    file: str
    reason: str
    breaks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files of the table that are affected, by backup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyScope:
    """Which objects are read; that all are present is always looked at."""

    only_new: bool = False
    """Only what was stored since the last verification that left nothing out."""

    share: float = 1.0
    """Share of the objects, chosen by the seed: the same seed always chooses the same ones."""

    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidValueError("share", self.share, "above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a verification found."""

    objects_present: int
    objects_read: int
    bytes_read: int
    findings: tuple[Finding, ...]
    broken: Mapping[str, BrokenBackup]
    healed: tuple[str, ...]
    """Backups that were broken at the last verification and are whole again."""

    @property
    def healthy(self) -> bool:
        """Return whether every backup restores and nothing had to be mended."""
        return not self.findings and not self.broken


@dataclass(frozen=True, slots=True)
class ObjectCheck:
    """Reads one object; picklable, for threads and tasks."""

    objects: ObjectStore
    io: Gate = no_gate

    def __call__(self, item: tuple[str, int]) -> Finding | None:
        """Return what is wrong with the object of that name and size, None if nothing is."""
        name, size = item
        try:
            self.objects.check(name, size, io=self.io)
        except ObjectMissingError as error:
            return Finding(FindingKind.MISSING, name, str(error))
        except ObjectDamagedError as error:
            return Finding(FindingKind.DAMAGED, name, error.reason)
        except RepositoryUnavailableError as error:
            return Finding(FindingKind.UNREADABLE, name, error.reason)
        return None


class Each(Protocol):
    """`map`, or something like it that works on several at once."""

    def __call__(
        self, check: Callable[[tuple[str, int]], Finding | None], items: Iterable[tuple[str, int]], /
    ) -> Iterable[Finding | None]:
        """Return what `check` makes of each item."""


def select_objects(listing: Mapping[str, Listed], scope: VerifyScope, since: datetime | None) -> list[str]:
    """Return the objects to read; `since` is when the last complete verification began."""
    after = since - _CLOCKS_DIFFER if scope.only_new and since is not None else None
    return [
        name
        for name, listed in sorted(listing.items())
        if (after is None or listed.modified >= after) and _drawn(name, scope)
    ]


def _drawn(name: str, scope: VerifyScope) -> bool:
    draw = int.from_bytes(hashlib.sha256(f"{scope.seed}/{name}".encode()).digest()[:8], "big")
    return draw < scope.share * _DRAWS
