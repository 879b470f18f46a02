"""Which topology a number of nodes asks for: pure, with hysteresis.

Growing: at its switch threshold a topology becomes the first other one, in the order Star, Mesh, Federated, that has
room: whose own threshold is not reached either. So a Star of 800 nodes becomes a Federation, because a Mesh carries
500, and a Mesh of 400 a Star.

Shrinking: back to the first topology before it, once the nodes are at most `calm_share` of that one's threshold. What
an operator chose is outgrown, but not shrunk. What is due must stay due for `dwell` before it is done, so nodes that
come and go around a threshold switch nothing.
"""

from dataclasses import dataclass

from dw_platform.fabric.limits import FabricLimits, TopologyChoice, TopologyKind

ORDER = tuple(TopologyKind)


@dataclass(frozen=True, slots=True)
class TopologyDecision:
    """The topology that fits, and why."""

    kind: TopologyKind
    reason: str


def decide_topology(
    current: TopologyKind, nodes: int, limits: FabricLimits, *, by_hand: bool = False
) -> TopologyDecision:
    """Return what `nodes` nodes ask for; without regard to dwell and mode, which `advance_switch` adds."""
    if limits.topology is not TopologyChoice.AUTO:
        return _fixed(current, nodes, limits)
    threshold = limits.switch_at(current)
    if nodes >= threshold:
        return _grown(current, nodes, limits, f"{nodes:,} nodes are {threshold:,} or more, which outgrows a {current}")
    if not by_hand:
        for kind in ORDER[: ORDER.index(current)]:
            calm = min(limits.switch_at(kind) * limits.calm_share, limits.most(kind))
            if nodes <= calm:
                return TopologyDecision(kind, f"{nodes:,} nodes are at most {calm:,.0f}, so a {kind} is enough")
    return TopologyDecision(current, f"{nodes:,} nodes fit into a {current}, which is outgrown at {threshold:,}")


def _fixed(current: TopologyKind, nodes: int, limits: FabricLimits) -> TopologyDecision:
    wanted = TopologyKind(limits.topology.value)
    if wanted is not current and nodes > limits.most(wanted):
        return TopologyDecision(current, f"{wanted} is set, but carries {limits.most(wanted):,} of {nodes:,} nodes")
    return TopologyDecision(wanted, f"{wanted} is set")


def _grown(current: TopologyKind, nodes: int, limits: FabricLimits, why: str) -> TopologyDecision:
    for kind in ORDER:
        if kind is not current and nodes < limits.switch_at(kind):
            return TopologyDecision(kind, f"{why}; a {kind} carries {limits.most(kind):,}")
    return TopologyDecision(current, f"{why}, but no other topology has room")


@dataclass(frozen=True, slots=True)
class Due:
    """A switch that is due, and since when in watched time."""

    kind: TopologyKind
    since: float


def advance_due(due: Due | None, decision: TopologyDecision, current: TopologyKind, *, now: float) -> Due | None:
    """Return what is due now; a switch that is due to the same kind stays due since it first was."""
    if decision.kind is current:
        return None
    return due if due is not None and due.kind is decision.kind else Due(decision.kind, now)


def is_ripe(due: Due | None, limits: FabricLimits, *, now: float) -> bool:
    """Return whether what is due has been due for long enough; a topology that somebody set does not wait."""
    if due is None:
        return False
    return limits.topology is not TopologyChoice.AUTO or now - due.since >= limits.dwell.total_seconds()
