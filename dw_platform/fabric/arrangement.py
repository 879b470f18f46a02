"""The groups that nodes follow: planned by the acting manager, written where they differ from what is stored.

Groups are written before the topology that uses them, so a node finds its group as soon as it looks for it; groups
that nobody needs any more go last. A manager that dies in between leaves groups that its successor plans the same
way.
"""

from collections.abc import Collection

from dw_platform.fabric.changes import Member
from dw_platform.fabric.limits import Pace, TopologyKind
from dw_platform.fabric.membership import NodeState
from dw_platform.fabric.records import GROUPS, group_key
from dw_platform.fabric.topology import plan_groups
from dw_platform.fabric.topology_records import TopologyRecord, decode_group, encode_group
from dw_platform.scaling.listing import list_records
from dw_platform.store import PersistentStore

# A hub has this long to take up its part before members that bypass it speak against it.
_HEARTBEATS_TO_SETTLE = 4
_BYPASSED_WITHIN = 2


class Arrangement:
    """The groups in force; one acting manager's."""

    def __init__(self, store: PersistentStore, kind: TopologyKind) -> None:
        self._store = store
        stored = [group for _, group in list_records(store, GROUPS, decode_group)]
        self._written = {group.number: encode_group(group) for group in stored}
        self._hub_since: dict[str, float] = {}
        self._deaf: set[tuple[str, int]] = set()
        self.groups = tuple(group for group in stored if group.kind is kind)
        """What a predecessor left, at first."""

    def plan(self, record: TopologyRecord, living: Collection[Member], now: float) -> bool:
        """Write the groups that `living` nodes form now; return whether they differ from those before."""
        self._judge_hubs(living, record.pace, now)
        seats = [seat for member in living if (seat := member.seat) is not None]
        groups = plan_groups(record.kind, seats, cells=max(record.cells, 1), unfit=self._unfit(living))
        for group in groups:
            value = encode_group(group)
            if self._written.get(group.number) != value:
                self._store.put(group_key(group.number), value)
                self._written[group.number] = value
        hubs = {group.hub for group in groups if group.hub is not None}
        self._hub_since = {hub: self._hub_since.get(hub, now) for hub in hubs}
        changed, self.groups = groups != self.groups, groups
        return changed

    def drop_unused(self) -> None:
        """Remove the groups that nobody is in, once the topology in force does not name them."""
        for number in self._written.keys() - {group.number for group in self.groups}:
            self._store.delete(group_key(number))
            del self._written[number]

    def _unfit(self, living: Collection[Member]) -> set[str]:
        """Return who should not be a hub: who is silent, who comes and goes, and who was not heard by its cell."""
        return {
            member.record.name
            for member in living
            if member.state is not NodeState.ALIVE
            or member.flaps.damped
            or (member.record.name, member.record.incarnation) in self._deaf
        }

    def _judge_hubs(self, living: Collection[Member], pace: Pace, now: float) -> None:
        """Find hubs that live while most of their cell has to bypass them; they are no hubs again in this life."""
        members = {member.record.name: member for member in living}
        self._deaf = {(name, life) for name, life in self._deaf if name in members}
        for group in self.groups:
            hub = members.get(group.hub or "")
            others = [members[seat.name] for seat in group.members if seat.name in members and seat.name != group.hub]
            if hub is None or not others:
                continue
            settled = now - self._hub_since.get(hub.record.name, now) >= _HEARTBEATS_TO_SETTLE * pace.heartbeat_s
            bypassing = sum(now - member.beat_at <= _BYPASSED_WITHIN * pace.heartbeat_s for member in others)
            if settled and 2 * bypassing > len(others):
                self._deaf.add((hub.record.name, hub.record.incarnation))
