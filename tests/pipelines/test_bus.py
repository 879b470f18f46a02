"""The bus and the limits are what `platform.yaml` says."""

from dw_platform.bus import Message, TopicOptions
from dw_platform.pipelines.bus import bus_topics, open_bus
from dw_platform.pipelines.limits import bus_limits, limit_catalogue
from dw_platform.scaling import PressureThresholds
from tests.pipelines.conftest import MakePlatform

BUS = """
name: tested
home: home
scaling: {thresholds: {warning: 65%}}
bus:
  max_topics: 10
  max_subscribers: 3
  max_queued: 1_000
  partitions: 2
  ring_size: 1_024
  topics:
    - {name: prices, partitions: 1, hot: true}
    - {name: audit, durable: true, critical: true}
"""


def test_limits_and_topics_come_from_the_file(make_platform: MakePlatform) -> None:
    config = make_platform(BUS).config
    limits = bus_limits(config)
    assert (limits.max_topics, limits.max_subscribers_per_topic, limits.max_message_queue_size) == (10, 3, 1_000)
    assert (limits.partitions, limits.ring_size) == (2, 1_024)
    assert limits.thresholds == PressureThresholds(warning=0.65)
    assert bus_topics(config) == {
        "prices": TopicOptions(partitions=1, hot=True),
        "audit": TopicOptions(durable=True, critical=True),
    }
    assert limit_catalogue(config).configured("bus") == limits


def test_messages_of_a_durable_topic_outlive_the_bus(make_platform: MakePlatform) -> None:
    platform = make_platform(BUS)
    bus = open_bus(platform)
    assert bus.current_limits() == bus_limits(platform.config)
    bus.publish_sync("audit", [Message(b"signed in", key=b"jo")])
    bus.close_sync()
    assert (platform.config.log_directory / "audit").is_dir()
    again = open_bus(platform)
    subscription = again.subscribe("audit", "readers")
    assert [delivery.message.value for delivery in subscription.take(10)] == [b"signed in"]
    subscription.close()
    again.close_sync()


def test_opening_a_bus_writes_no_log(make_platform: MakePlatform) -> None:
    platform = make_platform(BUS)
    bus = open_bus(platform)
    assert not platform.config.log_directory.exists()
    bus.close_sync()
