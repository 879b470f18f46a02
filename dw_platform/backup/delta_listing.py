"""The log's folder in one listing: which commits and complete checkpoints there are, and how a version can be read.

A version is read from the newest complete checkpoint at or before it and the commits after that, or from all commits.
`ways_to` gives every way there is, best first, so that a checkpoint that turns out to be unreadable costs time only.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dw_platform.backup.delta_files import FoundFile, list_files
from dw_platform.backup.place import Place

LOG = "_delta_log"
SIDECARS = f"{LOG}/_sidecars"

_VERSION = "([0-9]{20})"
_COMMIT = re.compile(rf"{LOG}/{_VERSION}\.json")
_CHECKSUM = re.compile(rf"{LOG}/{_VERSION}\.crc")
_WHOLE = re.compile(rf"{LOG}/{_VERSION}\.checkpoint(?:\.[0-9a-fA-F-]{{36}}\.(?:json|parquet)|\.parquet)")
_PART = re.compile(rf"{LOG}/{_VERSION}\.checkpoint\.([0-9]{{10}})\.([0-9]{{10}})\.parquet")
# `_commits` is what the preview of catalog-managed tables called it.
_STAGED = re.compile(rf"{LOG}/(?:_staged_commits|_commits)/{_VERSION}\.[^/]+\.json")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: one file, or all parts of one."""

    version: int
    files: tuple[FoundFile, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read a version: a checkpoint, if any, and the commits after it."""

    checkpoint: Checkpoint | None
    commits: range


@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing:
    """What the log's folder held when it was listed."""

    commits: Mapping[int, FoundFile] = field(default_factory=dict)
    checksums: Mapping[int, FoundFile] = field(default_factory=dict)
    checkpoints: Mapping[int, tuple[Checkpoint, ...]] = field(default_factory=dict)
    """Complete ones of each version, those first that are cheapest to trust: single files before parts."""

    sidecars: Mapping[str, FoundFile] = field(default_factory=dict)
    """By name."""

    staged: int | None = None
    """The newest version that waits for a catalog."""

    @property
    def newest(self) -> int | None:
        """The newest version that anything speaks of; its commit may still turn out to be missing."""
        return max(self.commits.keys() | self.checkpoints.keys(), default=None)

    @property
    def earliest(self) -> int | None:
        """The first version that can be read, and from which on all can, if there is such a one."""
        starts = {0} | {after for version in self.checkpoints for after in (version, version + 1)}
        readable = sorted(start for start in starts if start in self.commits and self._has_ground(start))
        connected = self.unbroken_to(max(self.commits, default=0)).start
        return next((start for start in readable if start >= connected), next(iter(readable), None))

    def _has_ground(self, version: int) -> bool:
        """Return whether the version can be read without the commit before it."""
        return version == 0 or version in self.checkpoints or version - 1 in self.checkpoints

    def unbroken_to(self, version: int) -> range:
        """Return the commits up to `version`, as far back as none is missing."""
        start = version
        while start - 1 in self.commits:
            start -= 1
        return range(start, version + 1)


def list_log(place: Place) -> LogListing:
    """List the log's folder."""
    return sort_log(list_files(place, LOG).values())


def sort_log(files: Iterable[FoundFile]) -> LogListing:
    """Tell commits, checkpoints and the rest apart; incomplete checkpoints and unknown files are passed over."""
    commits, checksums, sidecars = dict[int, FoundFile](), dict[int, FoundFile](), dict[str, FoundFile]()
    whole: defaultdict[int, list[Checkpoint]] = defaultdict(list)
    parts: defaultdict[tuple[int, int], dict[int, FoundFile]] = defaultdict(dict)
    staged: list[int] = []
    for file in sorted(files, key=lambda each: each.path):
        if match := _COMMIT.fullmatch(file.path):
            commits[int(match[1])] = file
        elif match := _CHECKSUM.fullmatch(file.path):
            checksums[int(match[1])] = file
        elif (match := _WHOLE.fullmatch(file.path)) and file.size:
            whole[int(match[1])].append(Checkpoint(int(match[1]), (file,)))
        elif (match := _PART.fullmatch(file.path)) and file.size:
            parts[int(match[1]), int(match[3])][int(match[2])] = file
        elif match := _STAGED.fullmatch(file.path):
            staged.append(int(match[1]))
        elif file.path.startswith(f"{SIDECARS}/"):
            sidecars[file.path.removeprefix(f"{SIDECARS}/")] = file
    for (version, count), found in parts.items():
        if sorted(found) == list(range(1, count + 1)):
            whole[version].append(Checkpoint(version, tuple(found[number] for number in sorted(found))))
    return LogListing(
        commits=commits,
        checksums=checksums,
        checkpoints={version: tuple(found) for version, found in whole.items()},
        sidecars=sidecars,
        staged=max(staged, default=None),
    )


def ways_to(listing: LogListing, version: int) -> Iterator[Way]:
    """Yield the ways to read `version`, by the newest checkpoint first; none if a commit is missing on each.

    The version's own commit must be there even if a checkpoint holds all it did: only the commit has its time, and
    readers refuse a log that has none.
    """
    if version not in listing.commits:
        return
    connected = listing.unbroken_to(version).start
    for start in sorted((each for each in listing.checkpoints if connected - 1 <= each <= version), reverse=True):
        for checkpoint in listing.checkpoints[start]:
            yield Way(checkpoint, range(start + 1, version + 1))
    if connected == 0:
        yield Way(None, range(version + 1))


def missing_before(listing: LogListing, version: int) -> int:
    """Return the newest commit that is missing on every way to `version`."""
    return version if version not in listing.commits else listing.unbroken_to(version).start - 1
