"""Sections `scaling`, `gateway`, `bus`, `dagster`, `fabric`: how the platform runs and stays stable."""

from datetime import timedelta
from typing import Annotated, Literal

from dw_platform.config.section import Section
from dw_platform.config.values import (
    Duration,
    File,
    Host,
    Port,
    Positive,
    Share,
    Size,
    Switch,
    TopicName,
)
from dw_platform.config.written import power_of_two, whole
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureThresholds

# What the bus itself allows; tests hold these to it.
BusPartitions = Annotated[int, whole(1, 1024)]
RingSize = Annotated[int, power_of_two(2, 1 << 24)]


class ThresholdsSection(Section):
    """Occupancy at which a level of pressure begins, and the lower one at which it ends, so that it does not flap."""

    warning: Share = DEFAULT_THRESHOLDS.warning
    """From here on producers are told to slow down."""

    critical: Share = DEFAULT_THRESHOLDS.critical
    """From here on publishers wait."""

    shedding: Share = DEFAULT_THRESHOLDS.shedding
    """From here on work that can be refused is refused."""

    warning_exit: Share = DEFAULT_THRESHOLDS.warning_exit
    """Below this, warning ends."""

    critical_exit: Share = DEFAULT_THRESHOLDS.critical_exit
    """Below this, critical ends."""

    shedding_exit: Share = DEFAULT_THRESHOLDS.shedding_exit
    """Below this, shedding ends."""


class ScalingSection(Section):
    """How the platform reacts to load."""

    mode: Literal["act", "recommend"] = "act"
    """`act` changes limits, `recommend` only records what it would change."""

    alpha: Share = 0.3
    """Weight of the newest sample in the moving average; 0.3 remembers about three."""

    thresholds: ThresholdsSection = ThresholdsSection()
    """When pressure begins and ends."""

    def pressure(self) -> PressureThresholds:
        """Return what gauges need."""
        return PressureThresholds(**self.thresholds.model_dump())


class TlsSection(Section):
    """Certificate of an HTTPS server."""

    certificate: File
    """File with the certificate and its chain, in PEM."""

    key: File
    """File with the private key, in PEM."""


class GatewaySection(Section):
    """The HTTP front door for publishing events."""

    enabled: Switch = False
    """Whether `dw up` starts it."""

    host: Host = "127.0.0.1"
    """Address it listens on; one that other machines reach needs `require_keys: true`."""

    port: Port = 8080
    """Port it listens on."""

    require_keys: Switch = False
    """Whether every request needs an API key; `dw keys create` makes one."""

    tls: TlsSection | None = None
    """Certificate and key for HTTPS; plain HTTP when not set."""

    max_request: Size = 8 * 1024 * 1024
    """Largest request it accepts."""

    request_timeout: Duration = timedelta(seconds=30)
    """How long one request may take, waiting under pressure included."""


class BusTopicSection(Section):
    """One topic of the message bus."""

    name: TopicName
    """Name of the topic; no stream may use it, too."""

    partitions: BusPartitions | None = None
    """Its own number of partitions; the bus's when not set."""

    hot: Switch = False
    """Whether its partitions are ring buffers, for many small messages in memory; not together with `durable`."""

    durable: Switch = False
    """Whether its messages are written to the log in HOME before they are acknowledged."""

    critical: Switch = False
    """Whether it is never refused under pressure."""


class BusSection(Section):
    """The message bus inside the gateway's process; `dw scale set bus` changes its limits while it runs."""

    max_topics: Positive = 1000
    """Most topics."""

    max_subscribers: Positive = 1000
    """Most subscribers of one topic."""

    max_queued: Positive = 1_000_000
    """Messages waiting in all partitions together, at which the bus counts as full."""

    partitions: BusPartitions = 4
    """Partitions of a topic that has no number of its own."""

    ring_size: RingSize = 65_536
    """Slots of a hot partition's ring; a power of two."""

    topics: tuple[BusTopicSection, ...] = ()
    """Topics that are hot, durable or critical; others are made when they are first used."""


class DagsterSection(Section):
    """Dagster's web interface."""

    host: Host = "127.0.0.1"
    """Address it listens on; it has no sign-in of its own, so think before opening it to others."""

    port: Port = 3000
    """Port it listens on."""


class FabricLimitsSection(Section):
    """How many nodes each topology carries."""

    star: Positive = 1000
    """Most nodes of a star."""

    mesh: Positive = 500
    """Most nodes of a mesh."""

    federated: Positive = 10_000
    """Most nodes of a federation."""

    star_switch: Positive = 800
    """Nodes at which a star becomes the next topology that has room."""

    mesh_switch: Positive = 400
    """Nodes at which a mesh becomes the next topology that has room."""


class FabricSection(Section):
    """The machines that work together."""

    topology: Literal["auto", "star", "mesh", "federated"] = "auto"
    """How nodes are connected; `auto` follows their number."""

    heartbeat: Duration = timedelta(seconds=15)
    """How often a node says that it is alive."""

    missed: Positive = 3
    """Heartbeats that may be missed before a node is removed."""

    limits: FabricLimitsSection = FabricLimitsSection()
    """How many nodes each topology carries."""
