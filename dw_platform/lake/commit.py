"""One Delta commit by deltalake: files, the positions of the sources they came from, and who wrote them and why.

A commit is atomic: a reader sees all of it or nothing. Whether a commit whose answer was lost went through is
found out from the log by the commit's own id, so an error here means that nothing was committed.
"""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from dw_platform.foundation import PermanentError, PlatformError, TransientError
from dw_platform.lake.commit_log import find_commit
from dw_platform.lake.features import Engine
from dw_platform.lake.opening import StorageUnreachableError
from dw_platform.lake.parquet import DataFile
from dw_platform.lake.snapshot import Snapshot

NOTE_KEY = "dw"
# Every lost race costs one attempt; a few dozen writers on one table stay far below this.
_MAX_ATTEMPTS = 200


class NotCommittedError(PlatformError):
    """Marks the errors after which it is certain that the log does not refer to the files."""


class PositionConflictError(NotCommittedError, TransientError):
    """Another writer has moved a source position since this one planned."""

    def __init__(self, table: str, app_ids: Sequence[str]) -> None:
        self.table, self.app_ids = table, tuple(app_ids)
        super().__init__(
            f"{table}: another writer committed positions of {', '.join(app_ids)} in the meantime. Nothing was "
            "committed; plan again from the table."
        )


class StalePositionError(NotCommittedError, PermanentError):
    """A position that does not lie beyond the committed one would let rows in twice."""

    def __init__(self, table: str, app_id: str, committed: int, proposed: int) -> None:
        self.table, self.app_id, self.committed, self.proposed = table, app_id, committed, proposed
        super().__init__(
            f"{table}: {app_id} is committed up to {committed}, so {proposed} would write rows twice. "
            "Plan from the table's own positions."
        )


class CommitConflictError(NotCommittedError, TransientError):
    """Another commit changed what this one was based on, by Delta's own rules."""

    def __init__(self, table: str, cause: str) -> None:
        self.table, self.cause = table, cause
        super().__init__(f"{table}: another commit came first ({cause}). Nothing was committed; try again.")


class CommitRefusedError(NotCommittedError, PermanentError):
    """Delta refused the commit."""

    def __init__(self, table: str, cause: str) -> None:
        self.table, self.cause = table, cause
        super().__init__(f"{table}: Delta refused the commit: {cause}. Nothing was committed.")


class CommitLostError(PermanentError):
    """An acknowledged commit is not in the log: another program overwrote it, or cleaned the log up at once."""

    def __init__(self, table: str, commit_id: str) -> None:
        self.table, self.commit_id = table, commit_id
        super().__init__(
            f"{table}: the commit {commit_id} was acknowledged but is not in the log. A program that does not take "
            "this platform's lock may have overwritten it: compare the table with its source before going on."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNote:
    """What the platform writes into every commit about itself."""

    engine: Engine
    reason: str
    details: Mapping[str, Any] | None = None
    """What a source needs to go on after this commit, as JSON; read back by `commit_log.newest_details`."""

    commit_id: str = field(default_factory=lambda: secrets.token_hex(12))

    def to_json(self) -> str:
        told = {"commit": self.commit_id, "engine": self.engine.value, "reason": self.reason}
        return json.dumps(told if self.details is None else {**told, "details": self.details})


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file that the table has, as its log names it."""

    path: str
    size: int
    rows: int | None


def check_positions(
    snapshot: Snapshot, positions: Mapping[str, int], planned_from: Mapping[str, int | None] | None = None
) -> None:
    """Refuse positions that do not move forward, or that were planned from others than the snapshot has."""
    check_unmoved(snapshot, planned_from or {})
    for app_id, proposed in positions.items():
        committed = snapshot.position(app_id)
        if committed is not None and proposed <= committed:
            raise StalePositionError(snapshot.table, app_id, committed, proposed)


def check_unmoved(snapshot: Snapshot, planned_from: Mapping[str, int | None]) -> None:
    """Raise PositionConflictError if the snapshot has other positions than these."""
    if moved := [app_id for app_id, position in planned_from.items() if snapshot.position(app_id) != position]:
        raise PositionConflictError(snapshot.table, moved)


def commit_files(
    snapshot: Snapshot,
    files: Sequence[DataFile],
    *,
    mode: str,
    schema: pa.Schema,
    positions: Mapping[str, int],
    note: CommitNote,
    removed: Sequence[LoggedFile] = (),
    forward_only: bool = True,
) -> int:
    """Commit `files` on top of `snapshot` and return the version; the caller holds the table's lock, shared.

    With `removed` it holds it alone, and knows that nothing was committed since the snapshot. Positions may go back
    only where whoever calls has removed the rows beyond them.
    """
    if snapshot.location.log_identity(snapshot.version) != snapshot.log_identity:
        raise CommitConflictError(snapshot.table, "the table was restored from a backup meanwhile")
    if forward_only:
        check_positions(snapshot, positions)
    properties = CommitProperties(
        custom_metadata={NOTE_KEY: note.to_json()},
        max_commit_retries=_MAX_ATTEMPTS,
        app_transactions=[Transaction(app_id, version) for app_id, version in positions.items()],
    )
    try:
        snapshot.delta.create_write_transaction(
            [*map(_remove_action, removed), *map(_add_action, files)],
            mode,
            schema,
            partition_by=list(snapshot.partition_by),
            commit_properties=properties,
        )
    except (DeltaError, OSError) as error:
        # The commit may stand although its answer did not arrive: a checkpoint that fails afterwards raises as well,
        # and a request that the storage's client repeated conflicts with its own first attempt.
        if commit := find_commit(snapshot.location, snapshot.version, note.commit_id):
            return commit.version
        raise _meaning(snapshot.table, error, list(positions)) from error
    commit = find_commit(snapshot.location, snapshot.version, note.commit_id)
    if commit is None:
        raise CommitLostError(snapshot.table, note.commit_id)
    return commit.version


def _add_action(file: DataFile) -> AddAction:
    # A path in the log is a URI; `=` and `~` stay readable, as Spark leaves them.
    return AddAction(
        path=quote(file.path, safe="/=~"),
        size=file.size,
        partition_values=json.loads(file.partition_values),
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.statistics,
    )


def _remove_action(file: LoggedFile) -> RemoveAction:
    now_ms = int(time.time() * 1000)
    return RemoveAction(
        path=file.path, data_change=True, deletion_timestamp=now_ms, size=file.size, partition_values={}
    )


def _meaning(table: str, error: Exception, app_ids: list[str]) -> PlatformError:
    cause = str(error).splitlines()[0]
    if isinstance(error, OSError):
        return StorageUnreachableError(table, cause)
    if not isinstance(error, CommitFailedError):
        return CommitRefusedError(table, cause)
    # deltalake's words for a position alone; the text of every conflict begins with "Failed to commit transaction".
    if app_ids and "concurrent transaction failed" in cause.lower():
        return PositionConflictError(table, app_ids)
    return CommitConflictError(table, cause)
