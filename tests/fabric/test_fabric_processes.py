"""Nodes as processes on one SQLite file, a heartbeat a second: killed, paused, switched, cut off from the store."""

import signal
import socket
import sqlite3
import time
from pathlib import Path

import pytest

from dw_platform.fabric import FabricLimits, NodeState, TopologyKind, ask_for_switch
from dw_platform.fabric.leadership import acting_manager
from dw_platform.fabric.records import BEATS, NODES, Report, decode_node, report_key
from dw_platform.fabric.view import read_groups, read_nodes, read_topology_view
from dw_platform.foundation import SystemClock
from tests.fabric.fabric_processes import HEARTBEAT_S, REMOVED_AFTER_S, Fabric, fabric_of

pytestmark = pytest.mark.crash

# What the machine may take on top of what the detector does; processes of other tests share it.
SLACK_S = 10.0


def switch(fabric: Fabric, kind: TopologyKind) -> None:
    ask_for_switch(
        fabric.store, kind, by="operator", reason="test", limits=FabricLimits(cell_size=3), clock=SystemClock()
    )
    fabric.wait_for(lambda: fabric.kind() == kind.value)


def settled(fabric: Fabric, *, reporting_to_nodes: int) -> bool:
    """Return whether so many nodes report to others, and are heard by them."""
    nodes = [node.last for node in fabric.nodes.values() if node.process.poll() is None]
    return sum(bool(each["reports_to"]) and each["fallback"] is None for each in nodes) == reporting_to_nodes


def test_a_killed_node_is_removed_and_its_life_named_while_the_others_stay(tmp_path: Path) -> None:
    with fabric_of(tmp_path, "a", "b", "c", "d", "e") as fabric:
        life = fabric.nodes["c#2"].last["incarnation"]
        fabric.nodes["c#2"].signal(signal.SIGKILL)
        took_s = fabric.wait_for(lambda: fabric.states()["c"] is NodeState.REMOVED)
        assert REMOVED_AFTER_S - HEARTBEAT_S <= took_s <= REMOVED_AFTER_S + SLACK_S
        assert fabric.alive() == {"a", "b", "d", "e"}
        (removed,) = [row for row in fabric.told() if row["event"] == "removed"]
        assert (removed["node"], removed["ended"], removed["pid"]) == ("c", life, fabric.nodes["c#2"].process.pid)


def test_a_node_that_was_paused_for_too_long_comes_back_in_a_new_life(tmp_path: Path) -> None:
    with fabric_of(tmp_path, "a", "b", "c") as fabric:
        life = fabric.nodes["b#1"].last["incarnation"]
        fabric.pause(fabric.nodes["b#1"])
        fabric.wait_for(lambda: fabric.states()["b"] is NodeState.REMOVED)
        fabric.nodes["b#1"].signal(signal.SIGCONT)
        fabric.wait_for(lambda: fabric.alive() == {"a", "b", "c"})
        fabric.wait_for(lambda: fabric.nodes["b#1"].last["incarnation"] > life)
        fabric.wait_for(lambda: fabric.events("b") == ["joined", "suspected", "removed", "rejoined"])


def test_a_node_that_leaves_says_goodbye_and_is_not_suspected(tmp_path: Path) -> None:
    with fabric_of(tmp_path, "a", "b", "c") as fabric:
        fabric.nodes["b#1"].leave()
        took_s = fabric.wait_for(lambda: fabric.events("b") == ["joined", "left"])
        assert took_s < REMOVED_AFTER_S
        assert fabric.store.get(f"{BEATS}b") is None


def test_a_second_process_of_the_same_name_silences_the_first(tmp_path: Path) -> None:
    with fabric_of(tmp_path, "a", "b") as fabric:
        second = fabric.start("b")
        fabric.wait_for(lambda: fabric.nodes["b#1"].last["superseded"] is True)
        fabric.wait_for(lambda: fabric.events("b") == ["joined", "rejoined"])
        fabric.watch(lambda: "b" in fabric.alive(), REMOVED_AFTER_S)
        assert second.last["superseded"] is False
        # The goodbye of the first must not end the life of the second.
        fabric.nodes["b#1"].leave()
        fabric.watch(lambda: "b" in fabric.alive(), 2 * HEARTBEAT_S)


@pytest.mark.parametrize("kind", TopologyKind)
def test_a_store_that_takes_no_writes_for_a_while_removes_nobody(tmp_path: Path, kind: TopologyKind) -> None:
    names = {"a", "b", "c", "d", "e"}
    with fabric_of(tmp_path, *sorted(names)) as fabric:
        switch(fabric, kind)
        fabric.watch(lambda: fabric.alive() == names, 3 * HEARTBEAT_S)
        writer = sqlite3.connect(fabric.file, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        time.sleep(3 * REMOVED_AFTER_S)  # the outage itself
        writer.execute("ROLLBACK")
        writer.close()
        fabric.watch(lambda: not fabric.states().keys() - names, 2 * REMOVED_AFTER_S)
        fabric.wait_for(lambda: fabric.alive() == names)
        assert not {"removed", "left", "rejoined"} & set(fabric.events())


def test_the_topology_changes_while_it_runs_and_loses_nobody(tmp_path: Path) -> None:
    names = {"a", "b", "c", "d", "e", "f"}
    with fabric_of(tmp_path, *sorted(names)) as fabric:
        mesh, federated, star = (TopologyKind.MESH, 6), (TopologyKind.FEDERATED, 4), (TopologyKind.STAR, 0)
        for kind, reporting in (mesh, federated, mesh, star):
            switch(fabric, kind)
            fabric.wait_for(lambda reporting=reporting: settled(fabric, reporting_to_nodes=reporting))
            fabric.watch(lambda: fabric.states().keys() == names, HEARTBEAT_S)
        fabric.wait_for(lambda: fabric.alive() == names)
        assert not {"removed", "rejoined", "left"} & set(fabric.events())
        assert fabric.events().count("switched") == 4


def test_members_of_a_cell_write_nothing_while_their_hub_hears_them(tmp_path: Path) -> None:
    with fabric_of(tmp_path, "a", "b", "c") as fabric:
        switch(fabric, TopologyKind.FEDERATED)
        fabric.wait_for(lambda: settled(fabric, reporting_to_nodes=2))
        (group,) = read_groups(fabric.store)
        members = sorted({"a", "b", "c"} - {group.hub})

        def heard() -> bool:
            entry = fabric.store.get(report_key(str(group.hub)))
            return entry is not None and sorted(Report.decode(entry).ages) == members

        fabric.wait_for(heard)
        before = fabric.store.versions_of([f"{BEATS}{name}" for name in members])
        fabric.watch(lambda: fabric.alive() == {"a", "b", "c"}, 2 * REMOVED_AFTER_S)
        after = fabric.store.versions_of([f"{BEATS}{name}" for name in members])
        # A heartbeat or two may have gone to the store when the machine was busy, but not one a second.
        assert sum(after.values()) - sum(before.values()) <= REMOVED_AFTER_S


def test_a_killed_hub_is_replaced_and_its_cell_stays(tmp_path: Path) -> None:
    names = {"a", "b", "c", "d", "e"}
    with fabric_of(tmp_path, *sorted(names), managers=5) as fabric:
        switch(fabric, TopologyKind.FEDERATED)
        fabric.wait_for(lambda: settled(fabric, reporting_to_nodes=5 - len(read_groups(fabric.store))))
        group = max(read_groups(fabric.store), key=lambda group: len(group.members))
        hub = str(group.hub)
        next(node for key, node in fabric.nodes.items() if key.startswith(hub)).signal(signal.SIGKILL)
        fabric.wait_for(lambda: fabric.states()[hub] is NodeState.REMOVED)
        fabric.wait_for(lambda: hub not in {each.hub for each in read_groups(fabric.store)})
        fabric.wait_for(lambda: settled(fabric, reporting_to_nodes=4 - len(read_groups(fabric.store))))
        assert [row["node"] for row in fabric.told() if row["event"] == "removed"] == [hub]


def test_a_mesh_removes_a_killed_node_by_what_its_peers_say(tmp_path: Path) -> None:
    names = {"a", "b", "c", "d", "e"}
    with fabric_of(tmp_path, *sorted(names)) as fabric:
        switch(fabric, TopologyKind.MESH)
        fabric.wait_for(lambda: settled(fabric, reporting_to_nodes=5))
        fabric.watch(lambda: fabric.alive() == names, 2 * REMOVED_AFTER_S)
        fabric.nodes["e#4"].signal(signal.SIGKILL)
        took_s = fabric.wait_for(lambda: fabric.states()["e"] is NodeState.REMOVED)
        assert took_s <= REMOVED_AFTER_S + SLACK_S
        assert fabric.alive() == names - {"e"}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_when_the_acting_manager_is_gone_another_takes_over_and_removes_the_dead(
    tmp_path: Path, how: signal.Signals
) -> None:
    names = {"a", "b", "c", "d"}
    with fabric_of(tmp_path, *sorted(names), managers=2) as fabric:
        acting = acting_manager(fabric.store)
        other = ({"a", "b"} - {acting}).pop()
        victim = next(node for key, node in fabric.nodes.items() if key.startswith(str(acting)))
        fabric.pause(victim) if how is signal.SIGSTOP else victim.signal(how)
        fabric.nodes["d#3"].signal(signal.SIGKILL)
        fabric.wait_for(lambda: acting_manager(fabric.store) == other)
        fabric.wait_for(lambda: fabric.states()["d"] is NodeState.REMOVED)
        fabric.wait_for(lambda: fabric.states()[str(acting)] is NodeState.REMOVED)
        if how is signal.SIGSTOP:
            victim.signal(signal.SIGCONT)
            fabric.wait_for(lambda: fabric.alive() == names - {"d"})
            assert acting_manager(fabric.store) == other
        # Everybody was judged once: the manager that came back late has added nothing.
        removed = [row["node"] for row in fabric.told() if row["event"] == "removed"]
        assert sorted(removed) == sorted({"d", acting})


def test_a_manager_that_was_paused_removes_nobody_when_it_wakes(tmp_path: Path) -> None:
    names = {"a", "b", "c"}
    with fabric_of(tmp_path, *sorted(names)) as fabric:
        fabric.pause(fabric.nodes["a#0"])
        time.sleep(3 * REMOVED_AFTER_S)  # the pause itself
        fabric.nodes["a#0"].signal(signal.SIGCONT)
        fabric.watch(lambda: fabric.states().keys() == names, 2 * REMOVED_AFTER_S)
        fabric.wait_for(lambda: fabric.alive() == names)
        assert "removed" not in fabric.events()


def test_forged_datagrams_change_nothing(tmp_path: Path) -> None:
    with fabric_of(tmp_path, "a", "b", "c") as fabric:
        switch(fabric, TopologyKind.MESH)
        fabric.wait_for(lambda: settled(fabric, reporting_to_nodes=3))
        addresses = [decode_node(entry).address for entry in fabric.store.list(NODES)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for number in range(2_000):
                for address in addresses:
                    assert address is not None
                    stranger.sendto(bytes(number % 256 for _ in range(number)), address)
        fabric.watch(lambda: fabric.alive() == {"a", "b", "c"}, REMOVED_AFTER_S)
        assert settled(fabric, reporting_to_nodes=3)


def test_nodes_and_topology_can_be_shown_by_any_process(tmp_path: Path) -> None:
    with fabric_of(tmp_path, "a", "b", "c") as fabric:
        switch(fabric, TopologyKind.FEDERATED)
        fabric.wait_for(lambda: len(read_groups(fabric.store)) == 1)
        (group,) = read_groups(fabric.store)
        shown = {node.name: node for node in read_nodes(fabric.store)}
        assert shown[str(group.hub)].reports_to == ("store",)
        assert {shown[name].reports_to for name in {"a", "b", "c"} - {group.hub}} == {(group.hub,)}
        assert shown["a"].pid == fabric.nodes["a#0"].process.pid
        text = read_topology_view(fabric.store, FabricLimits()).render()
        assert f"cell 0, hub {group.hub} (3)" in text
        assert "federated: 3 of 10,000 nodes; manager: a" in text
