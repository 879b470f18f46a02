"""What the fabric tells, and the journal of it that every process can read.

At least once: an event is written before what it tells is, so a manager that dies in between makes its successor tell
it again. `(event, node, incarnation)` names what happened.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from dw_platform.fabric.membership import NodeKind
from dw_platform.fabric.records import EVENTS, name_of
from dw_platform.scaling import UndecodableRecordError
from dw_platform.scaling.encoding import as_time, decode_object, encode_object
from dw_platform.store import Entry, PersistentStore, internal_key

log = logging.getLogger(__name__)

# Days of a calm fabric; a reader that is away for longer misses what is older.
_KEPT = 500
_TRIM_AT_ONCE = 50
_PAGE = 100


class EventKind(StrEnum):
    """What happened."""

    JOINED = "joined"
    REJOINED = "rejoined"
    SUSPECTED = "suspected"
    RECOVERED = "recovered"
    REMOVED = "removed"
    LEFT = "left"
    REFUSED = "refused"
    FLAPPING = "flapping"
    SETTLED = "settled"
    SWITCHED = "switched"
    RECOMMENDED = "recommended"


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricEvent:
    """One change of a node's state or of the topology; what does not apply is None."""

    event: EventKind
    at: datetime
    before: str | None
    after: str
    reason: str
    by: str
    """The manager that decided, or the operator who asked."""

    node: str | None = None
    kind: NodeKind | None = None
    host: str | None = None
    pid: int | None = None
    incarnation: int | None = None
    ended: int | None = None
    """The incarnation that is over with this, so that others can take over what it worked on."""

    def row(self) -> dict[str, Any]:
        """Return the event as a row of `ops.nodes`."""
        kind = None if self.kind is None else self.kind.value
        return {**asdict(self), "event": self.event.value, "kind": kind}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "FabricEvent":
        """Read what `to_json` wrote."""
        kind = content["kind"]
        return cls(
            **{
                **content,
                "event": EventKind(content["event"]),
                "kind": None if kind is None else NodeKind(kind),
                "at": as_time(content["at"]),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON can hold it."""
        return {**self.row(), "at": self.at.isoformat()}


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Events, and where to go on."""

    events: tuple[FabricEvent, ...]
    position: str | None

    def rows(self) -> list[dict[str, Any]]:
        """Return the events as rows of `ops.nodes`."""
        return [event.row() for event in self.events]


class Journal:
    """The events of a fabric in the control store; the acting manager writes, anybody reads."""

    def __init__(self, store: PersistentStore) -> None:
        self._store = store
        self._kept: list[str] | None = None

    def append(self, events: Sequence[FabricEvent]) -> None:
        """Write events of one moment together; return once they are durable."""
        if not events:
            return
        if self._kept is None:
            self._kept = list(self._store.list_versions(EVENTS))
        number = 1 + (_number(self._kept[-1]) if self._kept else 0)
        key = internal_key("fabric", "events", f"{number:020d}")
        value = encode_object({"events": [event.to_json() for event in events]})
        try:
            self._store.compare_and_set(key, value, expected=None)
        except BaseException:
            self._kept = None  # whoever else wrote, or whether this was written: look before the next one
            raise
        self._kept.append(key)
        self._trim(self._kept)

    def read(self, after: str | None = None) -> JournalPage:
        """Return what was told beyond the position `after`, or everything that is kept."""
        events: list[FabricEvent] = []
        position = after
        while True:
            page = self._store.list(EVENTS, after=position, limit=_PAGE)
            for entry in page:
                events += _decode(entry)
                position = entry.key
            if len(page) < _PAGE:
                return JournalPage(tuple(events), position)

    def _trim(self, kept: list[str]) -> None:
        if len(kept) >= _KEPT + _TRIM_AT_ONCE:
            for key in kept[:-_KEPT]:
                self._store.delete(key)
            del kept[:-_KEPT]


def _decode(entry: Entry) -> Iterable[FabricEvent]:
    try:
        return decode_object(entry, lambda content: [FabricEvent.from_json(each) for each in content["events"]])
    except UndecodableRecordError as error:
        log.warning("events left out", extra={"key": error.key, "detail": error.detail})
        return ()


def _number(key: str) -> int:
    return int(name_of(key))
