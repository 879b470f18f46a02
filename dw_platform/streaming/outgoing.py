"""A batch before and after its sending: plain, or stamped by an idempotent producer."""

from collections.abc import Iterator
from typing import Protocol

from dw_platform.log import Records
from dw_platform.streaming.idempotence import ProducerLedger
from dw_platform.streaming.producers import LastBatch
from dw_platform.streaming.publication import Offsets
from dw_platform.streaming.publishing import PartitionReceipt, ProducerStamp
from dw_platform.streaming.routing import Parts, partition_of, split
from dw_platform.streaming.turns import Turn


class Outgoing(Protocol):
    """What a stream asks of a batch, in this order; `end` is called once after `begin`, on any thread."""

    records: Records

    def route(self, partitions: int) -> Parts:
        """Return what is to be written to each partition of a topic that uses so many."""

    def begin(self, parts: Parts) -> None:
        """Take note that these parts are about to be sent."""

    def end(self, offsets: Offsets) -> None:
        """Take note of what was acknowledged; the rest may or may not be in the log."""

    def receipts(self, offsets: Offsets) -> tuple[PartitionReceipt, ...]:
        """Return where the whole batch is."""


class PlainBatch:
    """A batch without a stamp; if it has no keys, batches take turns with the partitions."""

    def __init__(self, records: Records, turn: Iterator[int]) -> None:
        self.records, self._turn = records, turn

    def route(self, partitions: int) -> Parts:
        return split(self.records, partitions, next(self._turn) % partitions)

    def begin(self, parts: Parts) -> None:
        """Nothing to remember."""

    def end(self, offsets: Offsets) -> None:
        """Nothing to remember."""

    def receipts(self, offsets: Offsets) -> tuple[PartitionReceipt, ...]:
        return tuple(
            PartitionReceipt(partition, result.base_offset, result.next_offset)
            for partition, result in sorted(offsets.items())
        )


class StampedBatch:
    """A batch that is in the log once.

    Records without a key go where their producer's id leads, so that a retry meets them there.
    """

    def __init__(self, records: Records, stamp: ProducerStamp, ledger: ProducerLedger, turn: Turn) -> None:
        self.records = records
        self.known: LastBatch | None = None
        """What is in the log of it already."""

        self.sent = False
        """Whether it was begun; then `end` gives the turn back."""
        self._stamp, self._ledger, self._turn = stamp, ledger, turn
        self._partitions = 0
        self._parts = Parts()

    def route(self, partitions: int) -> Parts:
        # Something was written under another number of partitions: the rest belongs where it would have gone then.
        self._partitions = self.known.partitions if self.known and self.known.parts else partitions
        keyless = partition_of(self._stamp.producer.encode(), self._partitions)
        self._parts = split(self.records, self._partitions, keyless)
        return self._ledger.outgoing(self._parts, self._stamp, self.known, self._partitions)

    def begin(self, parts: Parts) -> None:
        del parts  # those that are left to be written; the ledger wants all
        self.known = self._ledger.begin(self._stamp, self.known, self._partitions, self._parts)
        self.sent = True

    def end(self, offsets: Offsets) -> None:
        try:
            self._ledger.end(self._stamp, self._parts, offsets)
        finally:
            self._turn.give_back()

    def receipts(self, offsets: Offsets) -> tuple[PartitionReceipt, ...]:
        del offsets  # those of the parts that were there before count as well
        return self.known.receipts() if self.known else ()
