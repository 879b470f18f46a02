"""One process in the fabric: it joins by itself, says that it lives, looks after others if asked to, and leaves.

Two threads. The *voice* talks to other nodes by UDP. The *scribe* (this file) talks to the control store: once a
heartbeat it looks what its part is, and it writes what the part asks for:

    star, or not in a group yet    a heartbeat, every time
    hub of a cell                  a summary of its cell, every time
    member of a cell               nothing; a heartbeat when its hub did not answer
    mesh                           every fourth heartbeat, and whom it has not heard; a heartbeat when nobody answered

A store that is away stops nothing: the voice goes on, the scribe tries again, and nobody is removed for it, because
the manager cannot look either.
"""

import logging
import math
import os
import secrets
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dw_platform.fabric.beating import BeatPlan
from dw_platform.fabric.keyring import DatagramKey
from dw_platform.fabric.limits import FabricLimits, TopologyKind
from dw_platform.fabric.membership import Address, NodeKind, NodeRecord, NodeState
from dw_platform.fabric.part import PartReader
from dw_platform.fabric.peers import Peers
from dw_platform.fabric.records import KEY, Beat, beat_key
from dw_platform.fabric.registration import Registration, Standing
from dw_platform.fabric.reporting import Reporting
from dw_platform.fabric.rounds import Rounds
from dw_platform.fabric.voice import Voice
from dw_platform.foundation import Clock, InvalidValueError, PlatformError, SystemClock, fnv1a_64
from dw_platform.store import PersistentStore

log = logging.getLogger(__name__)

LOOPBACK: Address = ("127.0.0.1", 0)
_WILDCARDS = {"", "0.0.0.0", "::"}  # noqa: S104 - named to be refused
# A node that is not let in asks again after 1, 2, 4 ... up to so many heartbeats.
_LONGEST_PAUSE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """What a node knows about itself."""

    name: str
    incarnation: int
    """The life that it is in; 0 outside of one."""

    topology: TopologyKind
    reports_to: tuple[str, ...]
    """Nodes that hear its heartbeats; empty: the store."""

    wards: int
    fallback: str | None
    """Why its heartbeats go to the store although others should hear them."""

    outage: str | None
    """Why the store was not reached the last time."""

    superseded: bool
    """Whether another process has taken the name, so that this one is silent for good."""


class FabricNode:
    """This process as a node; one each. Any thread may use it."""

    def __init__(
        self,
        store: PersistentStore,
        *,
        kind: NodeKind,
        name: str | None = None,
        limits: FabricLimits | None = None,
        listen: Address = LOOPBACK,
        clock: Clock | None = None,
    ) -> None:
        """`limits` give the pace until the manager's are known; others must be able to send to `listen`."""
        if listen[0] in _WILDCARDS:
            raise InvalidValueError("listen", listen[0], "an address that other nodes can send to")
        self._store, self._clock, self._listen = store, clock or SystemClock(), listen
        host, pid = socket.gethostname(), os.getpid()
        record = NodeRecord(
            name=name or f"{kind}@{host}/{pid}",
            kind=kind,
            host=host,
            pid=pid,
            address=None,
            life=secrets.token_hex(8),
            joined_at=self._clock.now(),
        )
        self.name = record.name
        pace = (limits or FabricLimits()).pace
        self._registration = Registration(store, record, clock=self._clock)
        self._key, self._reader = DatagramKey(store), PartReader(store, self.name, pace)
        self._beats = BeatPlan(self._reader.part)
        self._reporting = Reporting(store, self.name, clock=self._clock)
        self._peers = Peers(self.name, pace, now=self._clock.monotonic())
        self._rounds = Rounds("fabric-scribe", self._round, self._retry_s, clock=self._clock)
        self._voice: Voice | None = None
        self._joined = threading.Event()
        self._looked_at = self._rejoin_at = -math.inf
        self._rejoins = 0
        self._fallback: str | None = None
        self._superseded = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    def start(self) -> None:
        """Join, as soon as the store answers; returns at once. A node that has left cannot start again."""
        self._rounds.start()

    def wait_joined(self, timeout_s: float) -> bool:
        """Return whether it has joined within `timeout_s`."""
        return self._joined.wait(timeout_s)

    def leave(self) -> None:
        """Say goodbye and stop; without the store it is removed for its silence. Leaving twice is harmless."""
        self._rounds.stop()
        if self._voice is not None:
            self._voice.close()
        try:
            self._registration.leave()
        except PlatformError as error:
            log.warning("left without a goodbye", extra={"node": self.name, "reason": str(error)})

    def status(self) -> NodeStatus:
        """Return what the node knows about itself."""
        part = self._reader.part
        return NodeStatus(
            name=self.name,
            incarnation=0 if self._superseded else self._registration.incarnation,
            topology=part.kind,
            reports_to=tuple(seat.name for seat in part.role.reports_to),
            wards=len(part.role.wards),
            fallback=self._fallback,
            outage=self._rounds.outage,
            superseded=self._superseded,
        )

    def _round(self) -> float:
        now = self._clock.monotonic()
        voice = self._voice = self._voice or self._open_voice()
        if not self._joined.is_set():
            self._join(voice, now)
        if now >= self._look_at():
            self._look(voice, now)
        if self._superseded:
            voice.close()
            self._rounds.stop()
            return 0.0
        self._beats.not_heard(self._peers.unheard)
        self._note_fallback(voice)
        if now >= self._beats.next_at():
            self._write_beat(now)
        report_at = self._reporting.write(self._reader.part, voice, now)
        next_at = min(self._look_at(), self._beats.next_at(), report_at)
        return max(next_at - self._clock.monotonic(), 0.0)

    def _retry_s(self) -> float:
        return self._reader.part.pace.look_every_s

    def _look_at(self) -> float:
        pace = self._reader.part.pace
        return self._looked_at + (pace.look_every_s if self._peers.look_wanted else pace.heartbeat_s)

    def _open_voice(self) -> Voice:
        return Voice(self._peers, self._listen, self._key.read(), on_news=self._rounds.hurry, clock=self._clock)

    def _join(self, voice: Voice, now: float) -> None:
        self._registration.join(voice.address)
        self._beats.begin(now, spread=fnv1a_64(self.name.encode()) / 2**64)
        self._looked_at = -math.inf
        log.info("joined the fabric", extra={"node": self.name, "incarnation": self._registration.incarnation})
        self._joined.set()

    def _look(self, voice: Voice, now: float) -> None:
        """Read what the store says about this node, and follow it."""
        node, state = self._registration.keys
        versions = self._store.versions_of([node, state, KEY, *self._reader.keys])
        voice.change(lambda peers, _: peers.looked())
        if versions.get(KEY) != self._key.version:
            voice.use(self._key.read())
        match self._registration.standing(versions.get(node)):
            case Standing.TAKEN:
                self._supersede()
                return
            case Standing.GONE:
                self._rejoin(voice, now, "its record is gone")
        match self._registration.state(versions.get(state)):
            case NodeState.SUSPECT:
                self._beats.hurry()
            case NodeState.REMOVED:
                self._rejoin(voice, now, "it was removed")
            case NodeState.ALIVE:
                self._rejoins = 0
        part = self._reader.read(versions)
        self._beats.take(part)
        incarnation = self._registration.incarnation
        voice.change(lambda peers, at: peers.take(part, incarnation=incarnation, now=at))
        self._looked_at = now

    def _rejoin(self, voice: Voice, now: float, reason: str) -> None:
        if now < self._rejoin_at:
            return
        self._rejoin_at = now + self._reader.part.pace.heartbeat_s * min(2**self._rejoins, _LONGEST_PAUSE)
        self._rejoins += 1
        log.warning("joins the fabric again", extra={"node": self.name, "reason": reason})
        self._join(voice, now)
        self._looked_at = now

    def _supersede(self) -> None:
        self._superseded = True
        log.error(
            "another process has taken this node's name, so this one is silent from now on; give each its own name",
            extra={"node": self.name, "incarnation": self._registration.incarnation},
        )

    def _write_beat(self, now: float) -> None:
        incarnation, because = self._registration.incarnation, self._fallback or ""
        beat = Beat(incarnation=incarnation, because=because, at=self._clock.now())
        self._store.put(beat_key(self.name), beat.encode())
        self._beats.written(now)

    def _note_fallback(self, voice: Voice) -> None:
        """Say so when heartbeats begin or cease to go to the store although others should hear them."""
        part, because = self._reader.part, None
        if voice.address is None and part.kind is not TopologyKind.STAR:
            because = f"it cannot listen at {self._listen[0]}:{self._listen[1]}"
        elif part.role.reports_to and self._peers.unanswered:
            because = f"no answer by UDP from {', '.join(seat.name for seat in part.role.reports_to)}"
        if because and not self._fallback:
            log.warning("heartbeats go to the store", extra={"node": self.name, "reason": because})
        elif self._fallback and not because:
            log.info("heartbeats are heard by other nodes again", extra={"node": self.name})
        self._fallback = because
