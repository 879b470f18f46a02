"""Streams: publish anywhere, read by groups, on whichever broker keeps the records."""

from dw_platform.streaming.contract import (
    DEFAULT_PARTITIONS,
    Broker,
    Capabilities,
    Fetcher,
    TopicInfo,
    TopicSettings,
    ingest_group,
)
from dw_platform.streaming.errors import (
    BrokerUnavailableError,
    GroupFencedError,
    PublishTimedOutError,
    SequenceGapError,
    StreamRejectedError,
    UnsupportedByBrokerError,
)
from dw_platform.streaming.settings import BrokerSettings, open_broker

__all__ = [
    "DEFAULT_PARTITIONS",
    "Broker",
    "BrokerSettings",
    "BrokerUnavailableError",
    "Capabilities",
    "Fetcher",
    "GroupFencedError",
    "PublishTimedOutError",
    "SequenceGapError",
    "StreamRejectedError",
    "TopicInfo",
    "TopicSettings",
    "UnsupportedByBrokerError",
    "ingest_group",
    "open_broker",
]
