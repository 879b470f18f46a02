"""A version of a table as its log has it: the log's files, what they add up to, and every file that they name.

Paths in the log are URIs. They are decoded once, and files are told apart by their decoded path and deletion vector,
because two writers may escape one name in two ways. What lies outside of the table's folder is refused only if the
version needs it.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from dw_platform.backup.checkpoints import Action, CheckpointReader, CheckpointUnreadableError
from dw_platform.backup.deletion_vectors import vector_id
from dw_platform.backup.delta_errors import DamagedLogError, VersionNotKeptError
from dw_platform.backup.delta_files import FoundFile, read_file
from dw_platform.backup.delta_listing import Checkpoint, LogListing, Way, missing_before, ways_to
from dw_platform.backup.place import Place

log = logging.getLogger(__name__)

# A bucket answers each request in tens of milliseconds, whatever its size, so commits are asked for side by side.
_READERS = 16

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

# What an action that is not of the protocol's form makes of its reading.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)

Commit = tuple[Action, ...]
"""What one commit says."""

FileKey = tuple[str, str | None]
"""A decoded path and the id of a deletion vector."""


@dataclass(slots=True)
class Contents:
    """What the log adds up to; `apply` takes its actions in order."""

    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    live: dict[FileKey, Mapping[str, Any]] = field(default_factory=dict)
    """`add` actions."""

    def apply(self, action: Action) -> None:
        """Take in one action; kinds that change nothing here are passed over, as the protocol demands."""
        for kind, entry in action.items():
            match kind:
                case "add":
                    self.live[file_key(entry)] = entry
                case "remove":
                    self.live.pop(file_key(entry), None)
                case "protocol":
                    self.protocol = entry
                case "metaData":
                    self.metadata = entry
                case "txn":
                    self.transactions[entry["appId"]] = int(entry["version"])
                case "domainMetadata" if entry.get("removed"):
                    self.domains.pop(entry["domain"], None)
                case "domainMetadata":
                    self.domains[entry["domain"]] = entry


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedVersion:
    """A version that was read from its log."""

    version: int
    way: Way
    log: tuple[FoundFile, ...]
    """The checkpoint that it was read from, with its sidecars, and the commits after it."""

    contents: Contents
    commits: Mapping[int, Commit]
    """What the commits of `log` say."""


def file_key(entry: Mapping[str, Any]) -> FileKey:
    """Return what an `add` and the `remove` that ends it have in common."""
    return decoded_path(entry), vector_id(entry.get("deletionVector"))


def decoded_path(entry: Mapping[str, Any]) -> str:
    """Return the entry's path as the file system has it; one that leads out of the table's folder stays as it is."""
    path = str(entry["path"])
    return path if is_outside(path) else unquote(path, errors="strict")


def is_outside(path: str) -> bool:
    """Return whether a path of the log, not decoded yet, leads out of the table's folder."""
    parts = unquote(path).split("/")
    return bool(_SCHEME.match(path)) or not parts[0] or ".." in parts


def read_version(place: Place, listing: LogListing, version: int) -> LoggedVersion:
    """Read `version` by the best way that works; raise FileNotFoundError if a file vanished since the listing."""
    _check_kept(place, listing, version)
    causes = []
    for way in ways_to(listing, version):
        try:
            return _read(place, listing, version, way)
        except CheckpointUnreadableError as error:
            number = way.checkpoint.version if way.checkpoint else version
            log.warning("checkpoint passed over", extra={"table": place.shown, "version": number, "cause": str(error)})
            causes.append(f"checkpoint {number}: {error}")
    missing = missing_before(listing, version)
    if missing >= 0:
        causes.append(f"commit {missing} is missing")
    raise DamagedLogError(place.shown, version, "; ".join(causes))


def read_commits(place: Place, listing: LogListing, versions: Iterable[int]) -> Iterator[tuple[int, Commit]]:
    """Yield what each of the commits says, in the order asked for."""
    wanted = list(versions)
    with ThreadPoolExecutor(min(_READERS, max(1, len(wanted)))) as pool:
        texts = pool.map(lambda version: read_file(place, listing.commits[version].path), wanted)
        for version, text in zip(wanted, texts, strict=True):
            yield version, _parsed(place, version, text)


def _check_kept(place: Place, listing: LogListing, version: int) -> None:
    newest, earliest = listing.newest, listing.earliest
    if newest is None or earliest is None:
        raise DamagedLogError(place.shown, version, "there is no complete checkpoint, and the first commit is missing")
    if not earliest <= version <= newest:
        raise VersionNotKeptError(place.shown, f"version {version}", earliest, newest)


def _read(place: Place, listing: LogListing, version: int, way: Way) -> LoggedVersion:
    contents, files = Contents(), list[FoundFile]()
    if way.checkpoint:
        files += _read_checkpoint(CheckpointReader(place, listing.sidecars), way.checkpoint, contents)
    commits = dict(read_commits(place, listing, way.commits))
    for number, actions in commits.items():
        files.append(listing.commits[number])
        try:
            for action in actions:
                contents.apply(action)
        except _MALFORMED as error:
            raise DamagedLogError(
                place.shown, version, f"commit {number} has a malformed action ({error!r})"
            ) from error
    if not (contents.protocol and contents.metadata):
        raise DamagedLogError(place.shown, version, "its commits name no protocol or no metadata")
    return LoggedVersion(version=version, way=way, log=tuple(files), contents=contents, commits=commits)


def _read_checkpoint(reader: CheckpointReader, checkpoint: Checkpoint, contents: Contents) -> list[FoundFile]:
    """Take in the checkpoint and return its files."""
    sidecars = []
    try:
        for action in reader.actions(checkpoint):
            contents.apply(action)
            if "sidecar" in action:
                sidecars.append(reader.sidecar(action))
    except _MALFORMED as error:
        raise CheckpointUnreadableError(f"it has a malformed action ({error!r})") from error
    if not (contents.protocol and contents.metadata):
        raise CheckpointUnreadableError("it has no protocol or no metadata")
    return [*checkpoint.files, *sidecars]


def _parsed(place: Place, version: int, text: bytes) -> Commit:
    try:
        actions = tuple(json.loads(line) for line in text.splitlines() if line.strip())
    except ValueError as error:
        raise DamagedLogError(place.shown, version, f"commit {version} is not JSON ({error})") from error
    if not actions:
        # A crash of the machine leaves this of a commit that nobody synced.
        raise DamagedLogError(place.shown, version, f"commit {version} is empty")
    return actions
