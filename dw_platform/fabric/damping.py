"""What is told about a node that comes and goes all the time.

Rule: of one node at most `flap_changes` events are told within `flap_window`. The one beyond is told as `flapping`,
after that nothing but removals, until a whole window has passed without a change; then `settled` tells where it
stands. A removal is always told, because others take over what the node worked on; 45 s of silence keep those rare.
"""

from dataclasses import dataclass
from enum import Enum, auto

from dw_platform.fabric.limits import FabricLimits


class Telling(Enum):
    """What to do with an event."""

    TELL = auto()
    FLAPPING = auto()
    HOLD = auto()


@dataclass(frozen=True, slots=True)
class Flaps:
    """The recent changes of one node, in watched time."""

    changes: tuple[float, ...] = ()
    damped: bool = False

    def noted(self, now: float, limits: FabricLimits) -> "tuple[Flaps, Telling]":
        """Return the flaps after a change at `now`, and whether it is told."""
        # One more than is told is enough to know that there were too many.
        recent = (*self._since(now, limits), now)[-limits.flap_changes - 1 :]
        if self.damped:
            return Flaps(recent, damped=True), Telling.HOLD
        if len(recent) > limits.flap_changes:
            return Flaps(recent, damped=True), Telling.FLAPPING
        return Flaps(recent), Telling.TELL

    def has_settled(self, now: float, limits: FabricLimits) -> bool:
        """Return whether a flapping node has been calm for a whole window."""
        return self.damped and not self._since(now, limits)

    def _since(self, now: float, limits: FabricLimits) -> tuple[float, ...]:
        oldest = now - limits.flap_window.total_seconds()
        return tuple(at for at in self.changes if at > oldest)
