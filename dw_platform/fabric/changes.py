"""One node as the acting manager knows it, and the changes of its state: what becomes of it, and what is told."""

from dataclasses import dataclass, field

from dw_platform.fabric.damping import Flaps, Telling
from dw_platform.fabric.events import EventKind
from dw_platform.fabric.limits import FabricLimits
from dw_platform.fabric.membership import Claim, NodeRecord, NodeState
from dw_platform.fabric.topology import Seat


@dataclass(slots=True)
class Member:
    """One node; only `Roster` changes it."""

    record: NodeRecord
    known: Claim | None
    """What was last written about it; None for a node that nobody has taken in yet."""

    heard: float
    since: float
    beat_at: float = float("-inf")
    """When it last used the store."""

    vouched: float = float("-inf")
    """When its watchers in a mesh last knew it to live."""

    flaps: Flaps = field(default_factory=Flaps)

    @property
    def state(self) -> NodeState:
        """The last state that was written; Alive for a node that nobody has taken in yet."""
        return NodeState.ALIVE if self.known is None else self.known.state

    @property
    def living(self) -> bool:
        """Whether it was taken in and is not gone."""
        return self.known is not None and not self.known.state.gone

    @property
    def is_news(self) -> bool:
        """Whether it has begun or ended a life since something was written about it."""
        return self.known is None or self.record.claim.incarnation > self.known.incarnation

    @property
    def seat(self) -> Seat | None:
        """Where others reach it."""
        return None if self.record.address is None else Seat(self.record.name, self.record.host, self.record.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A change that is due."""

    record: NodeRecord
    event: EventKind
    before: NodeState | None
    after: NodeState
    reason: str
    ended: int | None = None
    """The incarnation whose work others may take over from now on."""

    flaps: Flaps
    telling: Telling


def taken_in(member: Member, now: float, limits: FabricLimits, *, refused: str | None) -> StateChange:
    """Return what becomes of a node with a life that nobody has judged yet."""
    known, record = member.known, member.record
    if record.left:
        event, after, reason = EventKind.LEFT, NodeState.LEFT, "it said goodbye"
    elif refused is not None:
        event, after, reason = EventKind.REFUSED, NodeState.REMOVED, refused
    else:
        event, after = EventKind.JOINED if known is None else EventKind.REJOINED, NodeState.ALIVE
        reason = "it joined" if known is None else f"a new life after incarnation {known.incarnation}"
    ended = known.incarnation if known is not None and not known.state.gone else None
    return _change(member, event, after, reason, now=now, limits=limits, ended=ended)


def judged(member: Member, after: NodeState, silence_s: float, now: float, limits: FabricLimits) -> StateChange:
    """Return the change to the state that a look found."""
    silent = f"not heard of for {silence_s:.1f} s"
    match after:
        case NodeState.ALIVE:
            return _change(member, EventKind.RECOVERED, after, "heard again", now=now, limits=limits)
        case NodeState.SUSPECT:
            return _change(member, EventKind.SUSPECTED, after, silent, now=now, limits=limits)
        case _:
            ended = member.record.incarnation
            return _change(member, EventKind.REMOVED, after, silent, now=now, limits=limits, ended=ended)


def _change(
    member: Member,
    event: EventKind,
    after: NodeState,
    reason: str,
    *,
    now: float,
    limits: FabricLimits,
    ended: int | None = None,
) -> StateChange:
    flaps, telling = member.flaps.noted(now, limits)
    return StateChange(
        record=member.record,
        event=EventKind.FLAPPING if telling is Telling.FLAPPING and event is not EventKind.REMOVED else event,
        before=None if member.known is None else member.known.state,
        after=after,
        reason=reason,
        ended=ended,
        flaps=flaps,
        telling=Telling.TELL if event is EventKind.REMOVED else telling,
    )


def settled(member: Member) -> StateChange:
    """Return that a flapping node is told of again, from where it stands."""
    return StateChange(
        record=member.record,
        event=EventKind.SETTLED,
        before=member.state,
        after=member.state,
        reason="it has been calm for a while",
        flaps=Flaps(),
        telling=Telling.TELL,
    )
