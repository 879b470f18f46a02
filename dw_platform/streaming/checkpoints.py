"""How far a group has read a partition, kept where a restart finds it.

    dw://internal/streaming/checkpoint/{topic}/{group}/{partition}    {"offset": 120, "member": "...", "at": "..."}

An offset only rises, whoever writes it: a member that was away for too long cannot take a group back. Each commit also
goes to the broker, for lag and retention; a crash between the two leaves the broker behind, which costs nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from dw_platform.foundation import Clock, PermanentError
from dw_platform.store import BoundedCache, CachePolicy, Entry, PersistentStore, internal_key, update
from dw_platform.streaming.contract import Broker

_Place = tuple[str, str, int]


class CorruptCheckpointError(PermanentError):
    """What is stored as a checkpoint is none; no record is affected."""

    def __init__(self, key: str, reason: str) -> None:
        self.key, self.reason = key, reason
        super().__init__(
            f"{key} holds no checkpoint: {reason}. Delete the key; the group then goes on where the broker has it."
        )


@dataclass(frozen=True, slots=True)
class StreamCheckpoint:
    """The offset that a group reads next in one partition."""

    topic: str
    group: str
    partition: int
    offset: int
    member: str
    """Who wrote it."""

    at: datetime


class CheckpointBacking:
    """Checkpoints as entries of the control store; `save` never lowers an offset."""

    def __init__(self, store: PersistentStore) -> None:
        self._store = store

    def load(self, place: _Place, /) -> StreamCheckpoint | None:
        entry = self._store.get(_key(place))
        return None if entry is None else _decode(place, entry)

    def save(self, place: _Place, checkpoint: StreamCheckpoint, /) -> None:
        content = {"offset": checkpoint.offset, "member": checkpoint.member, "at": checkpoint.at.isoformat()}

        def raised(entry: Entry | None) -> bytes | None:
            if entry is not None and _decode(place, entry).offset >= checkpoint.offset:
                return None
            return json.dumps(content).encode()

        update(self._store, _key(place), raised)

    def remove(self, place: _Place, /) -> None:
        self._store.delete(_key(place))


class Checkpoints:
    """All checkpoints of a process; read and written through a bounded cache."""

    def __init__(self, store: PersistentStore, *, clock: Clock) -> None:
        self._clock = clock
        self._cache: BoundedCache[_Place, StreamCheckpoint] = BoundedCache(
            CachePolicy(max_entries=10_000), backing=CheckpointBacking(store), clock=clock
        )

    def get(self, topic: str, group: str, partition: int) -> StreamCheckpoint | None:
        """Return the checkpoint as this process knows it."""
        return self._cache.get((topic, group, partition))

    def resume(self, broker: Broker, topic: str, group: str, partition: int) -> int:
        """Return where the group goes on: the highest that the store and the broker know, or the oldest record.

        Other processes may have read this partition until now, so the store is asked.
        """
        self._cache.invalidate((topic, group, partition))
        checkpoint = self._cache.get((topic, group, partition))
        known = [broker.committed(topic, group).get(partition), checkpoint.offset if checkpoint else None]
        offsets = [offset for offset in known if offset is not None]
        return max(offsets) if offsets else broker.start_offsets(topic)[partition]

    def commit(self, broker: Broker, topic: str, group: str, next_offsets: Mapping[int, int], *, member: str) -> None:
        """Remember where the group reads next, in the store and then at the broker."""
        if not next_offsets:
            return
        now = self._clock.now()
        for partition, offset in next_offsets.items():
            checkpoint = StreamCheckpoint(topic, group, partition, offset, member, now)
            self._cache.set((topic, group, partition), checkpoint)
        broker.commit(topic, group, next_offsets)


def _key(place: _Place) -> str:
    topic, group, partition = place
    return internal_key("streaming", "checkpoint", topic, group, str(partition))


def _decode(place: _Place, entry: Entry) -> StreamCheckpoint:
    try:
        content = json.loads(entry.value)
        at = datetime.fromisoformat(content["at"]).astimezone(UTC)
        return StreamCheckpoint(*place, int(content["offset"]), str(content["member"]), at)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptCheckpointError(entry.key, str(error)) from error
