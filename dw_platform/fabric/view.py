"""What people see of the fabric: read from the store by any process, drawn as text.

`last heard` comes from the wall times that nodes write beside their heartbeats. It is for people only; no decision
uses it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dw_platform.fabric.leadership import acting_manager
from dw_platform.fabric.limits import FabricLimits, TopologyKind
from dw_platform.fabric.membership import Claim, NodeKind, NodeRecord, NodeState, Verdict, merge_views
from dw_platform.fabric.records import (
    BEATS,
    GROUPS,
    NODES,
    REPORTS,
    STATES,
    TOPOLOGY,
    Beat,
    Report,
    decode_node,
    decode_verdict,
    name_of,
    readable,
)
from dw_platform.fabric.topology import Group, watchers_of
from dw_platform.fabric.topology_records import TopologyRecord, decode_group
from dw_platform.scaling.listing import list_records
from dw_platform.store import PersistentStore

STORE = "store"
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node as an operator sees it."""

    name: str
    kind: NodeKind
    host: str
    pid: int
    state: NodeState
    incarnation: int
    last_heard: datetime
    since: datetime
    """When it came into this state."""

    reason: str
    reports_to: tuple[str, ...]
    """Nodes, or `store`."""

    fallback: str
    """Why its heartbeats go to the store although others should hear them; empty if they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyView:
    """The topology, ready to be drawn."""

    kind: TopologyKind
    by: str
    reason: str
    advice: str
    manager: str | None
    living: int
    most: int
    switch_at: int | None
    """None: it does not grow out of this one."""

    groups: tuple[Group, ...]
    nodes: Mapping[str, NodeView]

    def render(self, *, shown: int = _SHOWN) -> str:
        """Return a tree of the nodes, at most `shown` of a group; those in trouble come first."""
        switch = "" if self.switch_at is None else f", outgrown at {self.switch_at:,}"
        lines = [
            f"{self.kind}: {self.living:,} of {self.most:,} nodes{switch}; manager: {self.manager or 'none'}",
            f"  {self.reason} ({self.by})",
        ]
        if self.advice:
            lines.append(f"  advice: {self.advice}")
        grouped = {seat.name for group in self.groups for seat in group.members}
        for group in self.groups:
            title = "mesh" if group.kind is TopologyKind.MESH else f"cell {group.number}, hub {group.hub}"
            lines += self._branch(title, (seat.name for seat in group.members), shown)
        alone = [name for name, node in self.nodes.items() if name not in grouped and not node.state.gone]
        if alone:
            lines += self._branch("control store", alone, shown)
        return "\n".join(lines)

    def _branch(self, title: str, names: Iterable[str], shown: int) -> list[str]:
        nodes = [self.nodes[name] for name in names if name in self.nodes]
        nodes.sort(key=lambda node: (-node.state, not node.fallback, node.name))
        lines = [f"├─ {title} ({len(nodes):,})"]
        for node in nodes[:shown]:
            notes = [node.state.label] * (node.state is not NodeState.ALIVE) + [node.fallback] * bool(node.fallback)
            lines.append(f"│  ├─ {node.name}" + (f"  [{'; '.join(notes)}]" if notes else ""))
        if len(nodes) > shown:
            lines.append(f"│  └─ {len(nodes) - shown:,} more")
        return lines


def read_nodes(store: PersistentStore) -> tuple[NodeView, ...]:
    """Return all nodes, the gone ones that are not forgotten yet included, by name."""
    records = {record.name: record for _, record in list_records(store, NODES, decode_node)}
    verdicts = {verdict.name: verdict for _, verdict in list_records(store, STATES, decode_verdict)}
    claims = merge_views(_claims(records), _claims(verdicts))
    heard, fallbacks = _heard(store, records)
    roles = _reports_to(read_groups(store))
    found = []
    for name, record in sorted(records.items()):
        claim, verdict = claims[name], verdicts.get(name)
        judged = verdict is not None and verdict.claim == claim
        found.append(
            NodeView(
                name=name,
                kind=record.kind,
                host=record.host,
                pid=record.pid,
                state=claim.state,
                incarnation=record.incarnation,
                last_heard=heard[name],
                since=verdict.at if verdict is not None and judged else record.joined_at,
                reason=verdict.reason if verdict is not None and judged else "not seen by a manager yet",
                reports_to=() if claim.state.gone else roles.get(name, (STORE,)),
                fallback=fallbacks.get(name, ""),
            )
        )
    return tuple(found)


def read_groups(store: PersistentStore) -> tuple[Group, ...]:
    """Return the groups of the topology in force."""
    topology = read_topology(store)
    groups = (group for _, group in list_records(store, GROUPS, decode_group))
    return tuple(group for group in groups if topology is not None and group.kind is topology.kind)


def read_topology(store: PersistentStore) -> TopologyRecord | None:
    """Return the topology in force, or None before a manager has acted for the first time."""
    return readable(store.get(TOPOLOGY), TopologyRecord.decode)


def read_topology_view(store: PersistentStore, limits: FabricLimits) -> TopologyView:
    """Return the topology with its nodes."""
    nodes = {node.name: node for node in read_nodes(store)}
    topology = read_topology(store)
    kind = TopologyKind.STAR if topology is None else topology.kind
    grows = kind is not TopologyKind.FEDERATED
    return TopologyView(
        kind=kind,
        by="" if topology is None else topology.by,
        reason="no manager has acted yet" if topology is None else topology.reason,
        advice="" if topology is None else topology.advice,
        manager=acting_manager(store),
        living=sum(not node.state.gone for node in nodes.values()),
        most=limits.most(kind),
        switch_at=limits.switch_at(kind) if grows else None,
        groups=read_groups(store),
        nodes=nodes,
    )


def _claims(said: "Mapping[str, NodeRecord] | Mapping[str, Verdict]") -> dict[str, Claim]:
    return {name: each.claim for name, each in said.items()}


def _heard(store: PersistentStore, records: Mapping[str, NodeRecord]) -> tuple[dict[str, datetime], dict[str, str]]:
    """Return when each node was last heard by anybody, and why some write to the store."""
    heard = {name: record.joined_at for name, record in records.items()}
    fallbacks: dict[str, tuple[datetime, str]] = {}
    for key, beat in list_records(store, BEATS, Beat.decode):
        name = name_of(key)
        if name in heard:
            heard[name] = max(heard[name], beat.at)
            fallbacks[name] = (beat.at, beat.because)
    for _, report in list_records(store, REPORTS, Report.decode):
        if report.reporter in heard:
            heard[report.reporter] = max(heard[report.reporter], report.at)
        for name, age in report.ages.items():
            if age is not None and name in heard:
                heard[name] = max(heard[name], report.at - timedelta(seconds=age))
    # A fallback is over once somebody else has heard the node since.
    return heard, {name: because for name, (at, because) in fallbacks.items() if because and at >= heard[name]}


def _reports_to(groups: Iterable[Group]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for group in groups:
        if group.kind is TopologyKind.MESH:
            found |= {name: watchers or (STORE,) for name, watchers in watchers_of(group.members).items()}
        else:
            found |= {seat.name: (STORE,) if seat.name == group.hub else (str(group.hub),) for seat in group.members}
    return found
