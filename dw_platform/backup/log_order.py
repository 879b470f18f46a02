"""In which order the files of a log appear where there is no rename, so that no reader ever sees a wrong table.

A reader needs ground to stand on: commit 0, or a complete checkpoint. So everything else that the restored versions
need comes first, and nobody can read the table; the last file of the oldest ground makes all of it readable at once,
at the newest version, because no later commit is missing. What follows only makes reading faster: newer checkpoints
and checksums. Commits go newest first, so that a listing that is cut into pages cannot miss a newer one either.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dw_platform.backup.delta_files import FoundFile
from dw_platform.backup.delta_listing import LOG, sort_log


@dataclass(frozen=True, slots=True)
class LogOrder:
    """The files of a log by their path below it, each part in order."""

    hidden: tuple[str, ...]
    ground: str
    """Its appearance is the moment at which the table is there."""

    rest: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.hidden, self.ground, *self.rest)


def order_log(names: Iterable[str]) -> LogOrder:
    """Return the order for a log that can be read when all of it is there."""
    everything = list(names)
    listing = sort_log(FoundFile(f"{LOG}/{name}", 1, 0) for name in everything)
    commits = [_name(listing.commits[version]) for version in sorted(listing.commits, reverse=True)]
    checkpoints = [
        [_name(file) for file in checkpoint.files]
        for version in sorted(listing.checkpoints)
        for checkpoint in listing.checkpoints[version]
    ]
    # One of the two is there, or nobody could have read the log to capture it.
    ground = [commits.pop()] if 0 in listing.commits else checkpoints.pop(0)
    hidden = [*(_name(file) for file in listing.sidecars.values()), *commits, *ground[:-1]]
    known = {*hidden, *ground}
    later = [name for files in checkpoints for name in files]
    rest = [*later, *sorted(name for name in everything if name not in known and name not in later)]
    return LogOrder(tuple(hidden), ground[-1], tuple(rest))


def _name(file: FoundFile) -> str:
    return file.path.removeprefix(f"{LOG}/")
