"""When a node writes a heartbeat to the store, by its part and by whether others hear it.

Pure: `BeatPlan` is told what happened and asked what is due; the scribe writes.
"""

import math

from dw_platform.fabric.limits import TopologyKind
from dw_platform.fabric.part import Part

# Until new watchers or a new hub have learned of their part, the manager needs another sign of life.
_INTRODUCTIONS = {TopologyKind.STAR: 0, TopologyKind.MESH: 3, TopologyKind.FEDERATED: 1}


class BeatPlan:
    """The heartbeats of one node through the store."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._last = -math.inf
        self._introductions = self._unheard = 0
        self._now = False

    def begin(self, now: float, *, spread: float) -> None:
        """Start a life, whose record was a sign of life itself; `spread` (0 to 1) moves all that follow.

        Otherwise a platform that starts all at once would write all at once ever after.
        """
        self._last = now - (1 - spread) / 2 * self._part.pace.heartbeat_s

    def take(self, part: Part) -> None:
        """Follow `part` from now on."""
        before = {seat.name for seat in self._part.role.reports_to}
        after = {seat.name for seat in part.role.reports_to}
        if after and not before & after:
            self._introductions, self._now = _INTRODUCTIONS[part.kind], True
        self._part = part

    def hurry(self) -> None:
        """Write one as soon as possible: somebody doubts that this node lives."""
        self._now = True

    def not_heard(self, unheard: int) -> None:
        """Write one for a heartbeat that nobody answered; `unheard` counts those since the start."""
        self._now = self._now or (unheard > self._unheard and bool(self._part.role.reports_to))
        self._unheard = unheard

    def next_at(self) -> float:
        """Return when the next one is due."""
        return -math.inf if self._now else self._last + self._pause_s()

    def written(self, now: float) -> None:
        """Note that one was written."""
        self._last, self._now = now, False
        self._introductions = max(self._introductions - 1, 0)

    def _pause_s(self) -> float:
        part = self._part
        if part.role.writes_summary:
            return math.inf
        if not part.role.reports_to or self._introductions:
            return part.pace.heartbeat_s
        return part.pace.rare_beat_s if part.kind is TopologyKind.MESH else math.inf
