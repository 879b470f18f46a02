"""Publishers of one topic in several processes, and how they all pause when one of them adds partitions.

    dw://internal/streaming/publishers/{topic}/{node}    {"seen": 7, "at": "2026-..."}

Every process that publishes looks at the map ten times a second and writes which version it obeys: under a pause only
when nothing of its own is on its way any more. Whoever pauses waits until all have written that. One that was not
heard of for ten seconds does not count: it publishes nothing before it has looked at the map again.

Where a broker allows only one publishing process there is nobody to wait for, and the map is all that is used.
"""

import json
import os
import secrets
import socket
import threading
from datetime import UTC, datetime, timedelta

from dw_platform.foundation import Clock
from dw_platform.store import Entry, PersistentStore, internal_key, internal_prefix, key_parts
from dw_platform.streaming.gate import PartitionGate
from dw_platform.streaming.partition_map import MapState, PartitionMap, Pause

# Heard of three times in it at least, and a process trusts its own look at the map for half of it.
_SILENT_AFTER = timedelta(seconds=10)


class Fellows:
    """This process among the publishers of a topic; any thread may use it."""

    def __init__(self, store: PersistentStore, gate: PartitionGate, *, shared: bool, clock: Clock) -> None:
        self._store, self._gate, self._clock, self.shared = store, gate, clock, shared
        self._map = PartitionMap(store, gate.topic)
        self._node = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._key = internal_key("streaming", "publishers", gate.topic, self._node)
        self._lock = threading.Lock()
        self._mine = False
        self._written: tuple[int, float] | None = None
        self._looked_at = -float("inf")

    def open(self, partitions: int) -> None:
        """Begin to publish, with the number of the map; `partitions` is the broker's own."""
        if self.shared:
            # First of all: whoever pauses from now on waits for this process.
            self._write(0)
        self._map.load(partitions)
        self.follow(at_most=partitions)

    @property
    def up_to_date(self) -> bool:
        """Whether this process may publish by what it knows of the map."""
        age_s = self._clock.monotonic() - self._looked_at
        return age_s < (_SILENT_AFTER.total_seconds() / 2 if self.shared else float("inf"))

    def follow(self, *, at_most: int | None = None) -> None:
        """Look at the map, do what it says, and write that this is so; raises what the store raises."""
        with self._lock:
            if self._mine:
                return
            looked_at, state = self._clock.monotonic(), self._map.read()
            if state is None:
                return
            if state.pause is not None and state.pause.until <= self._clock.now():
                state = self._map.change(state) or state  # its author is gone
            self._looked_at = looked_at
            if state.pause is not None:
                self._gate.shut()
            else:
                # Fewer than the map says: the topic was deleted and made again.
                self._gate.open(min(state.partitions, at_most or state.partitions))
            if self.shared and (state.pause is None or self._gate.is_idle):
                self._tell(state.version)

    def pause(self, longest: timedelta) -> MapState | None:
        """Ask everybody to pause; None if another process is changing the map right now."""
        with self._lock:
            state = self._map.read()
            if state is None or state.pause is not None:
                return None
            pause = Pause(self._node, self._clock.now() + longest)
            paused = self._map.change(state, pause=pause) if self.shared else state
            self._mine = paused is not None
            if self._mine:
                self._gate.shut()
            return paused

    def publishing(self, paused: MapState) -> list[str]:
        """Return the other processes that do not obey the pause yet."""
        if not self.shared:
            return []
        silent_since = self._clock.now() - _SILENT_AFTER
        found = []
        for entry in self._store.list(internal_prefix("streaming", "publishers", self._gate.topic)):
            seen, at = _decode(entry)
            if entry.key != self._key and seen < paused.version and at > silent_since:
                found.append(key_parts(entry.key)[-1])
        return found

    def resume(self, paused: MapState, partitions: int | None = None) -> bool:
        """End the pause, with another number of partitions if one is given; return whether it was still ours to end.

        If the store fails, nobody knows which number counts; this process publishes again when it has looked.
        """
        try:
            done = self._map.change(paused, partitions=partitions) if self.shared or partitions else paused
        finally:
            # Only now: a look at the old map would let publishers in with the old number.
            with self._lock:
                self._mine, self._looked_at = False, -float("inf")
        self.follow()
        return done is not None

    def leave(self) -> None:
        """Tell that this process publishes no more."""
        if self.shared:
            self._store.delete(self._key)

    def _tell(self, version: int) -> None:
        written = self._written
        due = _SILENT_AFTER.total_seconds() / 4
        if written is None or written[0] != version or self._clock.monotonic() - written[1] >= due:
            self._write(version)

    def _write(self, version: int) -> None:
        at = self._clock.monotonic()
        content = {"seen": version, "at": self._clock.now().isoformat()}
        self._store.put(self._key, json.dumps(content).encode())
        self._written = (version, at)


def _decode(entry: Entry) -> tuple[int, datetime]:
    """Return which version of the map a process obeys and when it said so; what cannot be read obeys none."""
    try:
        content = json.loads(entry.value)
        return int(content["seen"]), datetime.fromisoformat(content["at"]).astimezone(UTC)
    except (ValueError, KeyError, TypeError):
        return 0, datetime.now(UTC)
