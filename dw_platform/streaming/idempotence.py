"""A batch with a stamp is in the log once, however often it is published.

The log itself is the memory: the first record of each part says whose it is (see stamps.py). What this process knows
of that is a book of last batches, built once by reading on from a snapshot in the control store:

    dw://internal/streaming/producers/{topic}/{node}    positions, and the last batch of each producer

Crash: everything stamped below a snapshot's positions is in its book. Parts that are on their way, and parts whose
publishing failed so that nobody knows whether they are in the log, hold the positions back. The first snapshot is
stored before the first stamped record is written, so a topic without one has none. What is lost with the control store
is the memory of the last batches; a producer should then begin with a new id.

Several processes (brokers that allow it): each keeps a snapshot of its own and reads those of the others. A producer
may speak to one after the other; two processes that get the same stamp at the same moment do not see each other.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Protocol, runtime_checkable

from dw_platform.foundation import Clock
from dw_platform.log import AppendResult, InvalidRecordsError
from dw_platform.store import PersistentStore, internal_key, internal_prefix
from dw_platform.streaming.contract import Broker
from dw_platform.streaming.errors import SequenceGapError
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.producers import LastBatch, ProducerBook, Snapshot
from dw_platform.streaming.publishing import ProducerStamp
from dw_platform.streaming.routing import Parts, tail
from dw_platform.streaming.stamps import sightings, stamped
from dw_platform.streaming.turns import Turns
from dw_platform.streaming.waits import Steps, Work

log = logging.getLogger(__name__)

SNAPSHOT_EVERY_S = 5.0
# Half of what the store takes for one value.
_SNAPSHOT_BYTES = 8 * 1024 * 1024
# Snapshots are renewed much more often, so this one's process is gone and its knowledge is in those of others.
_ABANDONED_AFTER = timedelta(minutes=10)
_RENEW_AFTER_S = 60.0
_SCAN_BYTES = 8 * 1024 * 1024


@runtime_checkable
class Recovering(Protocol):
    """A broker that finds what a crash left behind only when it opens its partitions for writing."""

    def recover(self, topic: str) -> None:
        """Open every partition, so that everything that is in the log can be read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done with a stamped batch."""

    duplicate: bool
    """Whether all of it is in the log already."""

    known: LastBatch | None
    """What is known of this very batch: something was written before, or may have been."""


class ProducerLedger:
    """The idempotent producers of one topic; any thread may use it, and one batch of a producer at a time."""

    def __init__(
        self, broker: Broker, topic: str, store: PersistentStore, limits: StreamingLimits, *, clock: Clock
    ) -> None:
        self._broker, self._topic, self._store, self._clock = broker, topic, store, clock
        self.limits = limits
        self.turns = Turns()
        self.loaded = False
        shared = broker.capabilities.shared_by_processes
        node = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}" if shared else "writer"
        self._prefix = internal_prefix("streaming", "producers", topic)
        self._key = internal_key("streaming", "producers", topic, node)
        self._lock = threading.Lock()
        self._scanning = threading.Lock()
        self._book = ProducerBook()
        self._in_flight: dict[str, LastBatch] = {}
        self._positions: dict[int, int] = {}
        self._scanned: dict[int, int] = {}
        self._changed, self._saved_at = False, 0.0

    def judge(self, stamp: ProducerStamp) -> Steps[Verdict]:
        """Return what to do with a batch; raise SequenceGapError if one before it is missing.

        Reads the log where that is needed to know.
        """
        if not self.loaded:
            yield Work(self.load)
        batch = self._known(stamp.producer)
        if batch is not None and batch.floors:
            yield Work(partial(self._resolve, [batch]))
        if self._broker.capabilities.shared_by_processes:
            # It may have spoken to another process meanwhile.
            yield Work(self._catch_up)
        batch = self._known(stamp.producer)
        if not _expected(batch, stamp):
            raise SequenceGapError(self._topic, stamp.producer, _next(batch), stamp.sequence)
        if batch is None or stamp.sequence > batch.sequence:
            return Verdict(duplicate=False, known=None)
        same = stamp.sequence == batch.sequence
        return Verdict(duplicate=not same or batch.complete, known=batch if same else None)

    def outgoing(self, parts: Parts, stamp: ProducerStamp, known: LastBatch | None, partitions: int) -> Parts:
        """Return what has to be written of a batch, stamped; the records that are in the log already are left out."""
        written = dict(known.parts) if known else {}
        sizes = {number: len(records) for number, records in parts}
        if any(sizes.get(number) != part.expected for number, part in written.items()):
            reason = f"{stamp.producer} has published other records under sequence {stamp.sequence}"
            raise InvalidRecordsError(reason)
        result, whole = Parts(), self._broker.capabilities.whole_batches
        for number, records in parts:
            found = written[number].found if number in written else 0
            if found < len(records):
                rest = tail(records, found)
                marked = stamped(rest, stamp, partitions=partitions, parts=len(parts), first=found, whole=whole)
                result.append((number, marked))
        return result

    def begin(self, stamp: ProducerStamp, partitions: int, parts: int, numbers: Iterable[int]) -> LastBatch:
        """Note that parts of a batch are about to be written to the partitions `numbers`."""
        with self._lock:
            batch = self._book.get(stamp.producer, not_before_ms=0)
            if batch is None or batch.sequence != stamp.sequence:
                batch = LastBatch(stamp.sequence, partitions, parts, self._now_ms())
            batch.partitions, batch.parts_expected, batch.heard_ms = partitions, parts, self._now_ms()
            batch.floors |= {number: self._positions.get(number, 0) for number in numbers}
            self._in_flight[stamp.producer] = batch
            self._book.put(stamp.producer, batch, most=self.limits.max_producers)
            self._changed = True
            return batch

    def end(self, stamp: ProducerStamp, sent: Parts, offsets: Mapping[int, AppendResult]) -> None:
        """Note which of the parts were acknowledged; of the others nobody knows, until somebody looks."""
        with self._lock:
            batch = self._in_flight.pop(stamp.producer)
            for number, records in sent:
                if number in offsets:
                    batch.acknowledged(number, offsets[number], len(records))
            self._advance(offsets)
            self._changed = True

    def unfinished(self, within: timedelta) -> bool:
        """Return whether the last batch of a producer heard of lately is not, or not surely, in the log as a whole.

        Looks into the log for those of whom this process has not heard yet.
        """
        if not self.loaded and self._store.list_versions(self._prefix):
            self.load()
        elif self.loaded and self._broker.capabilities.shared_by_processes:
            self._catch_up()
        since_ms = self._now_ms() - int(within.total_seconds() * 1_000)
        with self._lock:
            return any(not batch.complete and batch.heard_ms >= since_ms for batch in self._book)

    def producers(self) -> int:
        """Return how many are remembered."""
        return len(self._book)

    def load(self) -> None:
        """Build the book from the snapshots and from what was written after them; once is enough."""
        with self._scanning:
            if self.loaded:
                return
            if isinstance(self._broker, Recovering):
                self._broker.recover(self._topic)
            self._positions = self._read_others(self._store.list_versions(self._prefix))
            self._scanned = dict(self._positions)
            # Before the first stamped record: from now on a snapshot says from where to look.
            self._save()
            self.loaded = True

    def snapshot(self) -> None:
        """Store what is known if it has changed; parts of which nobody knew are looked for first."""
        if not self.loaded:
            return
        with self._lock:
            uncertain = [b for b in self._book if b.floors and b not in self._in_flight.values()]
            due = self._changed or self._clock.monotonic() - self._saved_at >= _RENEW_AFTER_S
        if uncertain:
            self._resolve(uncertain)
        if due or uncertain:
            self._save()

    def _save(self) -> None:
        # Asked first: whatever is below these ends and ours is in the book, or in flight and holds its place.
        ends = self._broker.end_offsets(self._topic)
        with self._lock:
            for number, end in ends.items():
                self._positions[number] = max(end, self._positions.get(number, 0))
            positions = dict(self._positions)
            for batch in self._book:
                for number, floor in batch.floors.items():
                    positions[number] = min(floor, positions.get(number, floor))
            value = self._book.encode(positions, self._clock.now(), at_most_bytes=_SNAPSHOT_BYTES)
            self._changed = False
        self._store.put(self._key, value)
        self._saved_at = self._clock.monotonic()

    def _catch_up(self) -> None:
        """Learn what other processes have written since the last time; costs one listing where there are none."""
        with self._scanning:
            versions = self._store.list_versions(self._prefix)
            if versions.keys() - {self._key}:
                self._scanned |= self._read_others(versions)

    def _read_others(self, versions: Mapping[str, int]) -> dict[int, int]:
        """Take in the snapshots of other processes and what was written after them; return where the log ends."""
        ends = self._broker.end_offsets(self._topic)
        origins = dict(ends)
        for key in versions:
            if self.loaded and key == self._key:
                continue
            snapshot = self._snapshot_of(key)
            if snapshot is None:
                continue
            with self._lock:
                self._book.absorb(snapshot.book, most=self.limits.max_producers)
            for number, end in ends.items():
                origins[number] = min(origins.get(number, end), snapshot.positions.get(number, 0))
        return self._scan({number: max(origin, self._scanned.get(number, 0)) for number, origin in origins.items()})

    def _snapshot_of(self, key: str) -> Snapshot | None:
        """Return what a process knew; one that is long gone is forgotten once its knowledge is in ours."""
        entry = self._store.get(key)
        if entry is None:
            return None
        try:
            snapshot = Snapshot.decode(entry.value)
        except ValueError as error:
            # More of the log has to be read then; nothing is written twice for that.
            log.warning("snapshot of producers unreadable", extra={"key": key, "reason": str(error)})
            return Snapshot(self._clock.now(), {}, ProducerBook())
        if self.loaded and self._clock.now() - snapshot.at > _ABANDONED_AFTER:
            self._store.delete(key)
        return snapshot

    def _known(self, producer: str) -> LastBatch | None:
        oldest_ms = self._now_ms() - int(self.limits.producer_ttl.total_seconds() * 1_000)
        with self._lock:
            return self._book.get(producer, not_before_ms=oldest_ms)

    def _resolve(self, batches: Iterable[LastBatch]) -> None:
        """Look for parts whose publishing failed; afterwards it is known what is in the log."""
        with self._scanning:
            if isinstance(self._broker, Recovering):
                self._broker.recover(self._topic)
            floors: dict[int, int] = {}
            for batch in batches:
                for number, floor in batch.floors.items():
                    floors[number] = min(floor, floors.get(number, floor))
            self._scan(floors)
            with self._lock:
                for batch in batches:
                    batch.floors.clear()
                self._changed = True

    def _scan(self, origins: Mapping[int, int]) -> dict[int, int]:
        """Take in the stamps of partitions from these offsets on; return where they end."""
        starts, ends = self._broker.start_offsets(self._topic), self._broker.end_offsets(self._topic)
        for number, origin in origins.items():
            fetcher = self._broker.fetcher(self._topic, number)
            try:
                offset = max(origin, starts.get(number, 0))
                while offset < ends[number]:
                    batch = fetcher.fetch(offset, max_bytes=_SCAN_BYTES)
                    if batch.next_offset <= offset:
                        break
                    offset = batch.next_offset
                    for records in batch.batches:
                        self._note(number, records)
            finally:
                fetcher.close()
        return {number: ends[number] for number in origins}

    def _note(self, partition: int, records: object) -> None:
        found = list(sightings(records))
        if not found:
            return
        whole, now_ms = self._broker.capabilities.whole_batches, self._now_ms()
        with self._lock:
            for sighting in found:
                self._book.note(partition, sighting, whole=whole, now_ms=now_ms, most=self.limits.max_producers)

    def _advance(self, offsets: Mapping[int, AppendResult]) -> None:
        for number, result in offsets.items():
            self._positions[number] = max(result.next_offset, self._positions.get(number, 0))

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1_000)


def _next(batch: LastBatch | None) -> int:
    if batch is None:
        return 0
    return batch.sequence + batch.complete


def _expected(batch: LastBatch | None, stamp: ProducerStamp) -> bool:
    """Return whether nothing is missing before `stamp`."""
    return stamp.sequence <= _next(batch)
