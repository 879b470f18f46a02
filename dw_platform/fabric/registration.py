"""A node's own record in the store: how a life begins and ends, and how it is told from another of the same name.

Only the node writes its record, so the record's version is its incarnation. A version that is not one's own means
that another process took the name later; the newest one counts, and the older falls silent.
"""

import secrets
from dataclasses import replace
from enum import Enum, auto

from dw_platform.fabric.membership import Address, NodeRecord, NodeState
from dw_platform.fabric.records import (
    beat_key,
    decode_node,
    decode_verdict,
    encode_node,
    node_key,
    readable,
    report_key,
    state_key,
)
from dw_platform.foundation import Clock
from dw_platform.store import PersistentStore, StaleVersionError


class Standing(Enum):
    """What has become of a record."""

    OWN = auto()
    GONE = auto()
    TAKEN = auto()
    """Another process has the name."""


class Registration:
    """The record of one process, whatever life it is in."""

    def __init__(self, store: PersistentStore, record: NodeRecord, *, clock: Clock) -> None:
        self._store, self._record, self._clock = store, record, clock
        self._state_version: int | None = None
        self._state: NodeState | None = None

    @property
    def incarnation(self) -> int:
        """The present life; 0 outside of one."""
        return self._record.incarnation

    @property
    def keys(self) -> tuple[str, str]:
        """Whose versions `standing` and `state` need."""
        return node_key(self._record.name), state_key(self._record.name)

    def join(self, address: Address | None) -> None:
        """Begin a life as the newest process of this name, reachable at `address`."""
        key, current = node_key(self._record.name), self._store.get(node_key(self._record.name))
        stored = readable(current, decode_node)
        own = stored is not None and stored.life == self._record.life
        if stored is not None and own and stored.incarnation != self._record.incarnation:
            self._begun(stored.incarnation)  # the answer to an earlier write was lost
            return
        if not own:
            # What an earlier process of this name has said about others is not this one's word.
            self._store.delete(report_key(self._record.name))
        self._record = replace(self._record, address=address, joined_at=self._clock.now())
        expected = None if current is None else current.version
        self._begun(self._store.compare_and_set(key, encode_node(self._record), expected=expected).version)

    def standing(self, version: int | None) -> Standing:
        """Return what has become of the record, which is at `version` now."""
        if version == self._record.incarnation:
            return Standing.OWN
        entry = None if version is None else self._store.get(node_key(self._record.name))
        record = readable(entry, decode_node)
        if entry is None or record is None:
            return Standing.GONE
        if record.life != self._record.life:
            return Standing.TAKEN
        self._begun(entry.version)  # the answer to an earlier write was lost
        return Standing.OWN

    def state(self, version: int | None) -> NodeState | None:
        """Return what the manager makes of this life; None if it has not said anything about it yet."""
        if version != self._state_version:
            entry = None if version is None else self._store.get(state_key(self._record.name))
            self._state_version = None if entry is None else entry.version
            verdict = readable(entry, decode_verdict)
            spoken_of = verdict is not None and verdict.incarnation == self._record.incarnation
            self._state = verdict.state if verdict is not None and spoken_of else None
        return self._state

    def leave(self) -> None:
        """End the life, unless another process has the name now."""
        if not self._record.incarnation:
            return
        name, incarnation = self._record.name, self._record.incarnation
        left = replace(self._record, left=True, life=secrets.token_hex(8))
        self._record = replace(self._record, incarnation=0)
        try:
            self._store.compare_and_set(node_key(name), encode_node(left), expected=incarnation)
        except StaleVersionError:
            return
        self._store.delete(beat_key(name))
        self._store.delete(report_key(name))

    def _begun(self, incarnation: int) -> None:
        self._record = replace(self._record, incarnation=incarnation)
        self._state_version = self._state = None
