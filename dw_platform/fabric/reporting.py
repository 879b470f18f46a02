"""What a hub or a watcher writes about the nodes that report to it."""

import math

from dw_platform.fabric.limits import TopologyKind
from dw_platform.fabric.part import Part
from dw_platform.fabric.records import Report, ReportKind, report_key
from dw_platform.fabric.voice import Voice
from dw_platform.foundation import Clock
from dw_platform.store import PersistentStore

# Twice a heartbeat: what a hub has heard and not told when it dies is then made up for before anybody is suspected.
SUMMARY_SHARE = 0.5


class Reporting:
    """The report of one node; used by its scribe only."""

    def __init__(self, store: PersistentStore, name: str, *, clock: Clock) -> None:
        self._store, self._name, self._clock = store, name, clock
        self._summary_at = -math.inf
        self._accused: frozenset[str] = frozenset()
        self._written = False

    def write(self, part: Part, voice: Voice, now: float) -> float:
        """Write what is due and return when to come again."""
        if part.role.writes_summary:
            return self._summarise(part, voice, now)
        self._summary_at = -math.inf  # the next time that this node becomes a hub, it says so at once
        if part.kind is TopologyKind.MESH and part.role.wards:
            return self._accuse(part, voice, now)
        if self._written:
            self._store.delete(report_key(self._name))
            self._written, self._accused = False, frozenset()
        return math.inf

    def _summarise(self, part: Part, voice: Voice, now: float) -> float:
        pause_s = part.pace.heartbeat_s * SUMMARY_SHARE
        if now >= self._summary_at + pause_s:
            self._put(ReportKind.SUMMARY, dict(voice.ask(lambda peers, at: peers.ages(at))))
            self._summary_at = now
        return self._summary_at + pause_s

    def _accuse(self, part: Part, voice: Voice, now: float) -> float:
        silent = voice.ask(lambda peers, at: peers.silent(at))
        if silent.keys() != self._accused:
            self._put(ReportKind.SILENCE, silent)
            self._accused = frozenset(silent)
        return now + part.pace.look_every_s

    def _put(self, kind: ReportKind, ages: dict[str, float | None]) -> None:
        report = Report(reporter=self._name, kind=kind, ages=ages, at=self._clock.now())
        self._store.put(report_key(self._name), report.encode())
        self._written = True
