"""The work of the manager that acts: one look, from what the store shows to what is written and told.

Writes go in this order: the journal, the state of each node, groups, the topology. If one fails the look ends there
and the next one decides the rest anew. What is decided is decided elsewhere, in pure functions; this file carries it
to the store.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from dw_platform.fabric.arrangement import Arrangement
from dw_platform.fabric.changes import StateChange
from dw_platform.fabric.damping import Telling
from dw_platform.fabric.detector import WatchedTime, next_look_s
from dw_platform.fabric.events import EventKind, FabricEvent, Journal
from dw_platform.fabric.limits import FabricLimits, Pace, SwitchMode, TopologyChoice, TopologyKind
from dw_platform.fabric.membership import Verdict
from dw_platform.fabric.records import (
    TOPOLOGY,
    WISH,
    beat_key,
    encode_verdict,
    node_key,
    readable,
    report_key,
    state_key,
)
from dw_platform.fabric.roster import Roster
from dw_platform.fabric.sight import Sight
from dw_platform.fabric.switching import Due, advance_due, decide_topology, is_ripe
from dw_platform.fabric.topology import cells_for
from dw_platform.fabric.topology_records import TopologyRecord
from dw_platform.fabric.wish import Wish, check_switch
from dw_platform.foundation import Clock, UserError
from dw_platform.store import Entry, PersistentStore, StaleVersionError

log = logging.getLogger(__name__)

# A look that writes more would hold up the next, and with it the renewal of this manager's term.
_MOST_CHANGES = 200
_MOST_FORGOTTEN = 50


class Acting:
    """One term of an acting manager; it starts from what the store holds, and counts everybody as heard then."""

    def __init__(
        self,
        store: PersistentStore,
        name: str,
        limits: FabricLimits,
        *,
        told: Callable[[FabricEvent], None],
        ended: Callable[[FabricEvent], None],
        clock: Clock,
    ) -> None:
        self._store, self._name, self._clock, self._told, self._ended = store, name, clock, told, ended
        self._journal, self._sight, self.roster = Journal(store), Sight(store), Roster()
        self._watch = WatchedTime(clock.monotonic())
        self._due: Due | None = None
        self._slower: tuple[Pace, float] | None = None
        self.topology = readable(store.get(TOPOLOGY), TopologyRecord.decode)
        kind = TopologyKind.STAR if self.topology is None else self.topology.kind
        self._arrangement = Arrangement(store, kind)
        self.roster.restore(self._sight.records(), self._sight.verdicts(), self._watch.seconds)
        # What a predecessor arranged is settled; its watchers have long known their part.
        self.roster.arrange(self._arrangement.groups, -float("inf"))
        self._limits = limits

    def look(self, limits: FabricLimits, *, may_act: Callable[[], bool]) -> float:
        """Look once and do what is due; return the seconds until the next look. Ends early when `may_act` says no."""
        self._limits = limits
        started = self._clock.monotonic()
        topology = self.topology or self._first_topology()
        watch, late = self._watch.look(started, longest_gap_s=topology.pace.heartbeat_s)
        seen = self._sight.look()
        # Judged by the time before reading and heard by the time after it, both in favour of the nodes.
        self._watch, now = watch, watch.seconds
        heard_at = now + self._clock.monotonic() - started
        pace = self._patience(topology.pace, now)
        self.roster.observe(seen, heard_at, topology.kind, pace)
        if late:
            log.warning("the fabric's manager was late, so it removes nobody", extra={"manager": self._name})
        more = self._judge(now, pace, limits.most(topology.kind), late=late, may_act=may_act)
        if may_act():
            self._arrange(topology, now)
            self._forget(now)
        if more:
            return 0.0
        return next_look_s((self.roster.silence_s(each, now, pace) for each in self.roster.living()), pace)

    def _judge(self, now: float, pace: Pace, most: int, *, late: bool, may_act: Callable[[], bool]) -> bool:
        """Write and tell the changes that are due; return whether some are left for the next look."""
        due = list(self.roster.due(now, self._limits, pace, most=most, late=late))
        # A crowd that joins must not keep a dead node's work waiting.
        due.sort(key=lambda change: change.ended is None)
        changes = due[:_MOST_CHANGES]
        if not changes or not may_act():
            return False
        events = [self._event(change) for change in changes]
        told = [change.telling is not Telling.HOLD for change in changes]
        self._journal.append([event for event, is_told in zip(events, told, strict=True) if is_told])
        for change, event, is_told in zip(changes, events, told, strict=True):
            if not may_act():
                return False
            # Before the state is written: after that, no successor would say again whose work is to be taken over.
            if event.ended is not None:
                self._ended(event)
            self._write(change)
            self.roster.apply(change, now)
            if is_told:
                log.info("node %s", event.event, extra=event.row())
                self._told(event)
        return len(due) > len(changes)

    def _write(self, change: StateChange) -> None:
        verdict = Verdict(
            name=change.record.name,
            incarnation=change.record.incarnation,
            state=change.after,
            reason=change.reason,
            at=self._clock.now(),
        )
        self._store.put(state_key(verdict.name), encode_verdict(verdict))

    def _arrange(self, current: TopologyRecord, now: float) -> None:
        """Switch, make cells and groups as the nodes need them, and write what nodes follow."""
        living = self.roster.living()
        entry = self._store.get(WISH)
        wanted = self._wanted(current, len(living), self._wish(entry, len(living)), now)
        federated = wanted.kind is TopologyKind.FEDERATED
        cells = cells_for(len(living), wanted.cells, self._limits.cell_size) if federated else 0
        wanted = replace(wanted, cells=cells, pace=self._limits.pace)
        switched = wanted.kind is not current.kind
        if switched or (wanted.advice and wanted.advice != current.advice):
            self._announce(current, wanted, switched=switched)
        changed = self._arrangement.plan(wanted, living, now)
        if wanted != self.topology:
            self._store.put(TOPOLOGY, wanted.encode())
            self._keep_patience(current.pace, wanted.pace, now)
            self.topology = wanted
        if changed:
            self._arrangement.drop_unused()
            self.roster.arrange(self._arrangement.groups, now)
        if switched:
            self._due = None
            self.roster.pardon(now)
        if entry is not None:
            with contextlib.suppress(StaleVersionError):  # another wish came in, which is for the next look
                self._store.delete(WISH, expected=entry.version)

    def _wanted(self, current: TopologyRecord, nodes: int, wish: Wish | None, now: float) -> TopologyRecord:
        """Return the topology that an operator or the number of nodes asks for."""
        fixed = self._limits.topology is not TopologyChoice.AUTO
        if fixed:
            current = replace(current, by_hand=False)
        if wish is not None:
            self._due = None
            return self._switched(current, wish.kind, by=wish.by, reason=wish.reason, by_hand=True)
        decision = decide_topology(current.kind, nodes, self._limits, by_hand=current.by_hand)
        self._due = advance_due(self._due, decision, current.kind, now=now)
        if self._due is None:
            return replace(current, advice="")
        if not is_ripe(self._due, self._limits, now=now):
            return current
        if self._limits.mode is SwitchMode.RECOMMEND and not fixed:
            # Without the number of nodes, which would make each look's advice a new one.
            return replace(current, advice=f"switch to {decision.kind}")
        return self._switched(current, decision.kind, by=self._name, reason=decision.reason, by_hand=False)

    def _wish(self, entry: Entry | None, nodes: int) -> Wish | None:
        """Return the operator's wish, if there is one and the limits allow it."""
        wish = readable(entry, Wish.decode)
        try:
            if wish is not None:
                check_switch(wish.kind, nodes, self._limits)
        except UserError as error:
            log.warning("switch refused", extra={"reason": str(error)})
            return None
        return wish

    def _switched(
        self, current: TopologyRecord, kind: TopologyKind, *, by: str, reason: str, by_hand: bool
    ) -> TopologyRecord:
        return replace(current, kind=kind, by=by, reason=reason, by_hand=by_hand, advice="", at=self._clock.now())

    def _announce(self, current: TopologyRecord, wanted: TopologyRecord, *, switched: bool) -> None:
        event = FabricEvent(
            event=EventKind.SWITCHED if switched else EventKind.RECOMMENDED,
            at=self._clock.now(),
            before=current.kind,
            after=wanted.kind if switched else wanted.advice,
            reason=wanted.reason if switched else "more or fewer nodes than the topology is made for",
            by=wanted.by if switched else self._name,
        )
        self._journal.append([event])
        log.info("topology %s", event.event, extra=event.row())
        self._told(event)

    def _forget(self, now: float) -> None:
        for record in self.roster.forgettable(now, self._limits)[:_MOST_FORGOTTEN]:
            try:
                self._store.delete(node_key(record.name), expected=record.incarnation)
            except StaleVersionError:
                continue  # it has just come back
            for key in (beat_key(record.name), report_key(record.name), state_key(record.name)):
                self._store.delete(key)
            self.roster.forget(record.name)

    def _patience(self, pace: Pace, now: float) -> Pace:
        """Return the pace to judge by: nodes learn of a faster one only at their next slow heartbeat."""
        if self._slower is not None and now >= self._slower[1]:
            self._slower = None
        return pace if self._slower is None else self._slower[0]

    def _keep_patience(self, before: Pace, after: Pace, now: float) -> None:
        before = self._patience(before, now)
        if before.remove_after_s > after.remove_after_s:
            self._slower = (before, now + before.remove_after_s)

    def _first_topology(self) -> TopologyRecord:
        """Return what a fabric starts with; `_arrange` puts it in force."""
        return TopologyRecord(
            kind=TopologyKind.STAR,
            cells=0,
            by_hand=False,
            by=self._name,
            reason="a fabric starts as a star",
            pace=self._limits.pace,
            at=self._clock.now(),
        )

    def _event(self, change: StateChange) -> FabricEvent:
        return FabricEvent(
            event=change.event,
            at=self._clock.now(),
            before=None if change.before is None else change.before.label,
            after=change.after.label,
            reason=change.reason,
            by=self._name,
            node=change.record.name,
            kind=change.record.kind,
            host=change.record.host,
            pid=change.record.pid,
            incarnation=change.record.incarnation,
            ended=change.ended,
        )
