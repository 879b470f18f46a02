"""The topics of all brokers of a platform: which there are, whose they are, how full, and who reads them how far.

Looking needs no lock, so it never disturbs whoever publishes. Groups' offsets are the broker's: an ingest commits its
own after its table, so its lag here is what the table has not got yet, or a moment behind that.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from dw_platform.config import BrokerSection, PlatformConfig, StreamSection
from dw_platform.foundation import PlatformError
from dw_platform.log import Log, LogPolicy, RecordsExpiredError, UnknownTopicError
from dw_platform.pipelines.brokers import broker_settings
from dw_platform.pipelines.platform import Platform
from dw_platform.streaming import Broker, open_broker

_EMBEDDED = BrokerSection()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOverview:
    """One partition; sizes only where the platform keeps the files itself."""

    number: int
    start: int
    end: int
    segments: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverview:
    """How far one group has read one partition."""

    group: str
    partition: int
    offset: int
    """Where it reads next."""

    lag: int
    """Records between that and the end, at most: offsets can have gaps."""

    expired: int
    """Records that retention removed before it read them."""

    oldest: timedelta | None = None
    """For how long the next record has been waiting; None if there is none, or nobody looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverview:
    """One topic."""

    name: str
    broker: str
    owner: str
    """What the topic belongs to: streams, the bus, or nothing in the file."""

    version: int
    partitions: tuple[PartitionOverview, ...]
    groups: tuple[GroupOverview, ...]
    policy: LogPolicy | None = None
    """How the platform's own log keeps it; another broker has its own settings."""

    @property
    def records(self) -> int:
        """How many records it holds, at most: offsets can have gaps."""
        return sum(partition.end - partition.start for partition in self.partitions)

    @property
    def bytes(self) -> int | None:
        """What it takes on disk, where that is known."""
        sizes = [partition.bytes for partition in self.partitions if partition.bytes is not None]
        return sum(sizes) if sizes else None

    @property
    def lags(self) -> dict[str, int]:
        """How many records wait for each group."""
        found: dict[str, int] = {}
        for group in self.groups:
            found[group.group] = found.get(group.group, 0) + group.lag
        return found


class PlatformBrokers:
    """Every broker that the file names, opened when first used; `close` closes them all."""

    def __init__(self, platform: Platform) -> None:
        self._platform, self.config = platform, platform.config
        self._opened: dict[BrokerSection, Broker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened; closing twice is harmless."""
        with contextlib.ExitStack() as stack:
            while self._opened:
                stack.callback(self._opened.popitem()[1].close)

    def sections(self) -> list[BrokerSection]:
        """Return the brokers in use: the platform's, those of streams, and the own log if the bus needs it."""
        found = [self.config.broker, *(self.config.broker_of(stream) for stream in self.config.streams)]
        found += [_EMBEDDED] * any(topic.durable for topic in self.config.bus.topics)
        return list(dict.fromkeys(map(_same, found)))

    def section_of(self, topic: str) -> BrokerSection:
        """Return the broker that keeps the topic, or would: its stream's, the bus's, else the platform's."""
        if stream := stream_of(self.config, topic):
            return _same(self.config.broker_of(stream))
        return _EMBEDDED if topic in _bus_topics(self.config) else _same(self.config.broker)

    def open(self, section: BrokerSection) -> Broker:
        """Return the broker of a section."""
        if section not in self._opened:
            settings = broker_settings(self.config, section)
            self._opened[section] = open_broker(settings, store=self._platform.store)
        return self._opened[section]

    def of(self, topic: str) -> Broker:
        """Return the broker that keeps the topic, or would."""
        return self.open(self.section_of(topic))


def _same(section: BrokerSection) -> BrokerSection:
    """There is one embedded log, however it is written."""
    return _EMBEDDED if section.kind == "embedded" else section


def stream_of(config: PlatformConfig, topic: str) -> StreamSection | None:
    """Return the first stream that reads the topic, if one does."""
    return next((stream for stream in config.streams if stream.topic_name == topic), None)


def _bus_topics(config: PlatformConfig) -> set[str]:
    return {topic.name for topic in config.bus.topics}


def owner_of(config: PlatformConfig, topic: str) -> str:
    """Return whose topic it is, for people."""
    streams = [stream.name for stream in config.streams if stream.topic_name == topic]
    if streams:
        return f"stream {', '.join(streams)}"
    return "bus" if topic in _bus_topics(config) else ""


def topics_overview(platform: Platform, brokers: PlatformBrokers) -> Iterator[TopicOverview | PlatformError]:
    """Yield every topic of every broker; a broker that is down yields its error, and the others follow."""
    for section in brokers.sections():
        try:
            broker = brokers.open(section)
            names = broker.topics()
        except PlatformError as error:
            yield error
            continue
        for name in names:
            # A topic that is deleted meanwhile is not there; nothing is wrong with the others.
            with contextlib.suppress(UnknownTopicError):
                yield _overview(platform, broker, name, now=None)


def topic_overview(platform: Platform, brokers: PlatformBrokers, topic: str) -> TopicOverview:
    """Return one topic with the age of what each group reads next; raise UnknownTopicError if there is none."""
    return _overview(platform, brokers.of(topic), topic, now=platform.clock.now())


def _overview(platform: Platform, broker: Broker, topic: str, *, now: datetime | None) -> TopicOverview:
    info = broker.topic(topic)
    starts, ends = broker.start_offsets(topic), broker.end_offsets(topic)
    log = Log(platform.config.log_directory) if broker.kind == "embedded" else None
    return TopicOverview(
        name=topic,
        broker=broker.kind,
        owner=owner_of(platform.config, topic),
        version=info.version,
        partitions=tuple(
            _partition(log, topic, number, starts.get(number, 0), ends[number]) for number in sorted(ends)
        ),
        groups=tuple(_groups(broker, topic, starts, ends, now)),
        policy=log.describe(topic).policy if log else None,
    )


def _partition(log: Log | None, topic: str, number: int, start: int, end: int) -> PartitionOverview:
    if log is None:
        return PartitionOverview(number=number, start=start, end=end)
    files = log.files(topic, number)
    return PartitionOverview(number=number, start=start, end=end, segments=files.segments, bytes=files.bytes)


def _groups(
    broker: Broker, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], now: datetime | None
) -> Iterator[GroupOverview]:
    for group in broker.groups(topic):
        committed = broker.committed(topic, group)
        for number in sorted(ends):
            start, end = starts.get(number, 0), ends[number]
            # Who has committed nothing here begins with the oldest record; nothing has expired for it.
            offset = committed.get(number, start)
            lag = max(0, end - max(offset, start))
            yield GroupOverview(
                group=group,
                partition=number,
                offset=offset,
                lag=lag,
                expired=max(0, start - offset),
                oldest=_waiting(broker, topic, number, max(offset, start), now) if now and lag else None,
            )


def _waiting(broker: Broker, topic: str, partition: int, offset: int, now: datetime) -> timedelta | None:
    fetcher = broker.fetcher(topic, partition)
    try:
        batch = fetcher.fetch(offset, max_records=1)
    except RecordsExpiredError:  # retention was faster than we
        return None
    finally:
        fetcher.close()
    times = [part["timestamp"][0].as_py() for part in batch.batches[:1]]
    return max(timedelta(0), now - times[0]) if times else None
