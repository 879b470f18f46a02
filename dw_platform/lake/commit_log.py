"""What the log says about one commit: found again by the id that the platform writes into each of its own."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dw_platform.lake.location import TableLocation

_TOUCHED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numDeletedRows")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """One commit as it is written in the log."""

    version: int
    files: int
    bytes: int
    rows: int | None
    """Rows of the added files; None when a file says nothing about them."""

    metrics: Mapping[str, str] = field(default_factory=dict)
    """What the engine counted, by its own names."""

    @property
    def changed_rows(self) -> int | None:
        """Rows inserted, updated or deleted; rows that were only copied into another file do not count."""
        touched = [int(self.metrics[name]) for name in _TOUCHED if name in self.metrics]
        return sum(touched) if touched else self.rows


def find_commit(location: TableLocation, after: int, commit_id: str) -> LoggedCommit | None:
    """Return the commit that carries `commit_id`, looking at the versions after `after`."""
    system, root = location.filesystem()
    version = after + 1
    while True:
        try:
            with system.open_input_stream(f"{root}/_delta_log/{version:020d}.json") as log:
                lines = log.read().splitlines()
        except FileNotFoundError:
            return None
        # Both engines write the description of a commit as its first line.
        if lines and commit_id.encode() in lines[0]:
            return _summary(version, [json.loads(line) for line in lines])
        version += 1


def newest_details(location: TableLocation, app_id: str, version: int) -> Mapping[str, Any] | None:
    """Return the details of the newest commit at or before `version` that moved `app_id`.

    None when there is none with details, or when the log no longer has it: it keeps commits for 30 days by default.
    """
    return next((told for _, told in details_before(location, app_id, version)), None)


def details_before(location: TableLocation, app_id: str, version: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the position and the details of each commit that moved `app_id`, newest first, as far as the log goes."""
    system, root = location.filesystem()
    for number in range(version, -1, -1):
        try:
            with system.open_input_stream(f"{root}/_delta_log/{number:020d}.json") as log:
                lines = log.read().splitlines()
        except FileNotFoundError:
            return
        moved = next(
            (action["txn"]["version"] for action in map(json.loads, _with_word(lines, b'"txn"'))
             if "txn" in action and action["txn"]["appId"] == app_id),
            None,
        )  # fmt: skip
        if moved is not None and (details := _note(lines).get("details")) is not None:
            yield int(moved), details


def _with_word(lines: Iterable[bytes], word: bytes) -> Iterator[bytes]:
    """Yield the lines that may hold `word`, because parsing thousands of file entries takes time."""
    return (line for line in lines if word in line)


def _note(lines: Iterable[bytes]) -> Mapping[str, Any]:
    for line in _with_word(lines, b'"commitInfo"'):
        told = json.loads(line).get("commitInfo", {})
        with contextlib.suppress(ValueError, TypeError):  # somebody else's user metadata may be any text
            return dict(json.loads(told.get("dw") or told.get("userMetadata") or "{}"))
    return {}


def _summary(version: int, actions: Iterable[Mapping[str, Any]]) -> LoggedCommit:
    added: list[Mapping[str, Any]] = []
    metrics: Mapping[str, str] = {}
    for action in actions:
        if "add" in action:
            added.append(action["add"])
        metrics = action.get("commitInfo", {}).get("operationMetrics") or metrics
    counts = [json.loads(add.get("stats") or "{}").get("numRecords") for add in added]
    return LoggedCommit(
        version=version,
        files=len(added),
        bytes=sum(add["size"] for add in added),
        rows=None if None in counts else sum(counts),
        metrics=metrics,
    )
