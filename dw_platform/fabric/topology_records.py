"""The records that nodes follow: the topology in force, and the group of each."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dw_platform.fabric.limits import Pace, TopologyKind
from dw_platform.fabric.records import name_of
from dw_platform.fabric.topology import Group, Seat
from dw_platform.scaling.encoding import as_time, decode_object, encode_object
from dw_platform.store import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRecord:
    """The topology in force, and what all nodes need to know of the limits."""

    kind: TopologyKind
    cells: int
    by_hand: bool
    by: str
    reason: str
    pace: Pace
    advice: str = ""
    """What is recommended but not done."""

    at: datetime

    @classmethod
    def decode(cls, entry: Entry) -> "TopologyRecord":
        """Read the topology."""

        def build(content: dict[str, Any]) -> TopologyRecord:
            return cls(
                kind=TopologyKind(content["kind"]),
                cells=int(content["cells"]),
                by_hand=bool(content["by_hand"]),
                by=str(content["by"]),
                reason=str(content["reason"]),
                pace=Pace(float(content["heartbeat_s"]), int(content["missed"])),
                advice=str(content["advice"]),
                at=as_time(content["at"]),
            )

        return decode_object(entry, build)

    def encode(self) -> bytes:
        """Return the topology's value in the store."""
        return encode_object(
            {
                "kind": self.kind,
                "cells": self.cells,
                "by_hand": self.by_hand,
                "by": self.by,
                "reason": self.reason,
                "heartbeat_s": self.pace.heartbeat_s,
                "missed": self.pace.missed,
                "advice": self.advice,
                "at": self.at.isoformat(),
            }
        )


def encode_group(group: Group) -> bytes:
    """Return a mesh or a cell."""
    return encode_object(
        {
            "kind": group.kind,
            "hub": group.hub,
            "members": [[seat.name, seat.host, *seat.address] for seat in group.members],
        }
    )


def decode_group(entry: Entry) -> Group:
    """Read a mesh or a cell."""

    def build(content: dict[str, Any]) -> Group:
        return Group(
            number=int(name_of(entry.key)),
            kind=TopologyKind(content["kind"]),
            members=tuple(
                Seat(str(name), str(host), (str(at), int(port))) for name, host, at, port in content["members"]
            ),
            hub=None if content["hub"] is None else str(content["hub"]),
        )

    return decode_object(entry, build)
