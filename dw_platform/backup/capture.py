"""What a table consists of at one version: the files of its log as they are, and every file that they name.

The version is fixed first; what writers, checkpoints, log cleanup and VACUUM do meanwhile does not change what belongs
to it. If a file of the log vanishes between listing and reading, the log is listed anew, a few times at most.

Two listings serve a table of any size: that of the log, then that of the whole folder, which tells size, time and
presence of every file. Nothing is asked for file by file.

A capture that does not add up is no capture: live files must be there in the size that the log gives, and the
version's checksum file, if there is one, must count the same files and bytes.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from dw_platform.backup.capture_checks import check_present, verify_checksum
from dw_platform.backup.checkpoints import Action, CheckpointReader, CheckpointUnreadableError
from dw_platform.backup.contents import FileKind, SourceFile, TableCapture, TableState
from dw_platform.backup.delta_errors import (
    DamagedLogError,
    FilesMissingError,
    LogKeepsChangingError,
    NotADeltaTableError,
)
from dw_platform.backup.delta_files import FoundFile, list_files
from dw_platform.backup.delta_listing import LogListing, list_log
from dw_platform.backup.delta_log import LoggedVersion, read_commits, read_version
from dw_platform.backup.delta_mentions import Mentions
from dw_platform.backup.delta_refusals import refuse_unrestorable
from dw_platform.backup.delta_times import Timeline
from dw_platform.backup.place import Place
from dw_platform.foundation import InvalidValueError

# Log cleanup runs once after a checkpoint, so a second listing nearly always holds.
_ATTEMPTS = 5
# What this platform's extractions keep beside a table: whole files, named after the hash of their content.
_VALUE = re.compile(r"_dw_values/[0-9a-f]{2}/[0-9a-f]{64}")


def capture_table(
    place: Place, *, version: int | None = None, at: datetime | None = None, history: bool = False
) -> TableCapture:
    """Return what has to be copied for the table as of its newest version, of `version`, or of the moment `at`.

    With `history`, also what earlier versions need, as far as the log and the files still have it.
    """
    _check_wish(version, at)
    trouble: Exception | None = None
    for _ in range(_ATTEMPTS):
        listing = list_log(place)
        if listing.newest is None:
            raise NotADeltaTableError(place.shown)
        try:
            if at is not None and version is None:
                version = _version_at(place, listing, at)
            return _capture(place, listing, listing.newest if version is None else version, history=history)
        except (FileNotFoundError, DamagedLogError, FilesMissingError) as error:
            if _lasts(place, error, trouble, pinned=version is not None):
                raise
            trouble = error
    raise LogKeepsChangingError(place.shown, _ATTEMPTS) from trouble


def _check_wish(version: int | None, at: datetime | None) -> None:
    if version is not None and at is not None:
        raise InvalidValueError("at", at, "left out when a version is named")
    if at is not None and at.tzinfo is None:
        raise InvalidValueError("at", at, "a moment with its time zone")


def _lasts(place: Place, error: Exception, before: Exception | None, *, pinned: bool) -> bool:
    """Return whether a newer listing cannot help."""
    if isinstance(error, FilesMissingError):
        # VACUUM may have taken what the newest version of a moment ago needed, if that is no longer the newest.
        return pinned or list_log(place).newest == error.version
    # A listing is no snapshot: a gap may be a commit that appeared behind it. Damage is there twice.
    return isinstance(error, DamagedLogError) and str(error) == str(before)


def _version_at(place: Place, listing: LogListing, at: datetime) -> int:
    newest = read_version(place, listing, max(listing.commits, default=-1))
    return Timeline(place, listing, newest.contents.metadata.get("configuration") or {}).version_at(at)


def _capture(place: Place, listing: LogListing, version: int, *, history: bool) -> TableCapture:
    logged = read_version(place, listing, version)
    refuse_unrestorable(place, listing, logged.contents.protocol)
    live, other = _mentioned(place, listing, logged, history=history)
    log = _log_files(place, listing, logged, history=history)
    state = _state(place, listing, logged)
    verify_checksum(place, listing, state)
    present = list_files(place)
    check_present(place, version, live, present)
    files = {file.path: _source(file, FileKind.LOG) for file in log}
    for kind, path in _by_kind(live, other):
        if path in present and path not in files:
            files[path] = _source(present[path], kind, live.data.get(path))
    # They were there before the commit whose rows name them.
    files.update((path, _source(file, FileKind.VALUE)) for path, file in present.items() if _VALUE.fullmatch(path))
    return TableCapture(state=state, files=tuple(files[path] for path in sorted(files)))


def _mentioned(place: Place, listing: LogListing, logged: LoggedVersion, *, history: bool) -> tuple[Mentions, Mentions]:
    """Return what the version cannot do without, and what comes with it if it still exists."""
    live, other = Mentions(place, logged.version), Mentions(place, logged.version)
    for add in logged.contents.live.values():
        live.note_data(add)
    if len(live.data) < len(logged.contents.live):
        raise DamagedLogError(place.shown, logged.version, "it has one file twice, with two deletion vectors")
    note: Callable[[Iterable[Action]], None] = other.note_commit if history else other.note_changes
    for actions in logged.commits.values():
        note(actions)
    if history:
        # What an earlier version needs and this one does not, a later commit has removed, and so names it.
        earlier = listing.unbroken_to(logged.version)
        for _, actions in read_commits(place, listing, range(earlier.start, logged.way.commits.start)):
            note(actions)
    return live, other


def _log_files(place: Place, listing: LogListing, logged: LoggedVersion, *, history: bool) -> list[FoundFile]:
    """Return the log's files that belong to the capture; an earlier checkpoint that is unreadable is left out."""
    files = {file.path: file for file in logged.log}
    start = logged.way.checkpoint.version if logged.way.checkpoint else 0
    commits = listing.unbroken_to(logged.version)
    if not history:
        # The commit of the checkpoint's own version is kept by log cleanup too: it has the version's time.
        commits = range(max(commits.start, start), logged.version + 1)
    else:
        reader = CheckpointReader(place, listing.sidecars)
        for version in range(commits.start - 1, logged.version + 1):
            for checkpoint in listing.checkpoints.get(version, ()):
                try:
                    found = (*checkpoint.files, *reader.sidecars_of(checkpoint))
                except CheckpointUnreadableError:
                    continue
                files.update((file.path, file) for file in found)
    for version in commits:
        files[listing.commits[version].path] = listing.commits[version]
        if version in listing.checksums:
            files[listing.checksums[version].path] = listing.checksums[version]
    return list(files.values())


def _state(place: Place, listing: LogListing, logged: LoggedVersion) -> TableState:
    contents = logged.contents
    timeline = Timeline(place, listing, contents.metadata.get("configuration") or {})
    counts = [_rows(add) for add in contents.live.values()]
    return TableState(
        version=logged.version,
        committed_at_ms=timeline.committed_at_ms(logged.version),
        protocol=contents.protocol,
        metadata=contents.metadata,
        transactions=contents.transactions,
        domains=contents.domains,
        rows=None if None in counts else sum(count for count in counts if count is not None),
        files=len(contents.live),
        bytes=sum(int(add["size"]) for add in contents.live.values()),
    )


def _rows(add: Mapping[str, Any]) -> int | None:
    try:
        stats = json.loads(add["stats"]) if add.get("stats") else add.get("stats_parsed") or {}
        return int(stats["numRecords"]) - int((add.get("deletionVector") or {}).get("cardinality", 0))
    except (ValueError, KeyError, TypeError):
        # Statistics are optional, and their reader is the one who loses by it.
        return None


def _by_kind(*mentions: Mentions) -> Iterable[tuple[FileKind, str]]:
    for each in mentions:
        yield from ((FileKind.DATA, path) for path in each.data)
        yield from ((FileKind.DELETION_VECTOR, path) for path in each.vectors)
        yield from ((FileKind.CHANGE, path) for path in each.changes)


def _source(file: FoundFile, kind: FileKind, add: Mapping[str, Any] | None = None) -> SourceFile:
    return SourceFile(path=file.path, kind=kind, size=file.size, mtime_ns=file.mtime_ns, add=add)
