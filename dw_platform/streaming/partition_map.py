"""How many partitions publishers of a topic use; a number of its own, because order within a key depends on it.

    dw://internal/streaming/map/{topic}    {"partitions": 4, "pause": null}

A broker's topic may already have more: it was grown from outside, or a process died while it grew it. Publishers go on
with the number that is written here until every group has read what was published under it.

`pause` says who is changing the number, and until when nobody may publish. A pause that is over is removed by the
first who sees it, which also ends the right of its author to change anything: every change names the version that it
is made from.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from dw_platform.foundation import PermanentError
from dw_platform.store import Entry, PersistentStore, StaleVersionError, internal_key


class CorruptMapError(PermanentError):
    """What is stored about a topic's partitions makes no sense; its records are untouched."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(
            f"{key} does not say how many partitions are used: {reason}. When every group has read everything, "
            "delete the key; publishers then use all partitions."
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """Nobody publishes until then, unless its author is done earlier."""

    by: str
    until: datetime


@dataclass(frozen=True, slots=True)
class MapState:
    """The map as it is stored."""

    partitions: int
    pause: Pause | None
    version: int


class PartitionMap:
    """The number of one topic, with compare-and-set for whoever changes it."""

    def __init__(self, store: PersistentStore, topic: str) -> None:
        self._store, self._key = store, internal_key("streaming", "map", topic)

    def load(self, partitions: int) -> MapState:
        """Return the map; the first time it says `partitions`, the broker's own number, and is written down."""
        entry = self._store.get(self._key)
        if entry is None:
            try:
                entry = self._store.compare_and_set(self._key, _encode(partitions, None), expected=None)
            except StaleVersionError:
                return self.load(partitions)
        return self._decode(entry)

    def read(self) -> MapState | None:
        """Return the map; None if there is none."""
        entry = self._store.get(self._key)
        return None if entry is None else self._decode(entry)

    def change(self, before: MapState, *, partitions: int | None = None, pause: Pause | None = None) -> MapState | None:
        """Write another number or pause; None, and nothing written, if somebody was quicker."""
        value = _encode(partitions or before.partitions, pause)
        try:
            return self._decode(self._store.compare_and_set(self._key, value, expected=before.version))
        except StaleVersionError:
            return None

    def _decode(self, entry: Entry) -> MapState:
        try:
            content = json.loads(entry.value)
            partitions, written = int(content["partitions"]), content.get("pause")
            until = datetime.fromisoformat(written["until"]).astimezone(UTC) if written else None
            pause = Pause(str(written["by"]), until) if until else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptMapError(self._key, str(error)) from error
        if partitions < 1:
            raise CorruptMapError(self._key, f"{partitions} partitions")
        return MapState(partitions, pause, entry.version)


def _encode(partitions: int, pause: Pause | None) -> bytes:
    written = {"by": pause.by, "until": pause.until.isoformat()} if pause else None
    return json.dumps({"partitions": partitions, "pause": written}).encode()
