"""Streams for tests: managers on brokers in memory or on disk, and waiting for what another thread brings about."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dw_platform.foundation import Clock
from dw_platform.log import Log, Records
from dw_platform.store import MemoryStore, PersistentStore
from dw_platform.streaming import (
    Broker,
    Capabilities,
    StreamDefinition,
    StreamingLimits,
    StreamingScalingManager,
    TopicSettings,
)
from dw_platform.streaming.brokers.embedded import EmbeddedBroker
from tests.fakes.memory_broker import MemoryBroker

SOON_S = 30.0
# As the embedded log is: one process publishes, and a batch is written wholly or not at all.
ALONE = Capabilities(drops=True, shared_by_processes=False, whole_batches=True)


def eventually(condition: Callable[[], Any], what: str = "it") -> Any:
    """Return what `condition` returns once that is true."""
    deadline = time.monotonic() + SOON_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.005)
    return found


def definition(broker: Broker, topic: str = "orders", *, partitions: int = 4, **more: Any) -> StreamDefinition:
    return StreamDefinition(topic=topic, broker=broker, settings=TopicSettings(partitions=partitions), **more)


def memory(capabilities: Capabilities = ALONE) -> MemoryBroker:
    return MemoryBroker(capabilities)


def embedded(directory: Path, store: PersistentStore) -> EmbeddedBroker:
    return EmbeddedBroker(Log(directory), store)


@contextlib.contextmanager
def serving(
    *definitions: StreamDefinition,
    store: PersistentStore | None = None,
    limits: StreamingLimits | None = None,
    clock: Clock | None = None,
    started: bool = True,
) -> Iterator[StreamingScalingManager]:
    manager = StreamingScalingManager(definitions, store=store or MemoryStore(), limits=limits, clock=clock)
    if started:
        manager.start()
    try:
        yield manager
    finally:
        manager.close()


def keyed(*pairs: tuple[bytes, bytes]) -> Records:
    """Return records of (key, value)."""
    return Records([value for _, value in pairs], keys=[key for key, _ in pairs])
