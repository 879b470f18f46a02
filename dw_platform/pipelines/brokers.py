"""From `platform.yaml` to a broker: the one place where a section becomes settings and settings become a broker."""

from dw_platform.config import BrokerSection, PlatformConfig, StreamSection
from dw_platform.pipelines.platform import Platform
from dw_platform.streaming import Broker, BrokerSettings, TopicSettings, open_broker
from dw_platform.streaming.contract import DEFAULT_PARTITIONS


def broker_settings(config: PlatformConfig, section: BrokerSection) -> BrokerSettings:
    """Return what opens the broker of `section`, with its password in the clear; picklable, so that tasks can use it.

    The embedded log lies in the platform's home, whoever opens it and from whichever folder.
    """
    return BrokerSettings(
        kind=section.kind,
        address=section.address.get_secret_value() if section.address else "",
        username=section.username,
        password=section.password.get_secret_value() if section.password else None,
        options=dict(section.options),
        directory=str(config.log_directory.absolute()) if section.kind == "embedded" else "",
    )


def stream_broker_settings(config: PlatformConfig, stream: StreamSection) -> BrokerSettings:
    """Return what opens the broker that keeps the stream's topic."""
    return broker_settings(config, config.broker_of(stream))


def open_stream_broker(platform: Platform, stream: StreamSection) -> Broker:
    """Return the broker that keeps the stream's topic; the caller closes it. Nothing is connected yet."""
    return open_broker(stream_broker_settings(platform.config, stream), store=platform.store)


def topic_settings(stream: StreamSection) -> TopicSettings:
    """Return how the stream's topic is made if it is not there."""
    return TopicSettings(partitions=stream.partitions or DEFAULT_PARTITIONS, policy=stream.log_policy())
