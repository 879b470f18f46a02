"""The switch that an operator wants: written by any process, done by the acting manager at its next look."""

from dataclasses import dataclass
from datetime import datetime

from dw_platform.fabric.errors import NoRoomError, TopologyFixedError
from dw_platform.fabric.limits import FabricLimits, TopologyChoice, TopologyKind
from dw_platform.fabric.records import STATES, WISH, decode_verdict
from dw_platform.foundation import Clock
from dw_platform.scaling.encoding import as_time, decode_object, encode_object
from dw_platform.scaling.listing import list_records
from dw_platform.store import Entry, PersistentStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A switch that was asked for."""

    kind: TopologyKind
    by: str
    reason: str
    at: datetime

    @classmethod
    def decode(cls, entry: Entry) -> "Wish":
        """Read a wish."""
        return decode_object(
            entry,
            lambda content: cls(
                kind=TopologyKind(content["kind"]),
                by=str(content["by"]),
                reason=str(content["reason"]),
                at=as_time(content["at"]),
            ),
        )

    def encode(self) -> bytes:
        """Return the wish's value in the store."""
        return encode_object({"kind": self.kind, "by": self.by, "reason": self.reason, "at": self.at.isoformat()})


def check_switch(kind: TopologyKind, nodes: int, limits: FabricLimits) -> None:
    """Raise for a switch that the limits do not allow."""
    if limits.topology is not TopologyChoice.AUTO and limits.topology.value != kind.value:
        raise TopologyFixedError(kind, limits.topology.value)
    if nodes > limits.most(kind):
        raise NoRoomError(kind, nodes, limits.most(kind))


def ask_for_switch(
    store: PersistentStore, kind: TopologyKind, *, by: str, reason: str, limits: FabricLimits, clock: Clock
) -> None:
    """Ask the acting manager to switch; raise TopologyFixedError or NoRoomError for what it would refuse."""
    living = sum(not verdict.state.gone for _, verdict in list_records(store, STATES, decode_verdict))
    check_switch(kind, living, limits)
    store.put(WISH, Wish(kind=kind, by=by, reason=reason, at=clock.now()).encode())
