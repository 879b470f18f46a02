"""What the control store holds about the fabric, and where.

    dw://internal/fabric/nodes/{name}     what a node says about itself; its version is the incarnation
    dw://internal/fabric/beats/{name}     its last heartbeat through the store; its version is all that counts
    dw://internal/fabric/reports/{name}   what a hub or a watcher has heard of others
    dw://internal/fabric/states/{name}    what the acting manager last made of a node
    dw://internal/fabric/topology         which topology is in force, and the pace of heartbeats
    dw://internal/fabric/groups/{number}  the mesh, or one cell
    dw://internal/fabric/events/{number}  what was told, newest last
    dw://internal/fabric/manager          who acts
    dw://internal/fabric/wish             the switch that an operator wants
    dw://internal/fabric/key              the key of the datagrams

Every key has one kind of writer: the node itself, or the acting manager.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from dw_platform.fabric.membership import NodeKind, NodeRecord, NodeState, Verdict
from dw_platform.scaling import UndecodableRecordError
from dw_platform.scaling.encoding import as_object, as_time, decode_object, encode_object
from dw_platform.store import Entry, internal_key, internal_prefix, key_parts

log = logging.getLogger(__name__)

T = TypeVar("T")

NODES = internal_prefix("fabric", "nodes")
BEATS = internal_prefix("fabric", "beats")
REPORTS = internal_prefix("fabric", "reports")
STATES = internal_prefix("fabric", "states")
GROUPS = internal_prefix("fabric", "groups")
EVENTS = internal_prefix("fabric", "events")
TOPOLOGY = internal_key("fabric", "topology")
MANAGER = internal_key("fabric", "manager")
WISH = internal_key("fabric", "wish")
KEY = internal_key("fabric", "key")


def readable(entry: Entry | None, decode: Callable[[Entry], T]) -> T | None:
    """Return what an entry holds, or None for one that is missing or damaged, which is logged.

    Whoever follows the fabric does better without one record than not at all, and the manager writes its own anew
    with the next change.
    """
    if entry is None:
        return None
    try:
        return decode(entry)
    except UndecodableRecordError as error:
        log.warning("record left out", extra={"key": error.key, "detail": error.detail})
        return None


def name_of(key: str) -> str:
    """Return the node that a key is about."""
    return key_parts(key)[-1]


def node_key(name: str) -> str:
    """Return the key of a node's record."""
    return internal_key("fabric", "nodes", name)


def beat_key(name: str) -> str:
    """Return the key of a node's heartbeats."""
    return internal_key("fabric", "beats", name)


def report_key(name: str) -> str:
    """Return the key of what a node has heard of others."""
    return internal_key("fabric", "reports", name)


def state_key(name: str) -> str:
    """Return the key of what the manager made of a node."""
    return internal_key("fabric", "states", name)


def group_key(number: int) -> str:
    """Return the key of a mesh or a cell."""
    return internal_key("fabric", "groups", f"{number:05d}")


def encode_node(record: NodeRecord) -> bytes:
    """Return a node's record, without what its key and its version say."""
    return encode_object(
        {
            "kind": record.kind,
            "host": record.host,
            "pid": record.pid,
            "address": record.address,
            "life": record.life,
            "left": record.left,
            "joined_at": record.joined_at.isoformat(),
        }
    )


def decode_node(entry: Entry) -> NodeRecord:
    """Read a node's record."""

    def build(content: dict[str, Any]) -> NodeRecord:
        address = content["address"]
        return NodeRecord(
            name=name_of(entry.key),
            kind=NodeKind(content["kind"]),
            host=str(content["host"]),
            pid=int(content["pid"]),
            address=None if address is None else (str(address[0]), int(address[1])),
            life=str(content["life"]),
            left=bool(content["left"]),
            joined_at=as_time(content["joined_at"]),
            incarnation=entry.version,
        )

    return decode_object(entry, build)


def encode_verdict(verdict: Verdict) -> bytes:
    """Return what the manager made of a node."""
    return encode_object(
        {
            "incarnation": verdict.incarnation,
            "state": verdict.state.label,
            "reason": verdict.reason,
            "at": verdict.at.isoformat(),
        }
    )


def decode_verdict(entry: Entry) -> Verdict:
    """Read what the manager made of a node."""

    def build(content: dict[str, Any]) -> Verdict:
        return Verdict(
            name=name_of(entry.key),
            incarnation=int(content["incarnation"]),
            state=NodeState.from_label(content["state"]),
            reason=str(content["reason"]),
            at=as_time(content["at"]),
        )

    return decode_object(entry, build)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat through the store."""

    incarnation: int
    because: str
    """Why a node that could talk to others writes to the store; empty if that is its part."""

    at: datetime
    """For people."""

    @classmethod
    def decode(cls, entry: Entry) -> "Beat":
        """Read a heartbeat."""

        def build(content: dict[str, Any]) -> Beat:
            return cls(
                incarnation=int(content["incarnation"]), because=str(content["because"]), at=as_time(content["at"])
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the heartbeat's value in the store."""
        return encode_object({"incarnation": self.incarnation, "because": self.because, "at": self.at.isoformat()})


class ReportKind(StrEnum):
    """What a report lists."""

    SUMMARY = "summary"
    """Every node that a hub has heard."""

    SILENCE = "silence"
    """Every node that a watcher has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one node has heard of others, as ages by its own clock, which need no common time."""

    reporter: str
    kind: ReportKind
    ages: Mapping[str, float | None]
    """Seconds since each was heard; None: never."""

    at: datetime
    """For people."""

    @classmethod
    def decode(cls, entry: Entry) -> "Report":
        """Read a report."""

        def build(content: dict[str, Any]) -> Report:
            ages = as_object(content["ages"]).items()
            return cls(
                reporter=name_of(entry.key),
                kind=ReportKind(content["kind"]),
                ages={name: None if ms is None else max(int(ms), 0) / 1_000 for name, ms in ages},
                at=as_time(content["at"]),
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the report's value in the store; ages in milliseconds, which is a third shorter."""
        ages = {name: None if age is None else round(age * 1_000) for name, age in self.ages.items()}
        return encode_object({"kind": self.kind, "ages": ages, "at": self.at.isoformat()})
