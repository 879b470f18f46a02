"""Streams for ingest tests: a platform with one stream, a publisher for its topic, and what its table holds."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dw_platform.log import Records
from dw_platform.pipelines import Platform
from dw_platform.pipelines.brokers import open_stream_broker, topic_settings
from dw_platform.pipelines.ingest import find_stream
from dw_platform.streaming import TopicSettings

RAW = """
name: tested
home: home
streams:
  - {name: clicks, table: web.clicks, partitions: 2}
"""

TYPED = """
name: tested
home: home
streams:
  - name: orders
    table: shop.orders
    partitions: 2
    format: json
    columns: {id: bigint, amount: "decimal(12,2)", at: timestamp, note: string}
    max_rejected: 50%
"""


def make_topic(platform: Platform, stream: str = "clicks", settings: TopicSettings | None = None) -> None:
    section = find_stream(platform, stream)
    with open_stream_broker(platform, section) as broker:
        broker.ensure_topic(section.topic_name, settings or topic_settings(section))


def publish(platform: Platform, values: Sequence[bytes | None], partition: int = 0, stream: str = "clicks") -> None:
    """Make the topic if need be, and append the values to one partition."""
    make_topic(platform, stream)
    section = find_stream(platform, stream)
    with open_stream_broker(platform, section) as broker:
        broker.publish(section.topic_name, partition, Records(list(values)))


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def rows_of(platform: Platform, table: str) -> list[dict[str, Any]]:
    return list(platform.lake.table(table).snapshot().read_arrow().to_pylist())


def offsets_of(platform: Platform, table: str = "web.clicks") -> list[tuple[int, int]]:
    """Return (partition, offset) of every row, sorted; a doubled row is there twice."""
    found: pa.Table = platform.lake.table(table).snapshot().read_arrow()
    prefix = "_" if "_offset" in found.schema.names else ""
    pairs = zip(found[f"{prefix}partition"].to_pylist(), found[f"{prefix}offset"].to_pylist(), strict=True)
    return sorted(pairs)


def expected(*counts: int) -> list[tuple[int, int]]:
    """Return (partition, offset) of partitions that have these many records."""
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]
