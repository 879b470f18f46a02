"""What the log says about one commit: found again by the id that the platform writes into each of its own."""

import json
from collections.abc import Iterable, Mapping
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
