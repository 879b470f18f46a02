"""Who takes part, in which life, and in what state; and how two views of that become one.

A node is named by whoever starts it (`gateway@host1`) and lives once per *incarnation*, which is the control store's
version of the record that the node itself wrote when it joined. Versions never come back, so neither does a life.

Merging: the newer incarnation wins; within one, the state that is further from Alive. Whatever was said about an
older life therefore says nothing about a newer one, and views can be merged in any order and as often as one likes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum

from dw_platform.foundation import InvalidValueError

# Names travel in datagrams of 1,200 bytes, up to three in one of them.
MAX_NAME_BYTES = 200

Address = tuple[str, int]


class NodeKind(StrEnum):
    """What a process does."""

    GATEWAY = "gateway"
    INGEST = "ingest"
    DAEMON = "daemon"
    DRIVER = "driver"
    WORKER = "worker"


class NodeState(IntEnum):
    """How far a life has come; within one incarnation a later state wins over an earlier one."""

    ALIVE = 0
    SUSPECT = 1
    REMOVED = 2
    LEFT = 3

    @property
    def label(self) -> str:
        """The word that JSON and people see: `alive`, `suspect`, `removed`, `left`."""
        return self.name.lower()

    @property
    def gone(self) -> bool:
        """Whether this life is over."""
        return self >= NodeState.REMOVED

    @classmethod
    def from_label(cls, label: str) -> "NodeState":
        """Return the state that `label` names."""
        for state in cls:
            if state.label == label:
                return state
        raise InvalidValueError("state", label, f"one of {', '.join(state.label for state in cls)}")


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """What somebody says about a node; a greater claim overrules a smaller one."""

    incarnation: int
    state: NodeState


def merge_views(ours: Mapping[str, Claim], theirs: Mapping[str, Claim]) -> dict[str, Claim]:
    """Return one view that knows whatever either of the two knows."""
    merged = dict(ours)
    for name, claim in theirs.items():
        merged[name] = max(merged.get(name, claim), claim)
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """What a node says about itself; nobody else writes it."""

    name: str
    kind: NodeKind
    host: str
    pid: int
    address: Address | None
    """Where it takes datagrams; None if it cannot, and then it reports to the store."""

    life: str
    """Random, so that a node recognises its own write after an answer was lost."""

    left: bool = False
    joined_at: datetime
    """For people; no decision compares wall times."""

    incarnation: int = 0
    """The store's version; 0 before it is stored."""

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def claim(self) -> Claim:
        """What the node claims about its own life."""
        return Claim(self.incarnation, NodeState.LEFT if self.left else NodeState.ALIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the acting manager last made of one life of a node."""

    name: str
    incarnation: int
    state: NodeState
    reason: str
    at: datetime
    """For people."""

    @property
    def claim(self) -> Claim:
        """What the manager claims about that life."""
        return Claim(self.incarnation, self.state)


def check_name(name: str) -> None:
    """Refuse a name that would not fit into a datagram or a line."""
    if not name.strip() or not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidValueError("node", name, f"a printable name of at most {MAX_NAME_BYTES} bytes")
