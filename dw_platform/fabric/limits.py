"""What the fabric allows itself; everything here can be changed while it runs."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureThresholds, bounded, check_limits


class TopologyKind(StrEnum):
    """Who reports to whom; in the order in which one that has room is looked for."""

    STAR = "star"
    MESH = "mesh"
    FEDERATED = "federated"


class TopologyChoice(StrEnum):
    """`auto` follows the number of nodes, everything else is fixed."""

    AUTO = "auto"
    STAR = "star"
    MESH = "mesh"
    FEDERATED = "federated"


class SwitchMode(StrEnum):
    """Whether a due switch is made or only recommended."""

    ACT = "act"
    RECOMMEND = "recommend"


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricLimits:
    """The limits of one fabric; the acting manager hands heartbeat and patience on to all nodes."""

    heartbeat: timedelta = field(
        default=timedelta(seconds=15),
        metadata=bounded(at_least=timedelta(milliseconds=50), reason="how often a node says that it lives"),
    )
    missed: int = field(
        default=3,
        metadata=bounded(at_least=2, unit="heartbeats", reason="removes a node; one alone is lost or late too easily"),
    )
    star: int = field(default=1_000, metadata=bounded(at_least=1, unit="nodes", reason="each writes to the store"))
    mesh: int = field(default=500, metadata=bounded(at_least=1, unit="nodes", reason="each knows all others"))
    federated: int = field(default=10_000, metadata=bounded(at_least=1, unit="nodes", reason="in cells"))
    star_switch: int = field(default=800, metadata=bounded(at_least=1, unit="nodes", reason="outgrows a star"))
    mesh_switch: int = field(default=400, metadata=bounded(at_least=1, unit="nodes", reason="outgrows a mesh"))
    topology: TopologyChoice = TopologyChoice.AUTO
    mode: SwitchMode = SwitchMode.ACT
    calm_share: float = field(
        default=0.75,
        metadata=bounded(above=0.0, at_most=0.95, reason="of a switch threshold, below which one goes back"),
    )
    dwell: timedelta = field(
        default=timedelta(minutes=1),
        metadata=bounded(at_least=timedelta(0), reason="for which a switch must be due before it is made"),
    )
    cell_size: int = field(
        default=100, metadata=bounded(at_least=2, unit="nodes", reason="of a cell, on average; one hub hears them all")
    )
    flap_changes: int = field(
        default=6, metadata=bounded(at_least=2, unit="events", reason="told of one node within flap_window")
    )
    flap_window: timedelta = field(
        default=timedelta(minutes=10), metadata=bounded(above=timedelta(0), reason="of calm ends a flapping")
    )
    forget_after: timedelta = field(
        default=timedelta(hours=1), metadata=bounded(above=timedelta(0), reason="for which nodes that are gone show")
    )
    thresholds: PressureThresholds = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        check_limits(self)
        for kind in (TopologyKind.STAR, TopologyKind.MESH):
            switch, most = self.switch_at(kind), self.most(kind)
            if switch > most:
                raise InvalidValueError(f"{kind}_switch", switch, f"at most {kind} ({most}), or it is outgrown first")

    def most(self, kind: TopologyKind) -> int:
        """Return how many nodes `kind` carries."""
        return {TopologyKind.STAR: self.star, TopologyKind.MESH: self.mesh, TopologyKind.FEDERATED: self.federated}[
            kind
        ]

    def switch_at(self, kind: TopologyKind) -> int:
        """Return the number of nodes at which `kind` is outgrown; a federation never is."""
        if kind is TopologyKind.FEDERATED:
            return self.federated + 1
        return self.star_switch if kind is TopologyKind.STAR else self.mesh_switch

    @property
    def pace(self) -> "Pace":
        """What nodes need of these limits."""
        return Pace(self.heartbeat.total_seconds(), self.missed)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a node is heard, and how long a silence is borne with."""

    heartbeat_s: float
    missed: int

    @property
    def suspect_after_s(self) -> float:
        """Half way between the first missed heartbeat and the last: 30 s of 45 s."""
        return self.heartbeat_s * (self.missed + 1) / 2

    @property
    def remove_after_s(self) -> float:
        """The silence that ends a life."""
        return self.heartbeat_s * self.missed

    @property
    def look_every_s(self) -> float:
        """How often the acting manager looks: the tick that detection may take on top."""
        return self.heartbeat_s / 5

    @property
    def rare_beat_s(self) -> float:
        """How often a node of a mesh writes to the store: the bound for when its watchers die together with it."""
        return self.heartbeat_s * 4
