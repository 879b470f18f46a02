"""A network that falls in two, made of network namespaces: nodes that reach the store and not each other."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dw_platform.fabric import FabricLimits, TopologyKind, ask_for_switch
from dw_platform.foundation import SystemClock
from tests.fabric.fabric_processes import REMOVED_AFTER_S, Fabric

pytestmark = pytest.mark.crash


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two namespaces with one wire between them: 10.99.0.1 and 10.99.0.2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    tag = secrets.token_hex(3)
    names = (f"dwA{tag}", f"dwB{tag}")
    wires = (f"dwa{tag}", f"dwb{tag}")
    made = []
    try:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
            made.append(name)
        ip("link", "add", wires[0], "netns", names[0], "type", "veth", "peer", "name", wires[1], "netns", names[1])
        for number, (name, wire) in enumerate(zip(names, wires, strict=True), 1):
            ip("-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", wire)
            ip("-n", name, "link", "set", wire, "name", "wire")
            ip("-n", name, "link", "set", "wire", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in made:
            ip("netns", "del", name)


def test_nodes_that_cannot_reach_each_other_say_so_and_nobody_is_removed(
    tmp_path: Path, namespaces: tuple[str, str]
) -> None:
    here, there = (["ip", "netns", "exec", name] for name in namespaces)
    fabric, names = Fabric(tmp_path), {"a", "b", "c"}
    try:
        near = [fabric.start("a", "manager", "listen=10.99.0.1", prefix=here)]
        near.append(fabric.start("b", "listen=10.99.0.1", prefix=here))
        far = fabric.start("c", "listen=10.99.0.2", prefix=there)
        fabric.wait_for(lambda: fabric.alive() == names)
        for kind, reporting in ((TopologyKind.MESH, 3), (TopologyKind.FEDERATED, 2)):
            limits = FabricLimits(cell_size=3)
            ask_for_switch(fabric.store, kind, by="operator", reason="test", limits=limits, clock=SystemClock())

            def heard() -> int:
                nodes = [node.last for node in (*near, far)]
                return sum(bool(node["reports_to"]) and node["fallback"] is None for node in nodes)

            fabric.wait_for(lambda kind=kind: fabric.kind() == kind.value)
            fabric.wait_for(lambda reporting=reporting: heard() == reporting)
            ip("-n", namespaces[0], "link", "set", "wire", "down")
            fabric.wait_for(lambda: far.last["fallback"] is not None)
            assert "no answer by UDP from" in far.last["fallback"]
            fabric.watch(lambda: fabric.alive() == names, 3 * REMOVED_AFTER_S)
            # Those on one side hear each other, if need be through another hub.
            fabric.wait_for(lambda: not any(node.last["fallback"] for node in near))
            ip("-n", namespaces[0], "link", "set", "wire", "up")
            fabric.wait_for(lambda reporting=reporting: heard() == reporting)
        assert set(fabric.events()) <= {"joined", "switched"}
    finally:
        fabric.close()
