"""Streams: publish anywhere, read by groups, on whichever broker keeps the records."""

from dw_platform.streaming.backpressure import StreamingBackpressureHandler
from dw_platform.streaming.checkpoints import StreamCheckpoint
from dw_platform.streaming.contract import (
    DEFAULT_PARTITIONS,
    Broker,
    Capabilities,
    Fetcher,
    TopicInfo,
    TopicSettings,
    ingest_group,
)
from dw_platform.streaming.definition import StreamDefinition
from dw_platform.streaming.directives import current_directive
from dw_platform.streaming.errors import (
    BrokerAccessError,
    BrokerUnavailableError,
    DamagedRecordsError,
    GroupFencedError,
    PublishTimedOutError,
    SequenceGapError,
    StreamRejectedError,
    StreamsClosedError,
    SubscriptionFailedError,
    UnsupportedByBrokerError,
)
from dw_platform.streaming.events import StreamEvent
from dw_platform.streaming.growth import Growth
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.manager import StreamingScalingManager
from dw_platform.streaming.publishing import (
    DegradationDirective,
    PartitionReceipt,
    ProducerStamp,
    PublishReceipt,
    StreamPublisher,
)
from dw_platform.streaming.scaler import ConsumersWanted
from dw_platform.streaming.settings import BrokerSettings, open_broker
from dw_platform.streaming.strategies import BackpressureStrategy
from dw_platform.streaming.subscription import StreamSubscription

__all__ = [
    "DEFAULT_PARTITIONS",
    "BackpressureStrategy",
    "Broker",
    "BrokerAccessError",
    "BrokerSettings",
    "BrokerUnavailableError",
    "Capabilities",
    "ConsumersWanted",
    "DamagedRecordsError",
    "DegradationDirective",
    "Fetcher",
    "GroupFencedError",
    "Growth",
    "PartitionReceipt",
    "ProducerStamp",
    "PublishReceipt",
    "PublishTimedOutError",
    "SequenceGapError",
    "StreamCheckpoint",
    "StreamDefinition",
    "StreamEvent",
    "StreamPublisher",
    "StreamRejectedError",
    "StreamSubscription",
    "StreamingBackpressureHandler",
    "StreamingLimits",
    "StreamingScalingManager",
    "StreamsClosedError",
    "SubscriptionFailedError",
    "TopicInfo",
    "TopicSettings",
    "UnsupportedByBrokerError",
    "current_directive",
    "ingest_group",
    "open_broker",
]
