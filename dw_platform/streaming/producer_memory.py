"""What a process remembers of idempotent producers, and how it finds that again: in snapshots, and in the log itself.

    dw://internal/streaming/producers/{topic}/{node}    positions, and the last batch of each producer

Crash: everything stamped below a snapshot's positions is in its book. Parts that are on their way, and parts whose
publishing failed so that nobody knows whether they are in the log, hold the positions back. The first snapshot is
stored before the first stamped record is written, so a topic without one has none.

Several processes: each keeps a snapshot of its own, of what it has published itself, and reads those of the others and
the log behind them. One that is long gone is removed when what it knew is in the snapshot of another.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from dw_platform.foundation import Clock
from dw_platform.log import AppendResult
from dw_platform.store import PersistentStore, internal_key, internal_prefix
from dw_platform.streaming.contract import Broker
from dw_platform.streaming.errors import BrokerUnavailableError
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.producers import LastBatch, ProducerBook, Snapshot
from dw_platform.streaming.stamps import sightings

log = logging.getLogger(__name__)

# Half of what the store takes for one value.
_SNAPSHOT_BYTES = 8 * 1024 * 1024
# Snapshots are renewed much more often than this, so its process is gone.
_ABANDONED_AFTER = timedelta(minutes=10)
_RENEW_AFTER_S = 60.0
_SCAN_BYTES = 8 * 1024 * 1024
# What lies below the end is there; a broker that does not hand it out within this is in trouble.
_FETCH_WAIT_S = 10.0


@runtime_checkable
class Recovering(Protocol):
    """A broker that finds what a crash left behind only when it opens its partitions for writing."""

    def recover(self, topic: str) -> None:
        """Open every partition, so that everything that is in the log can be read."""


class ProducerMemory:
    """The last batches of the producers of one topic; any thread may use it."""

    def __init__(
        self, broker: Broker, topic: str, store: PersistentStore, limits: StreamingLimits, *, clock: Clock
    ) -> None:
        self._broker, self._topic, self._store, self._clock = broker, topic, store, clock
        self.limits = limits
        self.loaded = False
        self.shared = broker.capabilities.shared_by_processes
        node = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}" if self.shared else "writer"
        self._prefix = internal_prefix("streaming", "producers", topic)
        self._key = internal_key("streaming", "producers", topic, node)
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._book = ProducerBook()
        self._in_flight: dict[str, LastBatch] = {}
        self._positions: dict[int, int] = {}
        self._read_up_to: dict[int, int] = {}
        self._abandoned: set[str] = set()
        self._changed, self._saved_at = False, 0.0

    def __len__(self) -> int:
        return len(self._book)

    def last(self, producer: str) -> LastBatch | None:
        """Return the last batch of a producer that is not forgotten."""
        oldest_ms = self.now_ms() - int(self.limits.producer_ttl.total_seconds() * 1_000)
        with self._lock:
            return self._book.get(producer, not_before_ms=oldest_ms)

    def incomplete(self, since_ms: int) -> bool:
        """Return whether a batch heard of since then is not, or not surely, in the log as a whole."""
        with self._lock:
            return any(not batch.complete and batch.heard_ms >= since_ms for batch in self._book)

    def begin(self, producer: str, batch: LastBatch, numbers: Iterable[int]) -> None:
        """Remember that parts of a batch are about to be written to the partitions `numbers`."""
        with self._lock:
            batch.heard_ms = self.now_ms()
            batch.floors |= {number: self._positions.get(number, 0) for number in numbers}
            self._in_flight[producer] = batch
            self._book.put(producer, batch, most=self.limits.max_producers)
            self._changed = True

    def end(self, producer: str, sizes: Mapping[int, int], offsets: Mapping[int, AppendResult]) -> None:
        """Remember which parts were acknowledged, and so are there with `sizes` records; of the rest nobody knows."""
        with self._lock:
            batch = self._in_flight.pop(producer)
            for number, result in offsets.items():
                batch.acknowledged(number, result, sizes[number])
                self._positions[number] = max(result.next_offset, self._positions.get(number, 0))
            self._changed = True

    @property
    def exists(self) -> bool:
        """Whether anybody has published with a stamp to this topic."""
        return self.loaded or bool(self._store.list_versions(self._prefix))

    def load(self) -> None:
        """Build the book from the snapshots and from what was written after them; once is enough."""
        with self._reading:
            if self.loaded:
                return
            self._recover()
            self._positions = self._read_others(self._store.list_versions(self._prefix))
            self._read_up_to = dict(self._positions)
            # Before the first stamped record: from now on a snapshot says from where to look.
            self._save()
            self.loaded = True

    def catch_up(self) -> None:
        """Learn what other processes have written since the last time; costs one listing where there are none."""
        if not self.shared:
            return
        with self._reading:
            versions = self._store.list_versions(self._prefix)
            if versions.keys() - {self._key}:
                self._read_up_to |= self._read_others(versions)

    def resolve(self, batches: Iterable[LastBatch]) -> None:
        """Look for parts whose publishing failed; afterwards it is known what of them is in the log."""
        with self._reading:
            self._recover()
            with self._lock:
                uncertain = [(batch, dict(batch.floors)) for batch in batches if not self._is_in_flight(batch)]
            origins: dict[int, int] = {}
            for _, floors in uncertain:
                for number, floor in floors.items():
                    origins[number] = min(floor, origins.get(number, floor))
            self._scan(origins)
            with self._lock:
                for batch, floors in uncertain:
                    # Whoever has begun to publish it again meanwhile needs its floors.
                    if not self._is_in_flight(batch) and batch.floors == floors:
                        batch.floors = {}
                self._changed = True

    def snapshot(self) -> None:
        """Store what is known if it has changed; parts of which nobody knows are looked for first."""
        if not self.loaded:
            return
        with self._lock:
            uncertain = [batch for batch in self._book if batch.floors and not self._is_in_flight(batch)]
            due = self._changed or self._clock.monotonic() - self._saved_at >= _RENEW_AFTER_S
        if uncertain:
            self.resolve(uncertain)
        if due or uncertain:
            self._save()

    def now_ms(self) -> int:
        """Return the time as batches carry it."""
        return int(self._clock.now().timestamp() * 1_000)

    def _is_in_flight(self, batch: LastBatch) -> bool:
        return any(batch is other for other in self._in_flight.values())

    def _recover(self) -> None:
        if isinstance(self._broker, Recovering):
            self._broker.recover(self._topic)

    def _save(self) -> None:
        # Asked first: whatever of ours is below these ends is in the book, or in flight and holds its place.
        ends = self._broker.end_offsets(self._topic)
        with self._lock:
            for number, end in ends.items():
                self._positions[number] = max(end, self._positions.get(number, 0))
            positions = dict(self._positions)
            for batch in self._book:
                for number, floor in batch.floors.items():
                    positions[number] = min(floor, positions.get(number, floor))
            value = self._book.encode(positions, self._clock.now(), at_most_bytes=_SNAPSHOT_BYTES)
            self._changed, abandoned, self._abandoned = False, self._abandoned, set()
        self._store.put(self._key, value)
        self._saved_at = self._clock.monotonic()
        for key in abandoned:
            self._store.delete(key)

    def _read_others(self, versions: Mapping[str, int]) -> dict[int, int]:
        """Take in the snapshots of other processes and what was written after them; return where the log ends."""
        ends = self._broker.end_offsets(self._topic)
        origins = dict(ends)
        for key in versions:
            snapshot = None if self.loaded and key == self._key else self._snapshot_of(key)
            if snapshot is None:
                continue
            with self._lock:
                self._book.absorb(snapshot.book, most=self.limits.max_producers)
            for number in ends:
                origins[number] = min(origins[number], snapshot.positions.get(number, 0))
        return self._scan({number: max(origin, self._read_up_to.get(number, 0)) for number, origin in origins.items()})

    def _snapshot_of(self, key: str) -> Snapshot | None:
        entry = self._store.get(key)
        if entry is None:
            return None
        try:
            snapshot = Snapshot.decode(entry.value)
        except ValueError as error:
            # More of the log has to be read then; nothing is written twice for that.
            log.warning("snapshot of producers unreadable", extra={"key": key, "reason": str(error)})
            return Snapshot(self._clock.now(), {}, ProducerBook())
        if key != self._key and self._clock.now() - snapshot.at > _ABANDONED_AFTER:
            with self._lock:
                self._abandoned.add(key)
                self._changed = True
        return snapshot

    def _scan(self, origins: Mapping[int, int]) -> dict[int, int]:
        """Take in the stamps of partitions from these offsets on; return where they end."""
        starts, ends = self._broker.start_offsets(self._topic), self._broker.end_offsets(self._topic)
        for number, origin in origins.items():
            offset, end = max(origin, starts.get(number, 0)), ends[number]
            if offset < end:
                self._scan_partition(number, offset, end)
        return {number: ends[number] for number in origins}

    def _scan_partition(self, number: int, offset: int, end: int) -> None:
        fetcher = self._broker.fetcher(self._topic, number)
        try:
            while offset < end:
                batch = fetcher.fetch(offset, max_bytes=_SCAN_BYTES, wait_s=_FETCH_WAIT_S)
                if batch.next_offset <= offset:
                    raise BrokerUnavailableError(
                        self._broker.kind, f"{self._topic}/{number}", f"it does not return offset {offset}"
                    )
                for records in batch.batches:
                    self._note(number, records)
                offset = batch.next_offset
        finally:
            fetcher.close()

    def _note(self, partition: int, records: Any) -> None:
        found = list(sightings(records))
        whole, now_ms = self._broker.capabilities.whole_batches, self.now_ms()
        with self._lock:
            for sighting in found:
                self._book.note(partition, sighting, whole=whole, now_ms=now_ms, most=self.limits.max_producers)
