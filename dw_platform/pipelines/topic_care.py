"""Making, growing, checking, maintaining and deleting topics.

The platform's own log is checked, maintained and deleted here. Another broker does that itself, with its own tools.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from dw_platform.log import (
    Finding,
    Log,
    PartitionLockedError,
    Severity,
    SubscriberOffsets,
    TopicExistsError,
    UnknownTopicError,
)
from dw_platform.pipelines.brokers import topic_settings
from dw_platform.pipelines.platform import Platform
from dw_platform.pipelines.topic_errors import (
    HeldByWriterError,
    NoOwnLogError,
    NotTheOwnLogError,
    PartitionsDifferError,
    TopicOfBusError,
)
from dw_platform.pipelines.topics import PlatformBrokers, owner_of, stream_of
from dw_platform.store import internal_key, internal_prefix, key_parts
from dw_platform.streaming import DEFAULT_PARTITIONS, TopicInfo, TopicSettings

# A writer at work may be in the middle of a frame; what is torn at the same place this often is torn.
_LOOKS = 3


def create_topic(brokers: PlatformBrokers, topic: str, partitions: int | None) -> TopicInfo:
    """Make a topic, with its stream's settings if it has one; raise TopicExistsError if it is there."""
    stream = stream_of(brokers.config, topic)
    if stream is None and owner_of(brokers.config, topic):
        raise TopicOfBusError(topic, "give partitions to")
    if stream is not None and partitions and stream.partitions and partitions != stream.partitions:
        raise PartitionsDifferError(topic, partitions, stream.name, stream.partitions)
    settings = topic_settings(stream) if stream else TopicSettings()
    wanted = TopicSettings(partitions or settings.partitions or DEFAULT_PARTITIONS, settings.policy)
    broker = brokers.of(topic)
    with contextlib.suppress(UnknownTopicError):
        broker.topic(topic)
        raise TopicExistsError(topic)
    return broker.ensure_topic(topic, wanted)


def grow_topic(brokers: PlatformBrokers, topic: str, partitions: int) -> tuple[TopicInfo, TopicInfo]:
    """Add partitions and return the topic before and after.

    Publishers of a stream go on with the old number until every group has read what was published under it, so order
    within a key holds.
    """
    if owner_of(brokers.config, topic) == "bus":
        raise TopicOfBusError(topic, "grow")
    broker = brokers.of(topic)
    return broker.topic(topic), broker.grow(topic, partitions)


def own_topics(brokers: PlatformBrokers, topic: str | None, what: str) -> list[str]:
    """Return the topic, or all of the platform's own log; raise for one that another broker keeps."""
    if topic is None:
        embedded = [section for section in brokers.sections() if section.kind == "embedded"]
        if not embedded:
            raise NoOwnLogError(what)
        return brokers.open(embedded[0]).topics()
    section = brokers.section_of(topic)
    if section.kind != "embedded":
        raise NotTheOwnLogError(what, topic, section.kind)
    brokers.open(section).topic(topic)
    return [topic]


def verify_partition(platform: Platform, topic: str, partition: int) -> list[Finding]:
    """Read every byte of a partition and return what is not as it should be; a writer at work is no fault."""
    log = Log(platform.config.log_directory)
    findings = log.verify_partition(topic, partition)
    for _ in range(_LOOKS - 1):
        torn = {(finding.file, finding.position) for finding in findings if finding.severity is Severity.TORN}
        if not torn:
            break
        findings = [
            finding
            for finding in log.verify_partition(topic, partition)
            if finding.severity is not Severity.TORN or (finding.file, finding.position) in torn
        ]
    return findings


@dataclass(frozen=True, slots=True, kw_only=True)
class CareReport:
    """What maintaining a topic did."""

    topic: str
    records_dropped: int
    """Those that retention removed; what compaction leaves out shows in the size only."""

    bytes_before: int
    bytes_after: int


def maintain_topic(platform: Platform, brokers: PlatformBrokers, topic: str) -> CareReport:
    """Apply retention and compaction now; raise HeldByWriterError if another process writes, which does it itself."""
    broker, log = brokers.of(topic), Log(platform.config.log_directory)
    numbers = range(broker.topic(topic).partitions)
    before, starts = sum(log.files(topic, number).bytes for number in numbers), broker.start_offsets(topic)
    try:
        broker.maintain(topic)
    except PartitionLockedError as error:
        advice = "A gateway applies retention and compaction itself, every half minute."
        raise HeldByWriterError("maintained", topic, error.holder, advice=advice) from error
    moved = broker.start_offsets(topic)
    return CareReport(
        topic=topic,
        records_dropped=sum(moved[number] - start for number, start in starts.items()),
        bytes_before=before,
        bytes_after=sum(log.files(topic, number).bytes for number in numbers),
    )


def delete_topic(platform: Platform, topic: str) -> None:
    """Remove a topic of the own log with its records and with all that is stored about it.

    A crash in between leaves the topic without its groups, and deleting it again ends the work. It never leaves a
    group's offset behind, which would make it skip records of a new topic of that name.
    """

    def forget() -> None:
        for key in _kept_about(platform, topic):
            platform.store.delete(key)

    try:
        Log(platform.config.log_directory).delete_topic(topic, first=forget)
    except PartitionLockedError as error:
        advice = "Stop that process first; the lock ends with it."
        raise HeldByWriterError("deleted", topic, error.holder, advice=advice) from error


def _kept_about(platform: Platform, topic: str) -> Iterator[str]:
    store, offsets = platform.store, SubscriberOffsets(platform.store)
    yield from (internal_key("log", "offsets", topic, group) for group in offsets.groups(topic))
    yield internal_key("bus", "map", topic)
    for key in list(store.list_versions(internal_prefix("streaming"))):
        # dw://internal/streaming/{what}/{topic}...
        if key_parts(key)[2:3] == (topic,):
            yield key
