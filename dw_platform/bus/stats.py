"""The numbers of a bus: a frozen snapshot for people and tests, and flat metrics for the control store."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dw_platform.bus.backpressure import PublishDecision
from dw_platform.bus.meters import LatencyHistogram, RateMeter
from dw_platform.bus.topic import Topic
from dw_platform.foundation import Clock

# A snapshot goes to the control store every few seconds; the fullest partitions are those that explain anything.
PARTITIONS_SHOWN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """One topic at one moment."""

    version: int
    partitions: int
    subscribers: int
    dropped: int
    depths: Mapping[str, int]
    """Messages that wait for the slowest group, by `v{version}.p{partition}`."""

    queues: Mapping[str, float]
    """Numbers of the partitions' own kind, such as `p0.ring_published`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusStats:
    """The whole bus at one moment."""

    topics: Mapping[str, TopicStats]
    totals: Mapping[str, float]


class Traffic:
    """Counts what passes; any thread may use it."""

    def __init__(self, *, clock: Clock) -> None:
        self._published, self._consumed = RateMeter(clock=clock), RateMeter(clock=clock)
        self._rejected, self._delayed = RateMeter(clock=clock), RateMeter(clock=clock)
        self._latency = LatencyHistogram()

    def published(self, messages: int, seconds: float, decision: PublishDecision) -> None:
        """Count a publish that took this long, with its delay."""
        self._published.add(messages)
        self._latency.record(seconds)
        if decision.delay:
            self._delayed.add(messages)

    def rejected(self, messages: int) -> None:
        """Count messages that were refused under pressure."""
        self._rejected.add(messages)

    def consumed(self, messages: int) -> None:
        """Count messages that a subscriber has committed."""
        self._consumed.add(messages)

    def stats(self, topics: Iterable[Topic]) -> BusStats:
        """Return the snapshot."""
        by_name = {topic.name: _topic_stats(topic) for topic in topics}
        depths = [depth for topic in by_name.values() for depth in topic.depths.values()]
        totals = {
            "topics": len(by_name),
            "subscribers": sum(topic.subscribers for topic in by_name.values()),
            "depth": sum(depths),
            "deepest_partition": max(depths, default=0),
            "published_total": self._published.total,
            "published_per_s": self._published.per_second(),
            "consumed_total": self._consumed.total,
            "consumed_per_s": self._consumed.per_second(),
            "dropped_total": sum(topic.dropped for topic in by_name.values()),
            "rejected_total": self._rejected.total,
            "delayed_total": self._delayed.total,
            **{f"publish_p{share}_ms": self._latency.percentile(share / 100) * 1_000 for share in (50, 95, 99)},
        }
        return BusStats(topics=by_name, totals=totals)


def _topic_stats(topic: Topic) -> TopicStats:
    return TopicStats(
        version=topic.version,
        partitions=topic.layout.partitions,
        subscribers=topic.subscribers(),
        dropped=topic.dropped,
        depths=topic.depths(),
        queues=topic.queue_metrics(),
    )


def flat_metrics(stats: BusStats) -> dict[str, float]:
    """Return the totals, and of the fullest partitions the depth and what their queues say."""
    depths = [
        (depth, f"{name}.{partition}")
        for name, topic in stats.topics.items()
        for partition, depth in topic.depths.items()
    ]
    metrics = dict(stats.totals)
    metrics |= {f"depth.{partition}": depth for depth, partition in sorted(depths, reverse=True)[:PARTITIONS_SHOWN]}
    queues = (
        (f"queue.{name}.{key}", value) for name, topic in stats.topics.items() for key, value in topic.queues.items()
    )
    return metrics | dict(sorted(queues)[: 3 * PARTITIONS_SHOWN])
