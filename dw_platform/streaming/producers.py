"""What is known about idempotent producers of a topic: the last batch of each, and where its parts are.

Bounded: at most so many producers, those heard of last, and none that was silent for longer than its time to live.
A producer that was forgotten and goes on gets SequenceGapError; it never writes twice without notice.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dw_platform.log import AppendResult
from dw_platform.streaming.publishing import PartitionReceipt
from dw_platform.streaming.stamps import Sighting


@dataclass(slots=True)
class Part:
    """The records of a batch in one partition, as far as they are known to be in the log."""

    base: int
    next: int
    found: int
    expected: int


@dataclass(slots=True)
class LastBatch:
    """The last batch of one producer."""

    sequence: int
    partitions: int
    """What it was split over."""

    parts_expected: int
    heard_ms: int
    parts: dict[int, Part] = field(default_factory=dict)
    floors: dict[int, int] = field(default_factory=dict)
    """Partitions of which it is not known what they hold of it, and the offset from which to look."""

    @property
    def complete(self) -> bool:
        """Whether every record is known to be in the log."""
        parts = list(self.parts.values())
        return len(parts) == self.parts_expected and all(part.found == part.expected for part in parts)

    def receipts(self) -> tuple[PartitionReceipt, ...]:
        """Return where it is."""
        return tuple(
            PartitionReceipt(number, part.base, part.next) for number, part in sorted(self.parts.copy().items())
        )

    def acknowledged(self, partition: int, result: AppendResult, records: int) -> None:
        """Take in that a part, of so many records, is in the log as a whole; its last ones were just written."""
        before = self.parts.get(partition)
        self.parts[partition] = Part(
            before.base if before else result.base_offset, result.next_offset, records, records
        )
        self.floors.pop(partition, None)


class ProducerBook:
    """The last batches by producer, the one heard of last at the end; the ledger's lock guards it."""

    def __init__(self) -> None:
        self._batches: OrderedDict[str, LastBatch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[LastBatch]:
        return iter(self._batches.values())

    def get(self, producer: str, *, not_before_ms: int) -> LastBatch | None:
        """Return its last batch, unless it has been silent for too long."""
        batch = self._batches.get(producer)
        if batch is not None and batch.heard_ms < not_before_ms:
            del self._batches[producer]
            return None
        return batch

    def put(self, producer: str, batch: LastBatch, *, most: int) -> None:
        """Remember its last batch, and forget those who were silent for longest if there are too many."""
        self._batches[producer] = batch
        self._batches.move_to_end(producer)
        while len(self._batches) > most:
            self._batches.popitem(last=False)

    def note(self, partition: int, sighting: Sighting, *, whole: bool, now_ms: int, most: int) -> None:
        """Take in a stamp that was found in the log; an older one than is known changes nothing."""
        batch = self._batches.get(sighting.producer)
        if batch is None or sighting.sequence > batch.sequence:
            if sighting.index:
                return  # without its first record it is not known what it belongs to
            batch = LastBatch(sighting.sequence, sighting.partitions, sighting.parts, now_ms)
            self.put(sighting.producer, batch, most=most)
        if sighting.sequence < batch.sequence:
            return
        part = batch.parts.get(partition)
        if not sighting.index:
            batch.partitions, batch.parts_expected = sighting.partitions, sighting.parts
            found = sighting.records if whole else 1
            batch.parts[partition] = part or Part(sighting.offset, sighting.offset + found, found, sighting.records)
        elif part is not None and sighting.index >= part.found:
            part.found, part.next = sighting.index + 1, sighting.offset + 1

    def absorb(self, other: "ProducerBook", *, most: int) -> None:
        """Take over what another process knew, where it knew more."""
        for producer, batch in other._batches.items():  # noqa: SLF001 - the same class
            mine = self._batches.get(producer)
            if mine is None or batch.sequence > mine.sequence:
                self.put(producer, batch, most=most)
            elif batch.sequence == mine.sequence:
                mine.parts = {**batch.parts, **mine.parts}

    def encode(self, positions: Mapping[int, int], at: datetime, *, at_most_bytes: int) -> bytes:
        """Return everything as JSON, without the producers that were silent for longest if it would be too large."""
        producers, size = [], 0
        for producer, batch in reversed(self._batches.items()):
            parts = [[number, p.base, p.next, p.found, p.expected] for number, p in batch.parts.items()]
            entry = [producer, batch.sequence, batch.partitions, batch.parts_expected, batch.heard_ms, parts]
            size += len(json.dumps(entry)) + 2
            if size > at_most_bytes:
                break
            producers.append(entry)
        offsets = {str(partition): offset for partition, offset in positions.items()}
        content = {"at": at.isoformat(), "positions": offsets, "producers": producers}
        return json.dumps(content, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a process knew at one moment; everything stamped below `positions` is in its book."""

    at: datetime
    positions: Mapping[int, int]
    book: ProducerBook

    @classmethod
    def decode(cls, value: bytes) -> "Snapshot":
        """Read what `encode` wrote; raise ValueError for anything else."""
        try:
            content = json.loads(value)
            book = ProducerBook()
            for producer, sequence, partitions, expected, heard_ms, parts in reversed(content["producers"]):
                batch = LastBatch(int(sequence), int(partitions), int(expected), int(heard_ms), _parts(parts))
                book.put(str(producer), batch, most=len(content["producers"]))
            positions = {int(partition): int(offset) for partition, offset in content["positions"].items()}
            return cls(datetime.fromisoformat(content["at"]).astimezone(UTC), positions, book)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from error


def _parts(written: Any) -> dict[int, Part]:
    return {int(number): Part(*map(int, numbers)) for number, *numbers in written}
