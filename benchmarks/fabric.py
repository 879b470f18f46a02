"""Thousands of nodes in one process: the fabric's own decisions and conversations, over a network that loses datagrams.

Simplified are only the store (a count of writes and bytes, always there) and time (discrete events). Heartbeats,
their repetition, probes, summaries, accusations, the detector and the plan of groups are the code that runs in
production.

A false removal is one of a node that lives. Detection is measured from a node's last heartbeat, and from its death,
which falls anywhere between two heartbeats.
"""

import heapq
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from benchmarks.harness import Options
from dw_platform.fabric.beating import BeatPlan
from dw_platform.fabric.changes import StateChange
from dw_platform.fabric.detector import WatchedTime, next_look_s
from dw_platform.fabric.limits import FabricLimits, TopologyKind
from dw_platform.fabric.membership import Address, NodeKind, NodeRecord, NodeState
from dw_platform.fabric.messages import MessageKind
from dw_platform.fabric.part import Part
from dw_platform.fabric.peers import Peers, Send
from dw_platform.fabric.records import Beat, Report, ReportKind
from dw_platform.fabric.reporting import SUMMARY_SHARE
from dw_platform.fabric.roster import Observation, Roster
from dw_platform.fabric.topology import Group, cells_for, plan_groups, roles_of
from dw_platform.fabric.topology_records import encode_group

NAME = "fabric"
DESCRIPTION = "simulated nodes under lost datagrams: detection, false removals, writes to the store, switches"

AT = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = 40
# How long a datagram travels at most; a local network takes far less.
SLOWEST_S = 0.02


@dataclass(slots=True)
class SimulatedNode:
    """One process: what it knows, and what a judge of the manager needs to know about it."""

    record: NodeRecord
    peers: Peers
    plan: BeatPlan
    part: Part
    alive: bool = True
    died_at: float = 0.0
    last_sign: float = 0.0
    """When another node last heard it, or it last wrote to the store: both are what a heartbeat is."""

    tick_at: float = float("inf")
    reporting: bool = False
    accused: frozenset[str] = frozenset()


@dataclass(slots=True)
class Figures:
    """What was counted since the last `measure`."""

    writes: int = 0
    bytes: int = 0
    datagrams: int = 0
    false_suspicions: int = 0
    false_removals: int = 0
    detected: list[tuple[float, float]] = field(default_factory=list)
    """Of each removed dead node: seconds from its last heartbeat, and from its death."""


class Simulation:
    """A fabric under a manager that is on time; `loss` is the share of datagrams that vanish."""

    def __init__(self, nodes: int, kind: TopologyKind, *, loss: float, seed: int = 1) -> None:
        self.limits = FabricLimits(star=100_000, federated=100_000)
        self.pace, self.kind, self.now, self.figures = self.limits.pace, kind, 0.0, Figures()
        self._random, self._loss, self._order = random.Random(seed), loss, count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._watch, self._roster = WatchedTime(0.0), Roster()
        self._in_force, self._version, self._cells = kind, 0, 0
        self._groups: tuple[Group, ...] = ()
        self._parts: dict[str, Part] = {}
        self._records: dict[str, NodeRecord | None] = {}
        self._beats: set[str] = set()
        self._reports: list[Report] = []
        self.nodes: dict[str, SimulatedNode] = {}
        self._by_address: dict[Address, SimulatedNode] = {}
        for number in range(nodes):
            self._join(number)
        self.at(0.0, self._look)

    def at(self, moment: float, work: Callable[[], None]) -> None:
        """Do `work` at `moment`."""
        heapq.heappush(self._queue, (moment, next(self._order), work))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._queue[0][0] <= end:
            self.now, _, work = heapq.heappop(self._queue)
            work()
        self.now = end

    def measure(self) -> None:
        """Count anew from here on."""
        self.figures = Figures()

    def kill(self, how_many: int, *, within_s: float) -> None:
        """Let random nodes die at random moments."""
        for name in self._random.sample([*self.nodes], how_many):
            self.at(self.now + self._random.uniform(0, within_s), lambda name=name: self.die(name))

    def die(self, name: str) -> None:
        """Let a node die now."""
        self.nodes[name].alive, self.nodes[name].died_at = False, self.now

    def switch(self, kind: TopologyKind) -> None:
        """Take another topology at the manager's next look."""
        self.kind = kind

    def living(self) -> int:
        """Return how many nodes the manager counts."""
        return len(self._roster.living())

    @property
    def groups(self) -> tuple[Group, ...]:
        """The mesh or the cells in force."""
        return self._groups

    def hubs(self) -> list[str]:
        """Return the hubs of all cells."""
        return [group.hub for group in self._groups if group.hub is not None]

    def _join(self, number: int) -> None:
        host = f"host{number % HOSTS:02}"
        name, address = f"worker@{host}/{number:05}", (f"10.0.{number // 250}.{number % 250}", 7_000)
        record = NodeRecord(
            name=name,
            kind=NodeKind.WORKER,
            host=host,
            pid=number,
            address=address,
            life=str(number),
            joined_at=AT,
            incarnation=1,
        )
        part = Part(TopologyKind.STAR, self.pace)
        node = SimulatedNode(record, Peers(name, self.pace, now=0.0, dice=self._random), BeatPlan(part), part)
        node.plan.begin(0.0, spread=self._random.random())
        self.nodes[name] = self._by_address[address] = node
        self._records[name] = record
        self.at(self._random.uniform(0, self.pace.heartbeat_s), lambda: self._scribe(node))

    def _written(self, value: bytes) -> None:
        self.figures.writes += 1
        self.figures.bytes += len(value)

    def _scribe(self, node: SimulatedNode) -> None:
        """Do what a node does with the store once a heartbeat."""
        if node.alive:
            self._follow(node)
            self.at(self.now + self.pace.heartbeat_s, lambda: self._scribe(node))

    def _follow(self, node: SimulatedNode) -> None:
        """Look at the part that the store gives to the node, and write the heartbeat that is due."""
        part = self._parts.get(node.record.name, Part(self.kind, self.pace))
        node.peers.looked()
        if part is not node.part:
            node.part = part
            node.plan.take(part)
            node.peers.take(part, incarnation=1, now=self.now)
            self._arm(node)
        node.plan.not_heard(node.peers.unheard)
        if self.now >= node.plan.next_at():
            self._written(Beat(incarnation=1, because="", at=AT).encode())
            node.plan.written(self.now)
            node.last_sign = self.now
            self._beats.add(node.record.name)
        if not node.reporting and part.role.wards:
            node.reporting = True
            self._report(node)

    def _report(self, node: SimulatedNode) -> None:
        """Write what a hub or a watcher has heard, as often as its scribe comes by."""
        role, mesh = node.part.role, node.part.kind is TopologyKind.MESH
        node.reporting = node.alive and bool(role.wards)
        if not node.reporting:
            return
        if not mesh:
            self._tell(node, ReportKind.SUMMARY, dict(node.peers.ages(self.now)))
        elif (silent := node.peers.silent(self.now)).keys() != node.accused:
            node.accused = frozenset(silent)
            self._tell(node, ReportKind.SILENCE, silent)
        pause_s = self.pace.look_every_s if mesh else self.pace.heartbeat_s * SUMMARY_SHARE
        self.at(self.now + pause_s, lambda: self._report(node))

    def _tell(self, node: SimulatedNode, kind: ReportKind, ages: dict[str, float | None]) -> None:
        node.last_sign = self.now
        report = Report(reporter=node.record.name, kind=kind, ages=ages, at=AT)
        self._written(report.encode())
        self._reports.append(report)

    def _arm(self, node: SimulatedNode) -> None:
        if node.peers.next_at < node.tick_at:
            node.tick_at = node.peers.next_at
            self.at(max(node.tick_at, self.now), lambda: self._tick(node))

    def _tick(self, node: SimulatedNode) -> None:
        if not node.alive or self.now < node.tick_at:
            return  # an earlier one has done it, and armed the next
        node.tick_at, unheard = float("inf"), node.peers.unheard
        self._send(node, node.peers.tick(self.now))
        self._after(node, unheard)

    def _receive(self, node: SimulatedNode, send: Send, source: Address) -> None:
        if node.alive:
            if send.message.kind in {MessageKind.BEAT, MessageKind.PONG}:
                self._by_address[source].last_sign = self.now
            unheard = node.peers.unheard
            self._send(node, node.peers.receive(send.message, source, self.now))
            self._after(node, unheard)

    def _after(self, node: SimulatedNode, unheard: int) -> None:
        if node.peers.unheard > unheard:
            self._follow(node)
        self._arm(node)

    def _send(self, node: SimulatedNode, sends: list[Send]) -> None:
        for send in sends:
            self.figures.datagrams += 1
            if self._random.random() >= self._loss:
                receiver, source = self._by_address[send.address], node.record.address
                assert source is not None
                self.at(
                    self.now + self._random.uniform(0, SLOWEST_S),
                    lambda receiver=receiver, send=send, source=source: self._receive(receiver, send, source),
                )

    def _look(self) -> None:
        """Do what the acting manager does."""
        self._watch, late = self._watch.look(self.now, longest_gap_s=self.pace.heartbeat_s)
        seen = Observation(records=self._records, beats=self._beats, reports=self._reports)
        self._records, self._beats, self._reports = {}, set(), []
        self._roster.observe(seen, self.now, self._in_force, self.pace)
        most = self.limits.most(self.kind)
        for change in list(self._roster.due(self.now, self.limits, self.pace, most=most, late=late)):
            self._judged(change)
            self._roster.apply(change, self.now)
        self._arrange()
        silences = (self._roster.silence_s(each, self.now, self.pace) for each in self._roster.living())
        self.at(self.now + next_look_s(silences, self.pace), self._look)

    def _judged(self, change: StateChange) -> None:
        node = self.nodes[change.record.name]
        if change.after is NodeState.SUSPECT and node.alive:
            self.figures.false_suspicions += 1
        if change.after is NodeState.REMOVED and node.alive:
            self.figures.false_removals += 1
        elif change.after is NodeState.REMOVED:
            self.figures.detected.append((self.now - node.last_sign, self.now - node.died_at))

    def _arrange(self) -> None:
        living = self._roster.living()
        self._cells = cells_for(len(living), self._cells, self.limits.cell_size)
        unfit = {each.record.name for each in living if each.state is not NodeState.ALIVE}
        seats = [seat for each in living if (seat := each.seat) is not None]
        groups = plan_groups(self.kind, seats, cells=self._cells, unfit=unfit)
        if groups != self._groups or self.kind is not self._in_force:
            known = {group.number: group for group in self._groups}
            changed = [group for group in groups if known.get(group.number) != group]
            if self.kind is not self._in_force:
                self._parts, changed = {}, list(groups)
                self._roster.pardon(self.now)
            self._version += 1
            for group in changed:
                self._written(encode_group(group))
                for name, role in roles_of(group).items():
                    self._parts[name] = Part(self.kind, self.pace, role, self._version)
            self._groups, self._in_force = groups, self.kind
            self._roster.arrange(groups, self.now)


def run(options: Options) -> dict[str, Any]:
    """Run every case; a bound that does not hold is a False among the checks, a lost node an AssertionError."""
    quick = options.quick
    many, hour = (300, 300) if quick else (10_000, 3_600)
    cases = [
        Case(TopologyKind.STAR, 200 if quick else 1_000, 0.0, hour / 4),
        Case(TopologyKind.MESH, 100 if quick else 500, 0.01, hour),
        Case(TopologyKind.MESH, 100 if quick else 500, 0.05, hour),
        Case(TopologyKind.FEDERATED, many, 0.01, hour),
        Case(TopologyKind.FEDERATED, many, 0.05, hour / 4),
        Case(TopologyKind.STAR, many, 0.0, hour / 12),
    ]
    measures, checks = list[dict[str, Any]](), dict[str, Any]()
    for case in cases:
        rows, held = _measured(case)
        measures += [{"name": f"{case}: {what}", "unit": unit, "median": value} for what, unit, value in rows]
        checks |= {f"{case}: {what}": value for what, value in held.items()}
    for loss in (0.0, 0.01, 0.05):
        checks[f"switches at {loss:.0%} loss remove nobody"] = _switched(100 if quick else 450, loss)
    return {"measures": measures, "checks": checks}


@dataclass(frozen=True, slots=True)
class Case:
    """One fabric to be measured."""

    kind: TopologyKind
    nodes: int
    loss: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.kind} of {self.nodes:,}, {self.loss:.0%} loss"


def _measured(case: Case) -> tuple[list[tuple[str, str, float]], dict[str, Any]]:
    simulation = Simulation(case.nodes, case.kind, loss=case.loss)
    pace = simulation.pace
    simulation.run(10 * pace.heartbeat_s)
    simulation.measure()
    simulation.run(case.seconds)
    calm, hours = simulation.figures, case.nodes * case.seconds / 3_600
    simulation.measure()
    dead = max(case.nodes // 100, 5)
    simulation.kill(dead, within_s=10 * pace.heartbeat_s)
    simulation.run(16 * pace.heartbeat_s)
    deaths = simulation.figures
    bound = pace.remove_after_s + pace.look_every_s
    by_sign = sorted(sign for sign, _ in deaths.detected) or [float("nan")]
    by_death = sorted(death for _, death in deaths.detected) or [float("nan")]
    rows = [
        ("writes to the store", "1/s", calm.writes / case.seconds),
        ("bytes to the store", "B/s", calm.bytes / case.seconds),
        ("datagrams", "1/s", calm.datagrams / case.seconds),
        ("false suspicions", "per 10,000 node-hours", calm.false_suspicions / hours * 10_000),
        ("false removals", "per 10,000 node-hours", calm.false_removals / hours * 10_000),
        ("removed after its last heartbeat, median", "s", statistics.median(by_sign)),
        ("removed after its last heartbeat, longest", "s", by_sign[-1]),
        ("removed after its death, median", "s", statistics.median(by_death)),
        ("removed after its death, longest", "s", by_death[-1]),
    ]
    return rows, {
        f"{dead} dead nodes are all removed": len(deaths.detected) == dead,
        f"at most {bound:g} s after the last heartbeat": by_sign[-1] <= bound + SLOWEST_S,
        f"no living node is removed in {hours:,.0f} node-hours": calm.false_removals + deaths.false_removals == 0,
    }


def _switched(nodes: int, loss: float) -> bool:
    """Go through all topologies in every order, a minute in each, and return whether everybody is still there."""
    simulation = Simulation(nodes, TopologyKind.STAR, loss=loss)
    order = [TopologyKind.MESH, TopologyKind.FEDERATED, TopologyKind.MESH, TopologyKind.STAR, TopologyKind.FEDERATED]
    for kind in (*order, TopologyKind.STAR):
        simulation.run(60)
        simulation.switch(kind)
    simulation.run(300)
    assert simulation.living() == nodes, "a switch has lost nodes"
    return simulation.figures.false_removals == 0
