"""A batch with a stamp is in the log once, however often it is published.

The log itself is the memory: the first record of each part says whose it is (see stamps.py). What a process knows of
that is in its ProducerMemory, which a crash does not take: it is built again from a snapshot and the log behind it.
What is lost with the control store are the last batches; a producer should then begin with a new id.

Several processes (brokers that allow it): a producer may speak to one after the other. Two processes that get the same
stamp at the same moment do not see each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from dw_platform.foundation import Clock
from dw_platform.log import AppendResult, InvalidRecordsError
from dw_platform.store import PersistentStore
from dw_platform.streaming.contract import Broker
from dw_platform.streaming.errors import SequenceGapError
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.producer_memory import ProducerMemory
from dw_platform.streaming.producers import LastBatch
from dw_platform.streaming.publishing import ProducerStamp
from dw_platform.streaming.routing import Parts, tail
from dw_platform.streaming.stamps import stamped
from dw_platform.streaming.turns import Turns
from dw_platform.streaming.waits import Steps, Work


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done with a stamped batch."""

    duplicate: bool
    """Whether all of it is in the log already."""

    known: LastBatch | None
    """What is known of this very batch: something was written before, or may have been."""


class ProducerLedger:
    """Decides about stamped batches of one topic; any thread may use it, one batch of a producer at a time.

    `turns` is where batches of one producer wait for each other.
    """

    def __init__(
        self, broker: Broker, topic: str, store: PersistentStore, limits: StreamingLimits, *, clock: Clock
    ) -> None:
        self._topic, self._whole = topic, broker.capabilities.whole_batches
        self.memory = ProducerMemory(broker, topic, store, limits, clock=clock)
        self.turns = Turns()

    def judge(self, stamp: ProducerStamp) -> Steps[Verdict]:
        """Return what to do with a batch; raise SequenceGapError if one before it is missing.

        Reads the log where that is needed to know.
        """
        if not self.memory.loaded:
            yield Work(self.memory.load)
        batch = self.memory.last(stamp.producer)
        if batch is not None and batch.floors:
            yield Work(partial(self.memory.resolve, [batch]))
        if self.memory.shared:
            yield Work(self.memory.catch_up)
        batch = self.memory.last(stamp.producer)
        expected = 0 if batch is None else batch.sequence + batch.complete
        if stamp.sequence > expected:
            raise SequenceGapError(self._topic, stamp.producer, expected, stamp.sequence)
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
        result = Parts()
        for number, records in parts:
            found = written[number].found if number in written else 0
            if found < len(records):
                rest = tail(records, found)
                marked = stamped(rest, stamp, partitions=partitions, parts=len(parts), first=found, whole=self._whole)
                result.append((number, marked))
        return result

    def begin(self, stamp: ProducerStamp, known: LastBatch | None, partitions: int, parts: Parts) -> LastBatch:
        """Note that a batch, split like `parts`, is about to be written where it is not yet."""
        batch = known or LastBatch(stamp.sequence, partitions, len(parts), self.memory.now_ms())
        batch.partitions, batch.parts_expected = partitions, len(parts)
        written = {number for number, part in batch.parts.items() if part.found == part.expected}
        self.memory.begin(stamp.producer, batch, [number for number, _ in parts if number not in written])
        return batch

    def end(self, stamp: ProducerStamp, parts: Parts, offsets: Mapping[int, AppendResult]) -> None:
        """Note which of the parts were acknowledged; of the others nobody knows, until somebody looks."""
        self.memory.end(stamp.producer, {number: len(records) for number, records in parts}, offsets)

    def unfinished(self, within: timedelta) -> bool:
        """Return whether the last batch of a producer heard of lately is not, or not surely, in the log as a whole.

        Looks into the log for those of whom this process has not heard yet.
        """
        if not self.memory.exists:
            return False
        self.memory.load()
        self.memory.catch_up()
        return self.memory.incomplete(self.memory.now_ms() - int(within.total_seconds() * 1_000))
