"""The gateway in this process, in front of a log in a temporary folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dw_platform.foundation import FakeClock
from dw_platform.gateway.app import create_app
from dw_platform.gateway.keyring import KeyRing
from dw_platform.gateway.settings import GatewaySettings
from dw_platform.store import MemoryStore
from tests.gateway.doubles import LogPublisher
from tests.gateway.web import Web

MakeWeb = Callable[..., Web]


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[LogPublisher]:
    publisher = LogPublisher(tmp_path / "log", ("orders", "clicks"))
    yield publisher
    publisher.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make_web(publisher: LogPublisher, store: MemoryStore, clock: FakeClock) -> Iterator[MakeWeb]:
    """Return a client of a new gateway; settings are keyword arguments."""
    with ExitStack() as opened:

        def make(*, bus: Any = None, subsystems: Any = (), **settings: Any) -> Web:
            chosen = GatewaySettings(**settings)
            keys = KeyRing(store, required=chosen.require_keys, clock=clock)
            keys.poll()
            app = create_app(
                publisher, settings=chosen, keys=keys, clock=clock, bus=bus, subsystems=subsystems, store=store
            )
            return opened.enter_context(Web(app))

        yield make


@pytest.fixture
def web(make_web: MakeWeb) -> Web:
    return make_web()
