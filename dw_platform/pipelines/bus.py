"""The message bus as `platform.yaml` describes it; the gateway's process hosts it."""

from dw_platform.bus import LogStorage, ScalableMessageBus, TopicOptions
from dw_platform.config import PlatformConfig
from dw_platform.pipelines.limits import bus_limits
from dw_platform.pipelines.platform import Platform


def bus_topics(config: PlatformConfig) -> dict[str, TopicOptions]:
    """Return the declared topics with what is particular to each."""
    return {
        topic.name: TopicOptions(
            partitions=topic.partitions, hot=topic.hot, durable=topic.durable, critical=topic.critical
        )
        for topic in config.bus.topics
    }


def open_bus(platform: Platform) -> ScalableMessageBus:
    """Return the bus; the caller closes it.

    Nothing is opened yet: the log of a durable topic is with its first use, and from then on this process is the only
    one that can write it.
    """
    return ScalableMessageBus(
        limits=bus_limits(platform.config),
        topics=bus_topics(platform.config),
        storage=LogStorage(platform.config.log_directory, platform.store),
        clock=platform.clock,
    )
