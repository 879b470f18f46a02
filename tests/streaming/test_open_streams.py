"""From platform.yaml to streams that can be published to."""

from pathlib import Path

import pytest

from dw_platform.config import parse_config
from dw_platform.log import FsyncMode, Log, Records
from dw_platform.pipelines import Platform
from dw_platform.pipelines.streams import open_streams, stream_definition
from dw_platform.scaling import ScalabilityConfig
from dw_platform.streaming import BackpressureStrategy, ingest_group
from tests.streaming.streams import memory

PLATFORM = """
name: tested
home: home
scaling: {thresholds: {warning: 0.65}}
streams:
  - {name: orders, table: shop.orders, topic: sales, partitions: 3, backpressure: adaptive, capacity: 500}
  - {name: audit, table: shop.audit, topic: sales, partitions: 3, backpressure: adaptive}
  - name: clicks
    table: web.clicks
    durable: false
    backpressure: drop_oldest
    max_record: 10KiB
    checkpoint_every: 1s
    scalability: {max_partitions: 9, max_consumers: 2, max_lag: 1500ms, target_throughput_per_partition: 7}
"""


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform(parse_config(PLATFORM, source=tmp_path / "platform.yaml", environ={}))


def test_topics_are_made_with_their_settings_and_their_ingest_registered(platform: Platform) -> None:
    with platform, open_streams(platform) as streams:
        assert streams.topics() == ["clicks", "sales"]
        streams.evaluate()
        log = Log(platform.config.log_directory)
        assert log.describe("sales").partitions == 3
        assert log.describe("clicks").partitions == 4
        assert log.describe("clicks").policy.fsync.mode is FsyncMode.NEVER
        assert log.describe("clicks").policy.max_record_bytes == 10 * 1024
        broker = streams._streams["sales"].broker
        assert broker is streams._streams["clicks"].broker
        assert broker.groups("sales") == [ingest_group("audit"), ingest_group("orders")]
        assert streams.backpressure("sales").capacity == 500
        assert streams.current_limits().thresholds.warning == 0.65
        assert streams.publish_sync("sales", Records([b"x"])).records == 1
    # Closed with its brokers: the partitions are free.
    with Log(platform.config.log_directory).writer("sales", 0):
        pass


def test_opening_connects_to_nothing(platform: Platform) -> None:
    with platform:
        open_streams(platform).close()
        assert not platform.config.log_directory.exists()


def test_a_stream_says_how_far_it_grows_and_what_it_promises(platform: Platform) -> None:
    clicks = platform.config.stream("clicks")
    assert clicks is not None
    found = stream_definition(clicks, memory())
    assert found.scalability == ScalabilityConfig(
        max_partitions=9, max_consumers=2, max_lag_ms=1_500, target_throughput_per_partition=7
    )
    assert (found.durable, found.strategy) == (False, BackpressureStrategy.DROP_OLDEST)
    assert found.checkpoint_every.total_seconds() == 1.0
