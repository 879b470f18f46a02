"""When a silent node is suspected and when it is removed.

Silence is measured in *watched time*: seconds of one's own monotonic clock in which one has really looked. Whoever
was paused, starved or cut off from the store did not look, so that time counts against nobody, and the look that ends
such a gap makes no state worse. That is the local health of Lifeguard: a late manager removes nobody.

Bounds, for a manager that looks on time: a node is never removed before `remove_after_s` of silence, and at the
latest one tick after; it is Suspect for at least one look before.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dw_platform.fabric.limits import Pace
from dw_platform.fabric.membership import NodeState

# Rounding may leave less than any clock can tell, and then the wait would never end.
_SHORTEST_WAIT_S = 0.001


@dataclass(frozen=True, slots=True)
class WatchedTime:
    """How long somebody has watched, and when they last looked."""

    looked_at: float
    seconds: float = 0.0

    def look(self, now: float, *, longest_gap_s: float) -> "tuple[WatchedTime, bool]":
        """Return the time after a look at `now`, and whether this look came late: its gap then counts for nothing."""
        gap_s = max(now - self.looked_at, 0.0)  # two threads may bring their times in another order
        late = gap_s > longest_gap_s
        return WatchedTime(max(now, self.looked_at), self.seconds if late else self.seconds + gap_s), late


def judge(state: NodeState, silence_s: float, pace: Pace, *, late: bool) -> NodeState:
    """Return the state of a living node after a look that found it silent for `silence_s`."""
    if silence_s < pace.suspect_after_s:
        return NodeState.ALIVE
    if late or state.gone:
        return state
    if silence_s >= pace.remove_after_s and state is NodeState.SUSPECT:
        return NodeState.REMOVED
    return NodeState.SUSPECT


def next_look_s(silences: Iterable[float], pace: Pace) -> float:
    """Return the seconds until the next look: a tick, or less if somebody's silence becomes too long before."""
    soonest = pace.look_every_s
    for silence_s in silences:
        for bound_s in (pace.suspect_after_s, pace.remove_after_s):
            if silence_s < bound_s:
                soonest = min(soonest, bound_s - silence_s)
    return max(soonest, _SHORTEST_WAIT_S)


@dataclass(frozen=True, slots=True)
class Accusation:
    """A watcher of a mesh has not heard of a node, not even through others."""

    heard: float | None
    """When it last did, in the manager's watched time; None: never."""


def heard_in_mesh(
    *,
    vouched: float,
    now: float,
    watchers: Collection[str],
    accusations: dict[str, Accusation],
) -> float:
    """Return when a node of a mesh was last known to live, by what its settled and living `watchers` say.

    Unless more than half accuse it, the others vouch for it: one that has just died itself must not keep it alive.
    Otherwise the newest memory of the accusers counts; a node that nobody watches at the moment keeps what is known.
    """
    accusing = [accusations[watcher] for watcher in watchers if watcher in accusations]
    if not is_unheard(len(accusing), len(watchers)):
        return now if watchers else vouched
    memories = [accusation.heard for accusation in accusing if accusation.heard is not None]
    return min(vouched, max(memories)) if memories else vouched


def is_unheard(missing: int, listeners: int) -> bool:
    """Return whether so many of its listeners do not hear a node that it counts as not heard.

    The manager and the node judge by the same rule, so a node whose watchers would give it up uses the store by then.
    """
    return 2 * missing > listeners
