"""Starts nodes as processes and follows what they and the store say."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dw_platform.fabric import Journal, NodeState, read_nodes
from dw_platform.fabric.view import read_topology
from dw_platform.store import PersistentStore, StoreUnavailableError, open_store

SCRIPT = Path(__file__).with_name("fabric_process.py")
ROOT = Path(__file__).parents[2]
HEARTBEAT_S = 1.0
REMOVED_AFTER_S = 3 * HEARTBEAT_S


class Node:
    """One process; `last` is what it said last about itself."""

    def __init__(self, command: Sequence[str]) -> None:
        self.said: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.errors: list[str] = []
        self._readers = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._complain)]
        for reader in self._readers:
            reader.start()

    @property
    def last(self) -> dict[str, Any]:
        return self.said[-1] if self.said else {"incarnation": 0, "superseded": False, "fallback": None}

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def leave(self) -> None:
        """Let it end by itself, with a goodbye."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0, self.errors

    def end(self) -> None:
        """Make sure that nothing is left of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        for reader in self._readers:
            reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def _complain(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)


class Fabric:
    """Nodes on one store."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "store.db"
        self.url = f"sqlite:///{self.file}"
        self.store: PersistentStore = open_store(self.url)
        self.nodes: dict[str, Node] = {}

    def start(self, name: str, *options: str, prefix: Sequence[str] = (), heartbeat_s: float = HEARTBEAT_S) -> Node:
        command = [*prefix, sys.executable, str(SCRIPT), self.url, name, str(heartbeat_s), *options]
        node = Node(command)
        self.nodes[f"{name}#{len(self.nodes)}"] = node
        return node

    def pause(self, node: Node) -> None:
        """Stop a process, but not in the middle of a write: SQLite would let nobody else write until it goes on."""
        while True:
            node.signal(signal.SIGSTOP)
            writer = sqlite3.connect(self.file, timeout=1, isolation_level=None)
            try:
                writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                node.signal(signal.SIGCONT)
            else:
                return
            finally:
                writer.close()

    def states(self) -> dict[str, NodeState]:
        return {view.name: view.state for view in read_nodes(self.store)}

    def alive(self) -> set[str]:
        return {name for name, state in self.states().items() if state is NodeState.ALIVE}

    def kind(self) -> str | None:
        record = read_topology(self.store)
        return None if record is None else record.kind.value

    def events(self, node: str | None = None) -> list[str]:
        return [each.event.value for each in Journal(self.store).read().events if node in {None, each.node}]

    def told(self) -> list[dict[str, Any]]:
        return Journal(self.store).read().rows()

    def wait_for(self, condition: Callable[[], bool], limit_s: float = 60) -> float:
        """Wait until `condition` holds and return how long that took."""
        started = time.monotonic()
        while not self._holds(condition):
            assert time.monotonic() < started + limit_s, (self.states(), self.events(), self._errors())
            threading.Event().wait(0.05)
        return time.monotonic() - started

    def watch(self, condition: Callable[[], bool], seconds: float) -> None:
        """Look for `seconds` whether `condition` holds all the time."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            assert condition(), (self.states(), self.events(), self._errors())
            threading.Event().wait(0.1)

    def close(self) -> None:
        for node in self.nodes.values():
            node.end()
        self.store.close()

    def _holds(self, condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except StoreUnavailableError:
            return False

    def _errors(self) -> list[str]:
        return [line for node in self.nodes.values() for line in node.errors]


@contextmanager
def fabric_of(folder: Path, *names: str, managers: int = 1) -> Iterator[Fabric]:
    """Run nodes until the block ends; the first `managers` of them have a manager beside them."""
    fabric = Fabric(folder)
    try:
        for number, name in enumerate(names):
            fabric.start(name, *["manager"] * (number < managers))
        fabric.wait_for(lambda: fabric.events() == ["joined"] * len(names))
        yield fabric
    finally:
        fabric.close()
