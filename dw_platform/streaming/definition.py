"""What a stream is to those who publish and read it: a topic of a broker, and how it behaves under load."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby

from dw_platform.foundation import InvalidValueError
from dw_platform.log import check_name
from dw_platform.scaling import ScalabilityConfig
from dw_platform.streaming.contract import Broker, TopicSettings
from dw_platform.streaming.errors import UnsupportedByBrokerError
from dw_platform.streaming.strategies import BackpressureStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition:
    """One stream; several may share a topic, and then agree on what concerns publishing to it."""

    topic: str
    broker: Broker
    settings: TopicSettings = field(default_factory=TopicSettings)
    """How the topic is made if it is not there."""

    strategy: BackpressureStrategy = BackpressureStrategy.BLOCK
    capacity: int = 10_000_000
    """Records waiting for the slowest of `groups` at which the stream is full."""

    critical: bool = False
    """Whether its records are never refused under pressure; publishers wait instead."""

    durable: bool = True
    """Whether an acknowledged record may never be dropped."""

    groups: tuple[str, ...] = ()
    """Groups whose lag is the stream's depth; without any it is never full."""

    scalability: ScalabilityConfig = field(default_factory=ScalabilityConfig)
    checkpoint_every: timedelta = timedelta(seconds=5)
    """How often a subscription with automatic commit stores how far it has read."""

    def __post_init__(self) -> None:
        check_name("topic", self.topic)
        for group in self.groups:
            check_name("group", group)
        if self.capacity < 1:
            raise InvalidValueError("capacity", self.capacity, "at least 1")
        if self.checkpoint_every <= timedelta(0):
            raise InvalidValueError("checkpoint_every", self.checkpoint_every, "above 0")
        object.__setattr__(self, "strategy", BackpressureStrategy.named(self.strategy))
        check_strategy(self, self.strategy)


def check_strategy(definition: StreamDefinition, strategy: BackpressureStrategy) -> None:
    """Refuse a strategy that would break what the stream promises, or that its broker cannot follow."""
    if strategy is not BackpressureStrategy.DROP_OLDEST:
        return
    if definition.durable:
        allowed = f"not drop_oldest for {definition.topic}, which is durable: what was acknowledged is never dropped"
        raise InvalidValueError("strategy", str(strategy), allowed)
    if not definition.broker.capabilities.drops:
        raise UnsupportedByBrokerError(definition.broker.kind, "drop the oldest records of a topic")


def merged(definitions: Iterable[StreamDefinition]) -> list[StreamDefinition]:
    """Return one definition a topic: the smallest capacity, the most partitions, all groups, critical if one is.

    Raise InvalidValueError where streams of one topic differ in what can only be one thing.
    """
    ordered = sorted(definitions, key=lambda definition: definition.topic)
    return [_merge(list(same)) for _, same in groupby(ordered, key=lambda definition: definition.topic)]


def _merge(same: list[StreamDefinition]) -> StreamDefinition:
    first = same[0]
    for other in same[1:]:
        for name in ("broker", "strategy", "durable"):
            if getattr(other, name) != getattr(first, name):
                allowed = f"the same for all streams of {first.topic}, because they are published to together"
                raise InvalidValueError(name, str(getattr(other, name)), allowed)
    return replace(
        first,
        settings=max((one.settings for one in same), key=lambda settings: settings.partitions),
        capacity=min(one.capacity for one in same),
        critical=any(one.critical for one in same),
        groups=tuple(dict.fromkeys(group for one in same for group in one.groups)),
        checkpoint_every=min(one.checkpoint_every for one in same),
    )
