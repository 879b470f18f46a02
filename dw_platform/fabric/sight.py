"""What the acting manager sees in the store: versions that moved since its last look, read with few calls.

Only versions decide that a heartbeat was there, so no clock of another machine is believed. A look costs three
listings of versions, and the values of what changed.
"""

from collections.abc import Callable, Collection
from typing import TypeVar

from dw_platform.fabric.membership import NodeRecord, Verdict
from dw_platform.fabric.records import (
    BEATS,
    NODES,
    REPORTS,
    STATES,
    Report,
    decode_node,
    decode_verdict,
    name_of,
    node_key,
    readable,
    report_key,
)
from dw_platform.fabric.roster import Observation
from dw_platform.scaling.listing import list_records
from dw_platform.store import Entry, PersistentStore

T = TypeVar("T")

# From here on one listing of all values is cheaper than reading each that changed.
_MANY = 50


class Sight:
    """The last versions that were seen; one manager's, used by one thread at a time."""

    def __init__(self, store: PersistentStore) -> None:
        self._store = store
        self._nodes: dict[str, int] = {}
        self._beats: dict[str, int] = {}
        self._reports: dict[str, int] = {}

    def records(self) -> list[NodeRecord]:
        """Return every node's record, for a start; the next look reports what changed after."""
        found = [record for _, record in list_records(self._store, NODES, decode_node)]
        self._nodes = {record.name: record.incarnation for record in found}
        return found

    def verdicts(self) -> list[Verdict]:
        """Return what a predecessor made of the nodes."""
        return [verdict for _, verdict in list_records(self._store, STATES, decode_verdict)]

    def look(self) -> Observation:
        """Return what changed since the last look; if the store fails, the next look sees it all."""
        nodes, beats, reports = (_by_name(self._store.list_versions(prefix)) for prefix in (NODES, BEATS, REPORTS))
        changed = _moved(self._nodes, nodes)
        seen = Observation(
            records={**dict.fromkeys(self._nodes.keys() - nodes), **self._read(NODES, changed, decode_node)},
            beats=_moved(self._beats, beats),
            reports=tuple(self._read(REPORTS, _moved(self._reports, reports), Report.decode).values()),
        )
        self._nodes, self._beats, self._reports = nodes, beats, reports
        return seen

    def _read(self, prefix: str, names: Collection[str], decode: Callable[[Entry], T]) -> dict[str, T]:
        if len(names) >= _MANY:
            found = ((name_of(key), value) for key, value in list_records(self._store, prefix, decode))
            return {name: value for name, value in found if name in names}
        values = {}
        for name in names:
            value = readable(self._store.get(_key(prefix, name)), decode)
            if value is not None:
                values[name] = value
        return values


def _by_name(versions: dict[str, int]) -> dict[str, int]:
    return {name_of(key): version for key, version in versions.items()}


def _moved(before: dict[str, int], after: dict[str, int]) -> set[str]:
    return {name for name, version in after.items() if before.get(name) != version}


def _key(prefix: str, name: str) -> str:
    return {NODES: node_key, REPORTS: report_key}[prefix](name)
