"""Whole fabrics in simulated time: what the benchmark measures in large is held here in small."""

import pytest

from benchmarks.fabric import SLOWEST_S, Simulation
from dw_platform.fabric.limits import TopologyKind
from dw_platform.fabric.topology import watchers_of

STAR, MESH, FEDERATED = TopologyKind
BOUND_S = 45 + 3 + SLOWEST_S


def simulated(nodes: int, kind: TopologyKind, loss: float = 0.01, *, seed: int = 1) -> Simulation:
    simulation = Simulation(nodes, kind, loss=loss, seed=seed)
    simulation.run(180)
    simulation.measure()
    return simulation


@pytest.mark.parametrize("kind", TopologyKind)
@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
def test_dead_nodes_are_removed_within_the_bound_and_living_ones_are_not(kind: TopologyKind, loss: float) -> None:
    simulation = simulated(150, kind, loss)
    simulation.kill(10, within_s=120)
    simulation.run(300)
    assert len(simulation.figures.detected) == 10
    signs = [since_sign for since_sign, _ in simulation.figures.detected]
    # In a mesh, two of a node's three watchers may die with it, before they have accused it.
    assert max(signs) <= BOUND_S + (15 if kind is MESH else 0)
    # What only a hub has heard dies with it; what is in the store does not.
    assert min(signs) >= 45 - 0.001 or kind is not STAR
    assert simulation.figures.false_removals == 0
    assert simulation.living() == 140


def test_cells_outlive_the_death_of_all_their_hubs_at_once() -> None:
    simulation = simulated(400, FEDERATED)
    hubs = simulation.hubs()
    assert len(hubs) == 4
    for hub in hubs:
        simulation.die(hub)
    simulation.run(120)
    assert simulation.living() == 396
    assert simulation.figures.false_removals == 0
    assert not set(simulation.hubs()) & set(hubs)
    simulation.measure()
    simulation.run(300)
    assert simulation.figures.writes / 300 < 2  # its members have stopped to bypass the dead


def test_a_host_that_dies_with_all_its_nodes_is_found() -> None:
    simulation = simulated(200, MESH)
    dead = [name for name, node in simulation.nodes.items() if node.record.host in {"host03", "host04"}]
    for name in dead:
        simulation.die(name)
    simulation.run(120)
    assert simulation.living() == 200 - len(dead)
    assert simulation.figures.false_removals == 0


def test_a_node_that_dies_together_with_all_its_watchers_is_found_within_the_bound_of_the_rare_heartbeat() -> None:
    simulation = simulated(60, MESH)
    (group,) = simulation.groups
    victim = group.members[0].name
    for name in (victim, *watchers_of(group.members)[victim]):
        simulation.die(name)
    simulation.run(240)
    assert simulation.living() == 56
    assert max(since_sign for since_sign, _ in simulation.figures.detected) <= 4 * 45 + 3 + SLOWEST_S


def test_most_of_a_mesh_can_die_at_once() -> None:
    simulation = simulated(100, MESH)
    for name in [*simulation.nodes][:80]:
        simulation.die(name)
    simulation.run(300)
    assert simulation.living() == 20
    assert simulation.figures.false_removals == 0


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_switches_loses_nobody(seed: int) -> None:
    simulation = simulated(120, STAR, 0.05, seed=seed)
    for pause_s, kind in [(5, MESH), (40, FEDERATED), (7, STAR), (90, FEDERATED), (30, MESH), (60, STAR)]:
        simulation.switch(kind)
        simulation.run(pause_s)
    simulation.run(120)
    assert simulation.living() == 120
    assert simulation.figures.false_removals == 0


def test_cells_write_a_fraction_of_what_a_star_writes() -> None:
    writes = {}
    for kind in (STAR, MESH, FEDERATED):
        simulation = simulated(300, kind, 0.01)
        simulation.run(600)
        writes[kind] = simulation.figures.writes / 600
    assert writes[STAR] == pytest.approx(20, rel=0.02)
    assert writes[MESH] == pytest.approx(5, rel=0.1)
    assert writes[FEDERATED] < 1
