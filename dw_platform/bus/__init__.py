"""The message bus: partitioned topics, groups, rings, durable topics, and limits that change while it runs."""

from dw_platform.bus.assignment import assign
from dw_platform.bus.backpressure import HEADER, MessageBusBackpressure, PublishDecision, decide_publish
from dw_platform.bus.contract import MessageBus, Subscription
from dw_platform.bus.durable import LogStorage
from dw_platform.bus.errors import (
    BusClosedError,
    InvalidMessageError,
    MessageTooLargeError,
    PublishRejectedError,
    SubscriptionClosedError,
    TooManySubscribersError,
    TooManyTopicsError,
    TopicDeclaredError,
)
from dw_platform.bus.limits import BusLimits, TopicOptions
from dw_platform.bus.memory import InMemoryMessageBus
from dw_platform.bus.message import Delivery, Message, hot
from dw_platform.bus.ring import RingBuffer, RingConsumer
from dw_platform.bus.scalable import ScalableMessageBus
from dw_platform.bus.stats import BusStats, TopicStats
from dw_platform.bus.subscription import TopicSubscription
from dw_platform.bus.waiting import WaitStrategy
from dw_platform.bus.wal import WalMessageQueue

__all__ = [
    "HEADER",
    "BusClosedError",
    "BusLimits",
    "BusStats",
    "Delivery",
    "InMemoryMessageBus",
    "InvalidMessageError",
    "LogStorage",
    "Message",
    "MessageBus",
    "MessageBusBackpressure",
    "MessageTooLargeError",
    "PublishDecision",
    "PublishRejectedError",
    "RingBuffer",
    "RingConsumer",
    "ScalableMessageBus",
    "Subscription",
    "SubscriptionClosedError",
    "TooManySubscribersError",
    "TooManyTopicsError",
    "TopicDeclaredError",
    "TopicOptions",
    "TopicStats",
    "TopicSubscription",
    "WaitStrategy",
    "WalMessageQueue",
    "assign",
    "decide_publish",
    "hot",
]
