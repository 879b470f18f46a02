"""How a topic's log is kept: when it is fsynced, how it is cut into files, what goes and when.

Policies are frozen values; a dangerous one fails when it is built.
"""

import enum
from dataclasses import dataclass, field
from datetime import timedelta

from dw_platform.foundation import InvalidValueError

_MIB = 1024 * 1024
# The file header and one small frame must fit, and a roll costs four fsyncs, so much less makes no sense.
_SMALLEST_SEGMENT = 1024
# A frame's positions are 32-bit numbers.
LARGEST_BATCH_BYTES = 1024 * _MIB


class FsyncMode(enum.StrEnum):
    """When an acknowledgement is given."""

    ALWAYS = "always"
    MESSAGES = "messages"
    INTERVAL = "interval"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class FsyncPolicy:
    """When the bytes of a partition are forced to disk; build one with the four class methods."""

    mode: FsyncMode = FsyncMode.ALWAYS
    messages: int = 0
    interval: timedelta = timedelta(0)

    @classmethod
    def always(cls) -> "FsyncPolicy":
        """Fsync before every acknowledgement; publishers that wait at the same time share one."""
        return cls()

    @classmethod
    def every_messages(cls, messages: int) -> "FsyncPolicy":
        """Fsync with every `messages`-th message: a crash of the machine loses fewer than that many acknowledged ones.

        A crash of the process alone loses none.
        """
        if messages < 1:
            raise InvalidValueError("messages", messages, "at least 1")
        return cls(FsyncMode.MESSAGES, messages=messages)

    @classmethod
    def every_interval(cls, interval: timedelta) -> "FsyncPolicy":
        """Fsync at most once every `interval`; publishers wait for it together, so nothing acknowledged is lost."""
        if not timedelta(0) < interval <= timedelta(minutes=1):
            raise InvalidValueError(
                "interval", interval, "above 0 and at most a minute, because publishers wait for it"
            )
        return cls(FsyncMode.INTERVAL, interval=interval)

    @classmethod
    def never(cls) -> "FsyncPolicy":
        """Leave it to the operating system: acknowledged records survive the process, not the machine.

        A file is still fsynced when the next one begins, because recovery cuts only the last file.
        """
        return cls(FsyncMode.NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """When a closed segment may go: as soon as one rule claims it and no veto holds it."""

    max_age: timedelta | None = timedelta(hours=24)
    """Time since its newest record was appended; None: age never claims it."""

    max_bytes: int | None = 1024 * _MIB
    """Size of the whole partition, above which the oldest goes; None: size never claims it."""

    when_read: bool = False
    """Whether a segment goes once every subscriber has read it; without subscribers nothing goes."""

    keep_unread: bool = False
    """Veto: keep what some subscriber has not read, however old or large."""

    def __post_init__(self) -> None:
        if self.max_age is not None and self.max_age <= timedelta(0):
            raise InvalidValueError("max_age", self.max_age, "above 0, or None to keep whatever its age")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise InvalidValueError("max_bytes", self.max_bytes, "at least 1, or None to keep whatever its size")

    @classmethod
    def until_read(cls) -> "Retention":
        """Keep a record until every subscriber has read it, and not longer."""
        return cls(max_age=None, max_bytes=None, when_read=True, keep_unread=True)

    @classmethod
    def forever(cls) -> "Retention":
        """Keep everything."""
        return cls(max_age=None, max_bytes=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPolicy:
    """How one topic's partitions are kept."""

    fsync: FsyncPolicy = field(default_factory=FsyncPolicy.always)

    segment_bytes: int = 64 * _MIB
    """Size at which a new file begins; retention and compaction work on whole files."""

    segment_age: timedelta = timedelta(hours=1)
    """Age at which a new file begins, so that a quiet topic's records can expire, too."""

    retention: Retention = field(default_factory=Retention)

    max_record_bytes: int = 8 * _MIB
    """Key, value and headers of one record together."""

    compacted: bool = False
    """Whether closed files keep only the newest value of each key; records without a key all stay."""

    def __post_init__(self) -> None:
        if self.segment_bytes < _SMALLEST_SEGMENT:
            raise InvalidValueError("segment_bytes", self.segment_bytes, f"at least {_SMALLEST_SEGMENT}")
        if self.segment_age <= timedelta(0):
            raise InvalidValueError("segment_age", self.segment_age, "above 0")
        if not 1 <= self.max_record_bytes <= LARGEST_BATCH_BYTES // 2:
            raise InvalidValueError("max_record_bytes", self.max_record_bytes, "from 1 byte to 512 MiB")
