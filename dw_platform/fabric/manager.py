"""The manager of the fabric: decides who lives and who reports to whom. One acts, the others stand by.

Any process may run one, best beside its node: the gateway and the Dagster daemon do. The one that acts looks five
times a heartbeat; when it dies or is paused, another takes over after a heartbeat (2 s at least) and counts everybody
as heard then. Every look begins with a write of its own, so a store that takes no writes is an outage for the manager
as well: the time counts against nobody.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from dw_platform.fabric.acting import Acting
from dw_platform.fabric.events import FabricEvent, Journal, JournalPage
from dw_platform.fabric.leadership import Leadership
from dw_platform.fabric.limits import FabricLimits, TopologyKind
from dw_platform.fabric.membership import NodeState
from dw_platform.fabric.rounds import Rounds
from dw_platform.fabric.view import NodeView, TopologyView, read_nodes, read_topology_view
from dw_platform.fabric.wish import ask_for_switch
from dw_platform.foundation import Clock, EventHub, PlatformError, SystemClock
from dw_platform.scaling import GaugeReading, PressureChanged, PressureGauge
from dw_platform.store import PersistentStore

log = logging.getLogger(__name__)

# Shorter, and a slow disk would elect another manager all the time.
_LEAST_PATIENCE_S = 2.0


class FabricScalingManager:
    """A ScalableSubsystem named `fabric`; `manager` is this process' name among managers. Any thread may use it."""

    name = "fabric"

    def __init__(
        self, store: PersistentStore, *, manager: str, limits: FabricLimits | None = None, clock: Clock | None = None
    ) -> None:
        self._store, self._manager, self._clock = store, manager, clock or SystemClock()
        self._limits = limits or FabricLimits()
        self._leadership = Leadership(store, manager, now=self._clock.monotonic())
        self._gauge = PressureGauge(self.name, self._limits.thresholds, clock=self._clock)
        self._events, self._ended = EventHub[FabricEvent](), EventHub[FabricEvent]()
        self._counts: dict[str, int] = {}
        self._numbers: Mapping[str, float] = {}
        self._acting: Acting | None = None
        self._term = 0
        # Reentrant, so that a listener may look or close.
        self._lock = threading.RLock()
        self._rounds = Rounds("fabric-manager", self.look, self._retry_s, clock=self._clock)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Stand by, or act, on a thread of its own; starting twice is harmless."""
        self._rounds.start()

    def close(self) -> None:
        """Stop, and let another manager act at once."""
        self._rounds.stop()
        with self._lock:
            self._stand_by()
            try:
                self._leadership.release()
            except PlatformError as error:
                log.warning("term not ended, another manager waits for its end", extra={"reason": str(error)})

    def look(self) -> float:
        """Look once, if this manager acts, and return the seconds until the next look; `start` goes on and on."""
        with self._lock:
            limits = self._limits
            patience_s, pace = max(limits.pace.heartbeat_s, _LEAST_PATIENCE_S), limits.pace
            acts = self._leadership.renew(
                self._clock.monotonic(), self._clock.now(), patience_s=patience_s, look_every_s=pace.look_every_s
            )
            if not acts:
                self._stand_by()
                return pace.look_every_s
            if self._acting is None or self._term != self._leadership.term:
                self._acting, self._term = self._begin(limits), self._leadership.term
            acting = self._acting
            pause_s = acting.look(
                limits, may_act=lambda: self._leadership.holds(self._clock.monotonic(), patience_s=patience_s)
            )
            self._note(acting, limits)
            return pause_s

    @property
    def acts(self) -> bool:
        """Whether this manager decided at its last look."""
        return self._acting is not None

    def switch(self, kind: TopologyKind, *, by: str, reason: str) -> None:
        """Ask for another topology; the acting manager switches at its next look, whichever process it is in.

        It holds until the nodes outgrow it or somebody switches again. Raises TopologyFixedError or NoRoomError.
        """
        ask_for_switch(self._store, kind, by=by, reason=reason, limits=self._limits, clock=self._clock)
        self._rounds.hurry()

    def nodes(self) -> tuple[NodeView, ...]:
        """Return all nodes as the store knows them."""
        return read_nodes(self._store)

    def topology_view(self) -> TopologyView:
        """Return the topology as a tree that can be drawn."""
        return read_topology_view(self._store, self._limits)

    def events(self, after: str | None = None) -> JournalPage:
        """Return what was told beyond the position `after`, by any manager; its `rows()` are those of `ops.nodes`."""
        return Journal(self._store).read(after)

    def on_event(self, listener: Callable[[FabricEvent], None]) -> Callable[[], None]:
        """Call `listener` with every event that this manager tells while it acts; return a function that ends this."""
        return self._events.subscribe(listener)

    def on_ended(self, listener: Callable[[FabricEvent], None]) -> Callable[[], None]:
        """Call `listener` whenever a life has ended, also where damping tells nothing: `node` and `ended` name it.

        At least once for each, by the manager that acts, on its thread, so it must be quick.
        """
        return self._ended.subscribe(listener)

    def current_limits(self) -> FabricLimits:
        """Return the limits that it works with now."""
        return self._limits

    def reconfigure_limits(self, limits: FabricLimits) -> None:
        """Work with `limits` from the next look on, which is now; nodes take a new pace at their next heartbeat."""
        self._gauge.reconfigure(limits.thresholds)
        self._limits = limits
        self._rounds.hurry()

    def scaling_metrics(self) -> Mapping[str, float]:
        """Return the numbers of nodes by state if this manager acts, and what it has told by event."""
        return {"acts": float(self.acts), **self._numbers, **{f"events_{each}": n for each, n in self._counts.items()}}

    def backpressure_state(self) -> GaugeReading:
        """Return how full the topology is."""
        return self._gauge.reading()

    def on_pressure_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        """Call `listener` at each change of level; return a function that ends this."""
        return self._gauge.on_change(listener)

    def _begin(self, limits: FabricLimits) -> Acting:
        log.info("acts as the fabric's manager", extra={"manager": self._manager})
        return Acting(self._store, self._manager, limits, told=self._tell, ended=self._ended.publish, clock=self._clock)

    def _stand_by(self) -> None:
        if self._acting is not None:
            log.info("acts no more", extra={"manager": self._manager})
        self._acting, self._numbers = None, {}

    def _note(self, acting: Acting, limits: FabricLimits) -> None:
        """Keep the numbers, so that nobody who asks for them has to wait for a store that is away."""
        states = [member.state for member in acting.roster.members.values() if member.known is not None]
        kind = TopologyKind.STAR if acting.topology is None else acting.topology.kind
        self._numbers = {
            "limit": limits.most(kind),
            "cells": 0 if acting.topology is None else acting.topology.cells,
            **{f"nodes_{state.label}": states.count(state) for state in NodeState},
        }
        self._gauge.observe(sum(not state.gone for state in states) / limits.most(kind))

    def _tell(self, event: FabricEvent) -> None:
        self._counts[event.event] = self._counts.get(event.event, 0) + 1
        self._events.publish(event)

    def _retry_s(self) -> float:
        return self._limits.pace.look_every_s
