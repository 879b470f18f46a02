"""When a backup is a full one, which backups stay, and how long what nobody needs is spared.

Policies are frozen values; a dangerous one fails when it is built.
"""

from dataclasses import dataclass
from datetime import timedelta

from dw_platform.foundation import InvalidValueError

_NOTHING = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPolicy:
    """When the next backup reads everything again instead of trusting its parent."""

    full_every: timedelta = timedelta(days=7)
    """Age of the chain at which a new one begins: how long a wrong hash could be handed on."""

    max_length: int = 30
    """Backups in a chain, the full one included."""

    max_share: float = 0.5
    """Share of the bytes that an increment would copy from which reading the rest as well costs little more."""

    def __post_init__(self) -> None:
        if self.full_every <= _NOTHING:
            raise InvalidValueError("full_every", self.full_every, "above 0")
        if self.max_length < 1:
            raise InvalidValueError("max_length", self.max_length, "at least 1, which makes every backup a full one")
        if not 0 < self.max_share <= 1:
            raise InvalidValueError(
                "max_share", self.max_share, "above 0 and at most 1, which never asks for a full one"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Which backups of a table go: those that any of the limits claims, except the newest one that restores."""

    max_count: int | None = 30
    """Backups that restore; None: count claims none."""

    max_age: timedelta | None = timedelta(days=90)
    """Time since it was made; None: age claims none."""

    max_bytes: int | None = 100 * 1000**3
    """Bytes of the objects that the backups kept need, each object once; None: size claims none."""

    def __post_init__(self) -> None:
        if self.max_count is not None and self.max_count < 1:
            raise InvalidValueError("max_count", self.max_count, "at least 1, or None; with 0 no backup would be kept")
        if self.max_age is not None and self.max_age <= _NOTHING:
            raise InvalidValueError("max_age", self.max_age, "above 0, or None; with 0 no backup would be kept")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise InvalidValueError("max_bytes", self.max_bytes, "at least 1, or None; with 0 no backup would be kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPolicy:
    """How long files stay that no backup needs."""

    grace: timedelta = timedelta(hours=24)
    """Objects younger than this are spared: the backup that they belong to may not be published yet."""

    notes_for: timedelta = timedelta(days=7)
    """How long after its last note a job that did not finish may still be resumed."""

    quarantine_for: timedelta = timedelta(days=30)
    """How long damaged files are kept to be looked at."""

    def __post_init__(self) -> None:
        # An hour: clocks of machines differ, and so do those of file servers.
        if self.grace < timedelta(hours=1):
            raise InvalidValueError("grace", self.grace, "at least 1 hour, and longer than the longest backup runs")
        if self.notes_for < self.grace:
            raise InvalidValueError("notes_for", self.notes_for, f"at least the grace of {self.grace}")
        if self.quarantine_for < _NOTHING:
            raise InvalidValueError("quarantine_for", self.quarantine_for, "not negative")
