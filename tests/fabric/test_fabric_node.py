"""Nodes and a manager in one process, on a store in memory, a heartbeat every 0.3 s."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from dw_platform.fabric import (
    FabricLimits,
    FabricNode,
    FabricScalingManager,
    NodeKind,
    NodeState,
    SwitchMode,
    TopologyChoice,
    TopologyKind,
)
from dw_platform.fabric.records import KEY
from dw_platform.fabric.view import read_nodes
from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import ScalableSubsystem
from dw_platform.store import Entry, MemoryStore, StoreUnavailableError

LIMITS = FabricLimits(heartbeat=timedelta(seconds=0.3), missed=10, dwell=timedelta(0))
MESH = FabricLimits(heartbeat=timedelta(seconds=0.3), missed=10, dwell=timedelta(0), topology=TopologyChoice.MESH)


class AwayStore(MemoryStore):
    """A store that answers nothing while it is away."""

    away = False

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailableError("memory://", "it is away")

    def get(self, key: str) -> Entry | None:
        self._check()
        return super().get(key)

    def put(self, key: str, value: bytes) -> Entry:
        self._check()
        return super().put(key, value)

    def compare_and_set(self, key: str, value: bytes, *, expected: int | None) -> Entry:
        self._check()
        return super().compare_and_set(key, value, expected=expected)


def wait_for(condition: Callable[[], bool], limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def node(running: ExitStack, store: MemoryStore, name: str, **options: object) -> FabricNode:
    return running.enter_context(FabricNode(store, kind=NodeKind.WORKER, name=name, limits=LIMITS, **options))  # type: ignore[arg-type]


def test_the_manager_is_a_subsystem_that_can_be_scaled() -> None:
    manager: ScalableSubsystem[FabricLimits] = FabricScalingManager(MemoryStore(), manager="test")
    assert manager.name == "fabric"
    assert manager.current_limits() == FabricLimits()
    assert all(isinstance(value, int | float) for value in manager.scaling_metrics().values())


def test_a_node_is_named_by_its_process_unless_it_is_given_a_name() -> None:
    one = FabricNode(MemoryStore(), kind=NodeKind.GATEWAY)
    assert one.name.startswith("gateway@")
    one.leave()


@pytest.mark.parametrize("wildcard", ["", "0.0.0.0", "::"])
def test_an_address_that_nobody_can_send_to_is_refused(wildcard: str) -> None:
    with pytest.raises(InvalidValueError, match="other nodes can send to"):
        FabricNode(MemoryStore(), kind=NodeKind.WORKER, listen=(wildcard, 0))


def test_a_node_joins_as_soon_as_the_store_answers(running: ExitStack) -> None:
    store = AwayStore()
    store.away = True
    one = node(running, store, "one")
    assert not one.wait_joined(0.2)
    assert "it is away" in str(one.status().outage)
    store.away = False
    assert one.wait_joined(30)
    wait_for(lambda: one.status().outage is None)
    assert one.status().incarnation > 0


def test_leaving_without_a_store_neither_fails_nor_waits_for_it() -> None:
    store = AwayStore()
    one = FabricNode(store, kind=NodeKind.WORKER, name="one", limits=LIMITS)
    one.start()
    assert one.wait_joined(30)
    store.away = True
    one.leave()
    store.away = False
    assert [each.state for each in read_nodes(store)] == [NodeState.ALIVE]  # until the manager finds it silent


def test_peers_go_on_hearing_each_other_while_the_store_is_away(running: ExitStack) -> None:
    store = AwayStore()
    running.enter_context(FabricScalingManager(store, manager="m", limits=MESH))
    nodes = [node(running, store, name) for name in ("a", "b", "c")]
    wait_for(lambda: all(len(each.status().reports_to) == 2 for each in nodes))
    store.away = True
    wait_for(lambda: all(each.status().outage is not None for each in nodes))
    heard_at = [each._peers._number for each in nodes]
    wait_for(lambda: all(each._peers._number > before + 3 for each, before in zip(nodes, heard_at, strict=True)))
    assert not any(each._peers.unanswered for each in nodes)
    store.away = False
    wait_for(lambda: all(each.status().outage is None for each in nodes))
    assert {each.state for each in read_nodes(store)} == {NodeState.ALIVE}


def test_a_node_that_cannot_listen_is_heard_through_the_store(running: ExitStack) -> None:
    store = MemoryStore()
    manager = running.enter_context(FabricScalingManager(store, manager="m", limits=MESH))
    node(running, store, "a")
    node(running, store, "b")
    mute = node(running, store, "mute", listen=("203.0.113.7", 0))  # not an address of this machine
    wait_for(lambda: len(manager.topology_view().groups) == 1)
    wait_for(lambda: len(manager.topology_view().groups[0].members) == 2)
    wait_for(lambda: manager.scaling_metrics()["nodes_alive"] == 3)
    assert mute.status().reports_to == ()
    wait_for(lambda: mute.status().fallback == "it cannot listen at 203.0.113.7:0")
    assert "control store (1)" in manager.topology_view().render()


def test_a_new_key_is_taken_by_everybody(running: ExitStack) -> None:
    store = MemoryStore()
    running.enter_context(FabricScalingManager(store, manager="m", limits=MESH))
    nodes = [node(running, store, name) for name in ("a", "b", "c")]
    wait_for(lambda: all(each.status().reports_to for each in nodes))
    first = store.get(KEY)
    assert first is not None
    store.delete(KEY)
    wait_for(lambda: store.get(KEY) is not None)
    wait_for(lambda: len({each._key.version for each in nodes}) == 1)
    second = store.get(KEY)
    assert second is not None
    assert second.value != first.value
    numbers = [each._peers._number for each in nodes]
    wait_for(lambda: all(each._peers._number > number + 2 for each, number in zip(nodes, numbers, strict=True)))
    wait_for(lambda: not any(each.status().fallback for each in nodes))


def test_a_node_that_is_refused_asks_again_with_growing_pauses(running: ExitStack) -> None:
    store = MemoryStore()
    limits = FabricLimits(heartbeat=timedelta(seconds=0.3), star=1, star_switch=1, mode=SwitchMode.RECOMMEND)
    manager = running.enter_context(FabricScalingManager(store, manager="m", limits=limits))
    first = node(running, store, "first")
    wait_for(lambda: manager.scaling_metrics()["nodes_alive"] == 1)
    second = node(running, store, "second")
    wait_for(lambda: manager.scaling_metrics().get("events_refused", 0) >= 2)
    first.leave()
    wait_for(lambda: {each.name: each.state for each in read_nodes(store)}["second"] is NodeState.ALIVE)
    wait_for(lambda: manager.scaling_metrics()["nodes_alive"] == 1)
    assert second.status().incarnation > 0


def test_a_node_that_is_forgotten_by_mistake_joins_again(running: ExitStack) -> None:
    store = MemoryStore()
    running.enter_context(FabricScalingManager(store, manager="m", limits=LIMITS))
    one = node(running, store, "one")
    assert one.wait_joined(30)
    life = one.status().incarnation
    store.delete("dw://internal/fabric/nodes/one")
    wait_for(lambda: one.status().incarnation > life)
    wait_for(lambda: [each.state for each in read_nodes(store)] == [NodeState.ALIVE])


def test_damaged_records_keep_no_node_from_saying_that_it_lives(running: ExitStack) -> None:
    store = MemoryStore()
    manager = running.enter_context(FabricScalingManager(store, manager="m", limits=MESH))
    nodes = [node(running, store, name) for name in ("a", "b", "c")]
    wait_for(lambda: all(each.status().reports_to for each in nodes))
    lives = {each.name: each.status().incarnation for each in nodes}
    for key in ("topology", "groups/00000", "nodes/a", "states/b"):
        store.put(f"dw://internal/fabric/{key}", b"damaged")
    wait_for(lambda: nodes[0].status().incarnation > lives["a"])  # it writes its record anew
    wait_for(lambda: not any(each.status().reports_to for each in nodes))
    wait_for(lambda: len(store.list("dw://internal/fabric/beats/")) == 3)
    assert manager.scaling_metrics()["nodes_alive"] == 3


def test_a_node_follows_its_manager_into_another_topology_and_pace(running: ExitStack) -> None:
    store = MemoryStore()
    manager = running.enter_context(FabricScalingManager(store, manager="m", limits=LIMITS))
    one, two = node(running, store, "one"), node(running, store, "two")
    wait_for(lambda: manager.scaling_metrics()["nodes_alive"] == 2)
    manager.reconfigure_limits(
        FabricLimits(heartbeat=timedelta(seconds=0.4), missed=10, topology=TopologyChoice.FEDERATED)
    )
    wait_for(lambda: {one.status().topology, two.status().topology} == {TopologyKind.FEDERATED})
    wait_for(lambda: sorted([one.status().wards, two.status().wards]) == [0, 1])
    assert one._reader.part.pace.heartbeat_s == 0.4
