"""What a topic is, and how that is written down."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dw_platform.log.policy import FsyncMode, FsyncPolicy, LogPolicy, Retention

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with the present version of its partition map."""

    name: str
    version: int
    """Of the partition map: one more with every growth."""

    partitions: int
    policy: LogPolicy


def encode_topic(topic: TopicDescription) -> bytes:
    """Return the content of the topic's file."""
    policy, retention = topic.policy, topic.policy.retention
    document = {
        "format": _FORMAT,
        "version": topic.version,
        "partitions": topic.partitions,
        "policy": {
            "fsync": {
                "mode": policy.fsync.mode,
                "messages": policy.fsync.messages,
                "interval_s": policy.fsync.interval.total_seconds(),
            },
            "segment_bytes": policy.segment_bytes,
            "segment_age_s": policy.segment_age.total_seconds(),
            "retention": {
                "max_age_s": None if retention.max_age is None else retention.max_age.total_seconds(),
                "max_bytes": retention.max_bytes,
                "when_read": retention.when_read,
                "keep_unread": retention.keep_unread,
            },
            "max_record_bytes": policy.max_record_bytes,
            "compacted": policy.compacted,
        },
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def decode_topic(name: str, content: bytes) -> TopicDescription:
    """Return the topic; raise ValueError, KeyError or TypeError if `content` is not one."""
    document = json.loads(content)
    if document["format"] != _FORMAT:
        raise ValueError(f"its format is {document['format']!r}, this version reads {_FORMAT}")
    return TopicDescription(name, int(document["version"]), int(document["partitions"]), _policy(document["policy"]))


def _policy(document: Any) -> LogPolicy:
    fsync, retention = document["fsync"], document["retention"]
    return LogPolicy(
        fsync=FsyncPolicy(FsyncMode(fsync["mode"]), fsync["messages"], timedelta(seconds=fsync["interval_s"])),
        segment_bytes=document["segment_bytes"],
        segment_age=timedelta(seconds=document["segment_age_s"]),
        retention=Retention(
            max_age=None if retention["max_age_s"] is None else timedelta(seconds=retention["max_age_s"]),
            max_bytes=retention["max_bytes"],
            when_read=retention["when_read"],
            keep_unread=retention["keep_unread"],
        ),
        max_record_bytes=document["max_record_bytes"],
        compacted=document["compacted"],
    )
