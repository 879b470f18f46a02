"""Where each subscriber reads next, kept apart from the data, in the control store.

    dw://internal/log/offsets/{topic}/{group}    {"0": 120, "1": 98}: partition and next offset

An offset only rises. A group that is registered counts as a subscriber before its first commit: where it has no
offset for a partition it has read nothing there, and retention that waits for readers waits for it.
"""

import json
from collections.abc import Mapping

from dw_platform.foundation import InvalidValueError
from dw_platform.log.errors import CorruptTopicError
from dw_platform.log.names import check_name
from dw_platform.store import Entry, PersistentStore, internal_key, internal_prefix, key_parts, update

_PLACE = ("log", "offsets")
_PAGE = 1000


class SubscriberOffsets:
    """The committed offsets of all groups of all topics of one store."""

    def __init__(self, store: PersistentStore) -> None:
        self._store = store

    def register(self, topic: str, group: str, start: Mapping[int, int] | None = None) -> None:
        """Make `group` a subscriber that begins at `start` (partition to offset); a known one keeps its offsets."""
        self.commit(topic, group, start or {})

    def commit(self, topic: str, group: str, next_offsets: Mapping[int, int]) -> dict[int, int]:
        """Remember where `group` reads next and return all its offsets; one lower than the stored one is ignored."""
        for partition, offset in next_offsets.items():
            if partition < 0 or offset < 0:
                raise InvalidValueError(f"offset of partition {partition}", offset, "not negative, as partitions are")
        key = _key(topic, group)

        def raised(entry: Entry | None) -> bytes | None:
            current = {} if entry is None else _decode(entry)
            wanted = dict(current)
            for partition, offset in next_offsets.items():
                wanted[partition] = max(offset, current.get(partition, 0))
            return None if entry is not None and wanted == current else _encode(wanted)

        entry = update(self._store, key, raised)
        return {} if entry is None else _decode(entry)

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """Return partition and next offset of what `group` has committed; nothing if it is unknown."""
        entry = self._store.get(_key(topic, group))
        return {} if entry is None else _decode(entry)

    def groups(self, topic: str) -> dict[str, dict[int, int]]:
        """Return every subscriber of the topic with its offsets."""
        prefix, after, found = internal_prefix(*_PLACE, check_name("topic", topic)), None, dict[str, dict[int, int]]()
        while True:
            page = self._store.list(prefix, after=after, limit=_PAGE)
            found.update({key_parts(entry.key)[-1]: _decode(entry) for entry in page})
            if len(page) < _PAGE:
                return found
            after = page[-1].key

    def lowest(self, topic: str, partition: int) -> int | None:
        """Return the lowest offset that some subscriber reads next; None if there is no subscriber."""
        return min((offsets.get(partition, 0) for offsets in self.groups(topic).values()), default=None)

    def forget(self, topic: str, group: str) -> bool:
        """Remove the subscriber, so that retention no longer waits for it; return whether there was one."""
        return self._store.delete(_key(topic, group))


def _key(topic: str, group: str) -> str:
    return internal_key(*_PLACE, check_name("topic", topic), check_name("group", group))


def _encode(offsets: Mapping[int, int]) -> bytes:
    return json.dumps({str(partition): offsets[partition] for partition in sorted(offsets)}).encode()


def _decode(entry: Entry) -> dict[int, int]:
    try:
        return {int(partition): int(offset) for partition, offset in json.loads(entry.value).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptTopicError(entry.key, f"it holds no offsets ({error})") from error
