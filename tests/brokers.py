"""Brokers for tests; a further one adds a function here and its name to BROKERS, and the whole suite runs on it."""

import atexit
import contextlib
import functools
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dw_platform.lake.jars import JarsUnavailableError
from dw_platform.lake.java import NoJavaError
from dw_platform.log import Log
from dw_platform.store import MemoryStore
from dw_platform.streaming import Broker, BrokerSettings, open_broker
from tests.kafka_server import KafkaServer
from tests.servers import require_server

BROKERS = ["embedded", "memory", pytest.param("kafka", marks=pytest.mark.server)]


@dataclass(frozen=True)
class BrokerUnderTest:
    """One running broker and how to reach it."""

    kind: str
    connect: Callable[[], Broker]
    """Return one more client of it, as another process would have."""

    separate_clients: bool = True
    """Whether each client can be closed without the others."""

    unreachable: Callable[[], Broker] | None = None
    """Return a client of a broker that does not run; None where there is no server that could be away."""


@contextlib.contextmanager
def running(kind: str, directory: Path) -> Iterator[BrokerUnderTest]:
    """Yield a broker of that kind; its clients are closed with the block."""
    with contextlib.ExitStack() as clients:
        yield _RUN[kind](directory, clients)


def _embedded(directory: Path, clients: contextlib.ExitStack) -> BrokerUnderTest:
    from dw_platform.streaming.brokers.embedded import EmbeddedBroker

    store = MemoryStore()
    return BrokerUnderTest("embedded", lambda: clients.enter_context(EmbeddedBroker(Log(directory / "log"), store)))


def _memory(_directory: Path, clients: contextlib.ExitStack) -> BrokerUnderTest:
    from tests.fakes.memory_broker import MemoryBroker

    broker = clients.enter_context(MemoryBroker())
    return BrokerUnderTest("memory", lambda: broker, separate_clients=False)


def _kafka(_directory: Path, clients: contextlib.ExitStack) -> BrokerUnderTest:
    def connect(address: str, **options: str) -> Broker:
        return clients.enter_context(open_broker(BrokerSettings(kind="kafka", address=address, options=options)))

    # Port 1 belongs to a service that nobody runs any more.
    away = functools.partial(connect, "127.0.0.1:1", **{"socket.timeout.ms": "300", "delivery.timeout.ms": "500"})
    return BrokerUnderTest("kafka", functools.partial(connect, shared_kafka().address), unreachable=away)


_RUN = {"embedded": _embedded, "memory": _memory, "kafka": _kafka}


@functools.cache
def shared_kafka() -> KafkaServer:
    """Return the run's one Kafka; it ends with this process. Tests that kill a server start one of their own."""
    folder = Path(tempfile.mkdtemp(prefix="dw-kafka-"))
    server = start_kafka(folder)
    owner = os.getpid()

    def end() -> None:
        # A forked process inherits the call, and the server is not its own.
        if os.getpid() == owner:
            server.kill()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server


def start_kafka(directory: Path) -> KafkaServer:
    """Return a running Kafka of one's own; skip, or fail in CI, where it cannot start."""
    if importlib.util.find_spec("confluent_kafka") is None:
        require_server("Kafka: the package confluent-kafka is not installed")
    server = KafkaServer(directory)
    try:
        server.start()
    except (JarsUnavailableError, NoJavaError, RuntimeError) as error:
        require_server(f"Kafka: {error}")
    return server
