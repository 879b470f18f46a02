"""Who goes first when a device has more to do than it can do at once."""

from enum import StrEnum


class IoPriority(StrEnum):
    """The three priorities, highest first; `DispatchQueue` says what each of them is guaranteed."""

    HIGH = "high"
    """Somebody waits for it: a restore, a read for a page."""

    NORMAL = "normal"
    """Ordinary work with a time to keep."""

    LOW = "low"
    """Work that may take as long as it takes: backups, verification, clean-up."""
