"""How far a stream's table is behind its topic, from the table's own positions and the broker's offsets; no JVM.

The table decides, not the group at the broker: what the table has committed is what readers see.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from dw_platform.config import StreamSection
from dw_platform.log import RecordsExpiredError, UnknownTopicError
from dw_platform.pipelines.brokers import open_stream_broker
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.positions import table_positions
from dw_platform.streaming import Broker


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition: where the table reads next, and where the topic ends."""

    position: int
    end: int

    @property
    def records(self) -> int:
        """How many offsets lie between."""
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class StreamLag:
    """All partitions of one stream, and for how long its oldest unread record has been waiting."""

    stream: str
    partitions: Mapping[int, PartitionLag]
    oldest: timedelta | None = None

    @property
    def records(self) -> int:
        """How many records wait in all partitions, at most: offsets can have gaps."""
        return sum(partition.records for partition in self.partitions.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "lag": self.records,
            "oldest_s": None if self.oldest is None else round(self.oldest.total_seconds(), 3),
            "partitions": {str(number): asdict(lag) | {"lag": lag.records} for number, lag in self.partitions.items()},
        }


def stream_lag(platform: Platform, stream: StreamSection, broker: Broker | None = None) -> StreamLag:
    """Return how far the stream's table is behind; nothing waits in a topic that nobody has made yet."""
    if broker is None:
        with open_stream_broker(platform, stream) as opened:
            return stream_lag(platform, stream, opened)
    try:
        starts, ends = broker.start_offsets(stream.topic_name), broker.end_offsets(stream.topic_name)
    except UnknownTopicError:
        return StreamLag(stream.name, {})
    positions = table_positions(platform, stream, ends)
    partitions = {
        number: PartitionLag(positions.get(number, starts.get(number, 0)), end) for number, end in ends.items()
    }
    return StreamLag(stream.name, partitions, _oldest(platform, stream, broker, partitions))


def _oldest(
    platform: Platform, stream: StreamSection, broker: Broker, partitions: Mapping[int, PartitionLag]
) -> timedelta | None:
    times = []
    for number, lag in partitions.items():
        if not lag.records:
            continue
        fetcher = broker.fetcher(stream.topic_name, number)
        try:
            batch = fetcher.fetch(lag.position, max_records=1)
        except RecordsExpiredError as expired:
            batch = fetcher.fetch(expired.earliest, max_records=1)
        finally:
            fetcher.close()
        times += [part["timestamp"][0].as_py() for part in batch.batches[:1]]
    return max(timedelta(0), platform.clock.now() - min(times)) if times else None
