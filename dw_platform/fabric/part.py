"""The part that the store gives to one node: which topology, which group, whom it reports to."""

from collections.abc import Mapping
from dataclasses import dataclass

from dw_platform.fabric.limits import Pace, TopologyKind
from dw_platform.fabric.records import TOPOLOGY, group_key, readable
from dw_platform.fabric.topology import NO_ROLE, Role, cell_of, roles_of
from dw_platform.fabric.topology_records import TopologyRecord, decode_group
from dw_platform.store import PersistentStore


@dataclass(frozen=True, slots=True)
class Part:
    """What one node has to do."""

    kind: TopologyKind
    pace: Pace
    role: Role = NO_ROLE
    version: int = 0
    """Of the group that says so; 0 outside of one."""


class PartReader:
    """Reads one node's part, and of it only what changed; without a group that can be read, that is the store."""

    def __init__(self, store: PersistentStore, name: str, pace: Pace) -> None:
        self._store, self._name = store, name
        self._topology: tuple[int, TopologyRecord] | None = None
        self._group: _Group | None = None
        self.part = Part(TopologyKind.STAR, pace)

    @property
    def keys(self) -> tuple[str, ...]:
        """Whose versions `read` needs."""
        key = self._group_key()
        return (TOPOLOGY,) if key is None else (TOPOLOGY, key)

    def read(self, versions: Mapping[str, int]) -> Part:
        """Return the part by those versions; what has not changed is not read again."""
        self._read_topology(versions.get(TOPOLOGY))
        self._read_group(versions)
        if self._topology is not None:
            record, group = self._topology[1], self._group
            # A group of another kind belongs to a switch that is under way; until it is made, the store is right.
            if group is not None and group.kind is record.kind:
                self.part = Part(record.kind, record.pace, group.role, group.version)
            else:
                self.part = Part(record.kind, record.pace)
        return self.part

    def _read_topology(self, version: int | None) -> None:
        if version is None or (self._topology is not None and self._topology[0] == version):
            return
        entry = self._store.get(TOPOLOGY)
        record = readable(entry, TopologyRecord.decode)
        if entry is not None and record is not None:
            self._topology = (entry.version, record)

    def _read_group(self, versions: Mapping[str, int]) -> None:
        key = self._group_key()
        if key is None:
            self._group = None
        elif self._group is None or (self._group.key, self._group.version) != (key, versions.get(key)):
            entry = self._store.get(key)
            self._group, group = None, readable(entry, decode_group)
            if entry is not None and group is not None:
                self._group = _Group(key, entry.version, group.kind, roles_of(group).get(self._name, NO_ROLE))

    def _group_key(self) -> str | None:
        if self._topology is None:
            return None
        record = self._topology[1]
        match record.kind:
            case TopologyKind.STAR:
                return None
            case TopologyKind.MESH:
                return group_key(0)
            case TopologyKind.FEDERATED:
                return group_key(cell_of(self._name, max(record.cells, 1)))


@dataclass(frozen=True, slots=True)
class _Group:
    """What was last read about the group, as far as this node needs it."""

    key: str
    version: int
    kind: TopologyKind
    role: Role
