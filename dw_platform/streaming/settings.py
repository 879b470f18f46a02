"""How to reach a broker: a frozen value that travels to Spark tasks, and the one place that opens it."""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field

from dw_platform.foundation import MissingExtraError, UserError
from dw_platform.store import PersistentStore
from dw_platform.streaming.contract import Broker

_ADAPTERS = {
    "embedded": ("dw_platform.streaming.brokers.embedded", None),
    "kafka": ("dw_platform.streaming.brokers.kafka", "confluent_kafka"),
}
CLIENTS = {kind: client for kind, (_, client) in _ADAPTERS.items()}
"""The brokers that there are adapters for, each with the package that it needs; None: nothing beyond the platform."""


class UnknownBrokerError(UserError):
    """There is no adapter for this kind of broker, yet."""

    def __init__(self, kind: str) -> None:
        self.kind, self.known = kind, tuple(_ADAPTERS)
        super().__init__(
            f"This version cannot use a {kind} broker. Set `broker.kind` in platform.yaml to {' or '.join(_ADAPTERS)}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What `platform.yaml` says about a broker, with defaults filled in; picklable."""

    kind: str = "embedded"
    address: str = ""
    """Servers, separated by commas; unused by the embedded log."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further settings by the client library's own names; they win."""

    directory: str = ""
    """Folder of the embedded log."""


def open_broker(settings: BrokerSettings, *, store: PersistentStore | None = None) -> Broker:
    """Return the broker; nothing is connected or written before the first call.

    `store` keeps the groups' offsets of the embedded log. A task that only fetches needs none.
    """
    if settings.kind not in _ADAPTERS:
        raise UnknownBrokerError(settings.kind)
    module, client = _ADAPTERS[settings.kind]
    if client is not None and importlib.util.find_spec(client) is None:
        raise MissingExtraError(f"The {settings.kind} broker", settings.kind)
    broker: Broker = importlib.import_module(module).open_from(settings, store)
    return broker
