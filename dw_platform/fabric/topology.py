"""Who reports to whom: computed from names alone, so every process comes to the same result.

Star: each node writes to the store. Mesh: each node sends its heartbeats to three others, its *watchers*. Federated:
nodes fall into cells, each sends its heartbeats to the *hub* of its cell, and hubs write one summary each.

Few assignments move: a cell is chosen by rendezvous hashing, so another cell takes only what it will hold, and the
hub is the fit member with the highest weight, so losing it promotes the second. Watchers are neighbours on a ring of
hashes: a node that comes or goes changes the watchers of its neighbours only, and everybody watches about three.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import ceil

from dw_platform.fabric.limits import TopologyKind
from dw_platform.fabric.membership import Address

# Three survive two failures at once; one more would cost each node a third more datagrams.
WATCHERS = 3
# Of so many neighbours those on other hosts go first, so that a host does not take its witnesses along.
_CANDIDATES = 2 * WATCHERS
# Cells are made anew when they hold less than half or more than one and a half times what they should.
_FEWEST_SHARE, _MOST_SHARE = 0.5, 1.5


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """A node that others can send to."""

    name: str
    host: str
    address: Address


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that talk to each other: a whole mesh, or one cell with its hub."""

    number: int
    kind: TopologyKind
    members: tuple[Seat, ...]
    hub: str | None = None


@dataclass(frozen=True, slots=True)
class Role:
    """What a group means for one of its nodes."""

    reports_to: tuple[Seat, ...] = ()
    """Nobody: its heartbeats go to the store."""

    wards: tuple[Seat, ...] = ()
    """The nodes that report to it."""

    helpers: tuple[Seat, ...] = ()
    """Whom it can ask to look after a silent ward."""

    writes_summary: bool = False


NO_ROLE = Role()


def plan_groups(
    kind: TopologyKind, seats: Iterable[Seat], *, cells: int, unfit: Collection[str] = frozenset()
) -> tuple[Group, ...]:
    """Return the groups of `kind`; `unfit` nodes become hubs only where there is nobody else."""
    members = sorted(seats)
    match kind:
        case TopologyKind.STAR:
            return ()
        case TopologyKind.MESH:
            return (Group(0, kind, tuple(members)),) if members else ()
        case TopologyKind.FEDERATED:
            by_cell: dict[int, list[Seat]] = {}
            for seat in members:
                by_cell.setdefault(cell_of(seat.name, cells), []).append(seat)
            return tuple(
                Group(number, kind, tuple(found), _hub(number, found, unfit))
                for number, found in sorted(by_cell.items())
            )


def cells_for(nodes: int, current: int, cell_size: int) -> int:
    """Return the number of cells: the current one while cells are neither too empty nor too full."""
    if current >= 1 and _FEWEST_SHARE * cell_size <= nodes / current <= _MOST_SHARE * cell_size:
        return current
    return max(1, ceil(nodes / cell_size))


@lru_cache(maxsize=65_536)
def cell_of(name: str, cells: int) -> int:
    """Return the cell of a node: the one with the highest weight for its name."""
    return max(range(cells), key=lambda cell: _weight(str(cell), name))


def watchers_of(members: Collection[Seat]) -> dict[str, tuple[str, ...]]:
    """Return the watchers of every node of a mesh; as many as there are others, at most three."""
    ring = sorted(members, key=lambda seat: (_weight("ring", seat.name), seat.name))
    count = min(_CANDIDATES, len(ring) - 1)
    found = {}
    for place, seat in enumerate(ring):
        near = [ring[(place + step) % len(ring)] for step in range(1, count + 1)]
        near.sort(key=lambda other: other.host == seat.host)  # stable, so the nearest come first
        found[seat.name] = tuple(other.name for other in near[:WATCHERS])
    return found


def roles_of(group: Group) -> dict[str, Role]:
    """Return what the group means for each of its nodes."""
    seats = {seat.name: seat for seat in group.members}
    if group.kind is TopologyKind.MESH:
        watchers = watchers_of(group.members)
        wards: dict[str, list[Seat]] = {name: [] for name in seats}
        for name, watching in watchers.items():
            for watcher in watching:
                wards[watcher].append(seats[name])
        return {
            name: Role(tuple(seats[watcher] for watcher in watchers[name]), tuple(wards[name]), group.members)
            for name in seats
        }
    hub = tuple(seat for seat in group.members if seat.name == group.hub)
    others = tuple(seat for seat in group.members if seat.name != group.hub)
    members = dict.fromkeys((seat.name for seat in others), Role(reports_to=hub))
    return members | {seat.name: Role(wards=others, helpers=others, writes_summary=True) for seat in hub}


def _hub(cell: int, members: Collection[Seat], unfit: Collection[str]) -> str:
    fit = [seat for seat in members if seat.name not in unfit] or members
    return max(fit, key=lambda seat: (_weight("hub", str(cell), seat.name), seat.name)).name


def _weight(*parts: str) -> int:
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=8).digest())
