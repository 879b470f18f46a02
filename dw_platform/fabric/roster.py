"""All nodes as the acting manager knows them: evidence goes in, due changes come out. No store, no threads, no clock.

`observe` takes in what was seen in one look. `due` says which states should change, and changes nothing: the caller
writes each change to the store and then calls `apply`, so a store that fails in between makes the next look decide
again.

All times are watched time, the manager's own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dw_platform.fabric.changes import Member, StateChange, judged, settled, taken_in
from dw_platform.fabric.detector import Accusation, heard_in_mesh, judge
from dw_platform.fabric.limits import FabricLimits, Pace, TopologyKind
from dw_platform.fabric.membership import Claim, NodeRecord, NodeState, Verdict
from dw_platform.fabric.records import Report, ReportKind
from dw_platform.fabric.topology import Group, watchers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What changed in the store since the look before."""

    records: Mapping[str, NodeRecord | None] = field(default_factory=dict)
    """Nodes that wrote about themselves, or None for a record that is gone."""

    beats: Collection[str] = frozenset()
    """Nodes whose heartbeat through the store has moved."""

    reports: Collection[Report] = ()


class Roster:
    """The nodes of a fabric; not shared between threads."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._watchers: Mapping[str, tuple[str, ...]] = {}
        self._watched_since: dict[tuple[str, str], float] = {}
        self._accusations: dict[str, Mapping[str, Accusation]] = {}

    def restore(self, records: Iterable[NodeRecord], verdicts: Iterable[Verdict], now: float) -> None:
        """Start from what a predecessor left; everybody counts as heard now."""
        known = {verdict.name: verdict.claim for verdict in verdicts}
        for record in records:
            self.members[record.name] = Member(record, known.get(record.name), heard=now, since=now, vouched=now)

    def observe(self, seen: Observation, now: float, kind: TopologyKind, pace: Pace) -> None:
        """Take in what a look has seen."""
        for name, record in seen.records.items():
            self._observe_record(name, record, now)
        for name in seen.beats:
            if (member := self.members.get(name)) is not None:
                member.heard = member.beat_at = now
        for report in seen.reports:
            self._observe_report(report, now, kind)
        for name, watchers in self._watchers.items():
            self._ask_watchers(name, watchers, now, pace)

    def arrange(self, groups: Collection[Group], now: float) -> None:
        """Take in who watches whom from now on."""
        mesh = next((group.members for group in groups if group.kind is TopologyKind.MESH), ())
        self._watchers = watchers_of(mesh)
        pairs = [(name, watcher) for name, watchers in self._watchers.items() for watcher in watchers]
        self._watched_since = {pair: self._watched_since.get(pair, now) for pair in pairs}

    def pardon(self, now: float) -> None:
        """Count everybody as heard now: another topology hears in another way, and its first word takes a while."""
        for member in self.members.values():
            member.heard = member.vouched = now
        self._accusations.clear()

    def silence_s(self, member: Member, now: float, pace: Pace) -> float:
        """Return how long nothing was known of `member`."""
        heard = member.heard
        # Witnesses may die together with whom they watch; the rare heartbeat bounds for how long they are believed.
        if self._watchers.get(member.record.name) and now - heard < pace.rare_beat_s * pace.missed:
            heard = max(heard, member.vouched)
        return now - heard

    def due(self, now: float, limits: FabricLimits, pace: Pace, *, most: int, late: bool) -> Iterator[StateChange]:
        """Yield the changes that are due; at most `most` nodes are taken in, and a late look removes nobody."""
        living = sum(member.living for member in self.members.values())
        for name in sorted(self.members):
            member = self.members[name]
            if member.is_news:
                refused = None if member.living or living < most else f"the topology carries {most:,} nodes"
                change = taken_in(member, now, limits, refused=refused)
                living += (change.after is NodeState.ALIVE) - member.living
                yield change
            elif member.flaps.has_settled(now, limits):
                yield settled(member)
            elif not member.state.gone:
                silence_s = self.silence_s(member, now, pace)
                after = judge(member.state, silence_s, pace, late=late)
                if after is not member.state:
                    yield judged(member, after, silence_s, now, limits)

    def apply(self, change: StateChange, now: float) -> None:
        """Take in a change that was written."""
        member = self.members[change.record.name]
        member.known, member.since = Claim(change.record.incarnation, change.after), now
        member.flaps = change.flaps

    def forgettable(self, now: float, limits: FabricLimits) -> list[NodeRecord]:
        """Return the nodes that have been gone for long enough."""
        oldest = now - limits.forget_after.total_seconds()
        return [
            member.record
            for member in self.members.values()
            if member.state.gone and not member.is_news and member.since <= oldest
        ]

    def forget(self, name: str) -> None:
        """Drop a node whose keys are gone."""
        self.members.pop(name, None)
        self._accusations.pop(name, None)

    def living(self) -> list[Member]:
        """Return the nodes that were taken in and are not gone."""
        return [member for member in self.members.values() if member.living]

    def _observe_record(self, name: str, record: NodeRecord | None, now: float) -> None:
        member = self.members.get(name)
        if record is None:
            if member is not None and member.state.gone:
                self.forget(name)
        elif member is None:
            self.members[name] = Member(record, None, heard=now, since=now, vouched=now)
        elif record.incarnation > member.record.incarnation:
            member.record, member.heard, member.vouched = record, now, now

    def _observe_report(self, report: Report, now: float, kind: TopologyKind) -> None:
        reporter = self.members.get(report.reporter)
        if reporter is None:
            return
        reporter.heard = now
        if report.kind is ReportKind.SUMMARY:
            for name, age in report.ages.items():
                if age is not None and (member := self.members.get(name)) is not None:
                    member.heard = max(member.heard, now - age)
        elif kind is TopologyKind.MESH:
            self._accusations[report.reporter] = {
                name: Accusation(None if age is None else now - age) for name, age in report.ages.items()
            }

    def _ask_watchers(self, name: str, watchers: Collection[str], now: float, pace: Pace) -> None:
        member = self.members.get(name)
        if member is None or not member.living:
            return
        # A new watcher counts once it has had time to learn of its part, to ask, and to tell that nobody answered.
        settled_s = 2 * pace.heartbeat_s + 2 * pace.look_every_s
        witnesses = [
            watcher
            for watcher in watchers
            if now - self._watched_since[name, watcher] >= settled_s
            and (witness := self.members.get(watcher)) is not None
            and witness.known is not None
            and witness.state is NodeState.ALIVE
        ]
        said = {watcher: self._accusations.get(watcher, {}).get(name) for watcher in witnesses}
        member.vouched = heard_in_mesh(
            vouched=member.vouched,
            now=now,
            watchers=witnesses,
            accusations={watcher: accusation for watcher, accusation in said.items() if accusation},
        )
