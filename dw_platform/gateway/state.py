"""What the handlers of one gateway share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dw_platform.foundation import Clock
from dw_platform.gateway.admission import Admission
from dw_platform.gateway.keyring import KeyRing
from dw_platform.gateway.metrics import GatewayMetrics
from dw_platform.gateway.served import ServedTopics
from dw_platform.gateway.settings import GatewaySettings
from dw_platform.gateway.threads import Threads
from dw_platform.scaling import ScalableSubsystem
from dw_platform.store import PersistentStore


@dataclass(frozen=True, slots=True)
class GatewayState:
    """Made once by `create_app`."""

    settings: GatewaySettings
    keys: KeyRing
    clock: Clock
    topics: ServedTopics
    metrics: GatewayMetrics
    admission: Admission
    threads: Threads
    subsystems: Sequence[ScalableSubsystem[Any]]
    store: PersistentStore | None
