"""How `dw topics` shows topics: as tables for people, as JSON for programs."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from rich.text import Text

from dw_platform.cli.output import emit_table, say
from dw_platform.foundation import format_bytes, format_duration
from dw_platform.log import FsyncMode, LogPolicy
from dw_platform.pipelines.topics import GroupOverview, PartitionOverview, TopicOverview


def listed_row(topic: TopicOverview) -> tuple[object, ...]:
    """Return one line of the list."""
    groups = ", ".join(f"{group}: {lag:,}" for group, lag in topic.lags.items())
    size = None if topic.bytes is None else format_bytes(topic.bytes)
    return (topic.name, topic.owner or None, topic.broker, len(topic.partitions), topic.records, size, groups or None)


def show_topic(topic: TopicOverview) -> None:
    """Print everything about one topic."""
    owner = f"belongs to {topic.owner}, " if topic.owner else ""
    say(Text.assemble((topic.name, "bold"), f": {owner}{topic.broker} broker, partition map version {topic.version}"))
    if topic.policy is not None:
        say(policy_text(topic.policy))
    say()
    emit_table("", ["partition", "start", "end", "records", "size", "files"], map(_partition_row, topic.partitions))
    say()
    if topic.groups:
        emit_table("", ["group", "partition", "offset", "lag", "oldest waits"], map(_group_row, topic.groups))
    else:
        say("No group reads it.")


def _partition_row(partition: PartitionOverview) -> tuple[object, ...]:
    size = None if partition.bytes is None else format_bytes(partition.bytes)
    records = partition.end - partition.start
    return (partition.number, partition.start, partition.end, records, size, partition.segments)


def _group_row(group: GroupOverview) -> tuple[object, ...]:
    oldest: str | Text | None = None if group.oldest is None else format_duration(_rounded(group.oldest))
    if group.expired:
        oldest = Text(f"{group.expired:,} expired before they were read", "red")
    return (group.group, group.partition, group.offset, group.lag, oldest)


def _rounded(age: timedelta) -> timedelta:
    """Return the age as people say it: seconds, and from an hour on minutes."""
    step = timedelta(seconds=1) if age < timedelta(hours=1) else timedelta(minutes=1)
    return age // step * step if age >= step else age // timedelta(milliseconds=1) * timedelta(milliseconds=1)


def policy_text(policy: LogPolicy) -> str:
    """Return how the log keeps a topic, as one sentence."""
    retention, rules = policy.retention, list[str]()
    if retention.max_age is not None:
        rules.append(f"for {format_duration(retention.max_age)}")
    if retention.max_bytes is not None:
        rules.append(f"up to {format_bytes(retention.max_bytes)} a partition")
    if retention.when_read:
        rules.append("until every group has read them")
    kept = " or ".join(rules) or "for good"
    unread = ", unread ones longer" if retention.keep_unread and rules else ""
    compacted = "; only the newest of each key" if policy.compacted else ""
    size = format_bytes(policy.max_record_bytes)
    return f"records up to {size} are kept {kept}{unread}{compacted}; {_fsync(policy)}"


def _fsync(policy: LogPolicy) -> str:
    match policy.fsync.mode:
        case FsyncMode.ALWAYS:
            return "an fsync before every acknowledgement"
        case FsyncMode.INTERVAL:
            return f"an fsync every {format_duration(policy.fsync.interval)}, for which acknowledgements wait"
        case FsyncMode.MESSAGES:
            return f"an fsync every {policy.fsync.messages:,} records"
        case FsyncMode.NEVER:
            return "fsyncs are left to the system"


def overview_json(topic: TopicOverview) -> dict[str, Any]:
    """Return one topic for programs."""
    policy = topic.policy
    return {
        "topic": topic.name,
        "broker": topic.broker,
        "owner": topic.owner or None,
        "version": topic.version,
        "records": topic.records,
        "bytes": topic.bytes,
        "lag": topic.lags,
        "partitions": [asdict(partition) for partition in topic.partitions],
        "groups": [_group_json(group) for group in topic.groups],
        "policy": None if policy is None else _policy_json(policy),
    }


def _group_json(group: GroupOverview) -> dict[str, Any]:
    found = asdict(group)
    del found["oldest"]
    return found | {"oldest_s": None if group.oldest is None else round(group.oldest.total_seconds(), 3)}


def _policy_json(policy: LogPolicy) -> dict[str, Any]:
    retention = policy.retention
    return {
        "fsync": policy.fsync.mode.value,
        "retention": {
            "for": None if retention.max_age is None else format_duration(retention.max_age),
            "max_bytes": retention.max_bytes,
            "when_read": retention.when_read,
            "keep_unread": retention.keep_unread,
        },
        "max_record_bytes": policy.max_record_bytes,
        "compacted": policy.compacted,
    }
