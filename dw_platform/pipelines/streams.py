"""The streams of `platform.yaml`, ready to publish to and to read from; for the gateway, `dw` and Python."""

from dw_platform.config import StreamSection
from dw_platform.pipelines.brokers import stream_broker_settings, topic_settings
from dw_platform.pipelines.limits import streaming_limits
from dw_platform.pipelines.platform import Platform
from dw_platform.scaling import ScalabilityConfig
from dw_platform.streaming import (
    BackpressureStrategy,
    Broker,
    StreamDefinition,
    StreamingScalingManager,
    ingest_group,
    open_broker,
)


def open_streams(platform: Platform) -> StreamingScalingManager:
    """Return what publishes to and reads from all streams; closing it closes their brokers.

    Nothing is connected yet: a topic is made, and the group of its ingest registered, when it is first used or, after
    `start`, shortly afterwards. Streams at the same broker share one connection.
    """
    # By what the settings say, because they hold a mapping and so have no hash.
    brokers: dict[str, Broker] = {}
    definitions = []
    for stream in platform.config.streams:
        settings = stream_broker_settings(platform.config, stream)
        place = repr((settings, settings.password, sorted(settings.options.items())))
        if place not in brokers:
            brokers[place] = open_broker(settings, store=platform.store)
        definitions.append(stream_definition(stream, brokers[place]))
    limits = streaming_limits(platform.config)
    return StreamingScalingManager(
        definitions, store=platform.store, limits=limits, clock=platform.clock, owns_brokers=True
    )


def stream_definition(stream: StreamSection, broker: Broker) -> StreamDefinition:
    """Return what `platform.yaml` says about one stream."""
    return StreamDefinition(
        topic=stream.topic_name,
        broker=broker,
        settings=topic_settings(stream),
        strategy=BackpressureStrategy(stream.backpressure),
        capacity=stream.capacity,
        critical=stream.critical,
        durable=stream.durable,
        groups=(ingest_group(stream.name),),
        scalability=scalability_config(stream),
        checkpoint_every=stream.checkpoint_every,
    )


def scalability_config(stream: StreamSection) -> ScalabilityConfig:
    """Return when the stream grows and how far, as the decisions in `dw_platform.scaling` take it."""
    section = stream.scalability
    return ScalabilityConfig(
        max_partitions=section.max_partitions,
        max_consumers=section.max_consumers,
        scale_up_threshold=section.scale_up_threshold,
        max_lag_ms=max(round(section.max_lag.total_seconds() * 1_000), 1),
        target_throughput_per_partition=section.target_throughput_per_partition,
    )
