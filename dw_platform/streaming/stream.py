"""One topic as this process serves it: opened with its first use, published to, and watched."""

import itertools
import threading
import time
from collections.abc import Callable

from dw_platform.foundation import Clock
from dw_platform.log import Records
from dw_platform.store import PersistentStore
from dw_platform.streaming.backpressure import Deadline, StreamingBackpressureHandler
from dw_platform.streaming.definition import StreamDefinition
from dw_platform.streaming.errors import PublishTimedOutError
from dw_platform.streaming.fellows import Fellows
from dw_platform.streaming.gate import PartitionGate
from dw_platform.streaming.idempotence import ProducerLedger, Verdict
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.metrics import StreamTraffic
from dw_platform.streaming.outgoing import Outgoing, PlainBatch, StampedBatch
from dw_platform.streaming.publication import Offsets, Publication, check_parts, send
from dw_platform.streaming.publishing import ProducerStamp, PublishReceipt
from dw_platform.streaming.routing import Parts
from dw_platform.streaming.stamps import check_stamp, check_unstamped
from dw_platform.streaming.waits import Finished, Steps, Work


class Stream:
    """Any thread may use it. Nothing is asked of the broker before `open`, so one that is down holds up nobody else."""

    def __init__(
        self,
        definition: StreamDefinition,
        limits: StreamingLimits,
        *,
        store: PersistentStore,
        clock: Clock,
        watch: Callable[[bool], None],
        name: str,
    ) -> None:
        self.definition, self.topic, self.broker = definition, definition.topic, definition.broker
        self.traffic = StreamTraffic(clock=clock)
        self.handler = StreamingBackpressureHandler(
            definition,
            limits,
            store=store,
            traffic=self.traffic,
            clock=clock,
            watch=watch,
            name=f"{name}.{definition.topic}",
        )
        self.gate = PartitionGate(definition.topic, 1)
        shared = definition.broker.capabilities.shared_by_processes
        self.fellows = Fellows(store, self.gate, shared=shared, clock=clock)
        self.ledger = ProducerLedger(definition.broker, definition.topic, store, limits, clock=clock)
        self._clock = clock
        self._opening = threading.Lock()
        self.opened = False
        self._turn = itertools.count()
        # Partitions that were published to, where submitting does not have to open anything and so does not block.
        self._warm: set[int] = set()

    def open(self) -> None:
        """Make the topic unless it is there, and register the groups that count; once is enough."""
        with self._opening:
            if self.opened:
                return
            info = self.broker.ensure_topic(self.topic, self.definition.settings)
            for group in self.definition.groups:
                self.broker.commit(self.topic, group, {})
            self.fellows.open(info.partitions)
            self.handler.refresh()
            self.opened = True

    def publish(
        self, records: Records, stamp: ProducerStamp | None, deadline: Deadline, *, inline: bool
    ) -> Steps[PublishReceipt]:
        """Publish a batch; with `inline` the calling thread itself writes what it can."""
        started = time.perf_counter()
        if stamp is None:
            check_unstamped(records)
            receipt = yield from self._deliver(PlainBatch(records, self._turn), deadline, inline=inline)
        else:
            check_stamp(stamp)
            receipt = yield from self._publish_stamped(records, stamp, deadline, inline=inline)
        self.traffic.latency.record(time.perf_counter() - started)
        return receipt

    def _publish_stamped(
        self, records: Records, stamp: ProducerStamp, deadline: Deadline, *, inline: bool
    ) -> Steps[PublishReceipt]:
        turn = self.ledger.turns.take(stamp.producer)
        batch = StampedBatch(records, stamp, self.ledger, turn)
        try:
            if not (yield from turn.wait(deadline.left_s)):
                raise PublishTimedOutError(self.topic, deadline.waited_s)
            if not self.opened:
                yield Work(self.open)
            verdict = yield from self.ledger.judge(stamp)
            if verdict.duplicate:
                self.traffic.duplicates.add(len(records))
                return self._duplicate(len(records), verdict)
            batch.known = verdict.known
            return (yield from self._deliver(batch, deadline, inline=inline))
        finally:
            # What is on its way keeps the turn until it is known what became of it.
            if not batch.sent:
                turn.give_back()

    def _deliver(self, batch: Outgoing, deadline: Deadline, *, inline: bool) -> Steps[PublishReceipt]:
        if not self.opened:
            yield Work(self.open)
        decision = yield from self.handler.admit(len(batch.records), deadline)
        try:
            partitions = yield from self._enter(deadline)
            parts = self._routed(batch, partitions)
        except BaseException:
            self.handler.settle(len(batch.records))
            raise
        publication = Publication(len(parts), lambda offsets, error: self._left(batch, offsets, error))
        yield from self._send(parts, publication, inline=inline)
        offsets: Offsets = yield Finished(publication.done)
        return PublishReceipt(
            topic=self.topic,
            records=len(batch.records),
            parts=batch.receipts(offsets),
            level=decision.level,
            headers=decision.headers,
            directive=decision.directive,
        )

    def _enter(self, deadline: Deadline) -> Steps[int]:
        if not self.fellows.up_to_date:
            yield Work(self.fellows.follow)
        partitions = yield from self.gate.enter(deadline.left_s)
        if partitions is None:
            raise PublishTimedOutError(self.topic, deadline.waited_s)
        return partitions

    def _routed(self, batch: Outgoing, partitions: int) -> Parts:
        """Return the batch by partition; a wrong one is refused as a whole, and leaves the gate."""
        try:
            parts = batch.route(partitions)
            if len(parts) > 1:
                check_parts(parts, self.definition.settings.policy.max_record_bytes)
            batch.begin(parts)
        except BaseException:
            self.gate.leave()
            raise
        return parts

    def _send(self, parts: Parts, publication: Publication, *, inline: bool) -> Steps[None]:
        wanted = {partition for partition, _ in parts}
        if inline or wanted <= self._warm:
            send(self.broker, self.topic, parts, publication, inline=inline)
        else:
            yield from self._send_beside(parts, publication)
        self._warm |= wanted

    def _send_beside(self, parts: Parts, publication: Publication) -> Steps[None]:
        """Submit on another thread; a coroutine that is cancelled before that has begun sends nothing."""
        begun = threading.Lock()

        def work() -> None:
            if begun.acquire(blocking=False):
                send(self.broker, self.topic, parts, publication, inline=False)

        try:
            yield Work(work)
        except BaseException as error:
            if begun.acquire(blocking=False):
                publication.failed(len(parts), error)
            raise

    def _left(self, batch: Outgoing, offsets: Offsets, error: BaseException | None) -> None:
        """Everything of a batch is acknowledged or failed; runs on whichever thread brought the last news."""
        self.gate.leave()
        self.handler.settle(len(batch.records))
        if error is None:
            self.traffic.published.add(len(batch.records))
        else:
            self._warm.clear()
            self.traffic.failed.add(len(batch.records))
        batch.end(offsets)

    def _duplicate(self, records: int, verdict: Verdict) -> PublishReceipt:
        return PublishReceipt(
            topic=self.topic,
            records=records,
            parts=verdict.known.receipts() if verdict.known else (),
            level=self.handler.reading().level,
            duplicate=True,
        )

    def reconfigure(self, limits: StreamingLimits) -> None:
        """Work with other limits from now on."""
        self.ledger.memory.limits = limits
        self.handler.reconfigure(limits)

    def metrics(self) -> dict[str, float]:
        """Return the numbers of this stream."""
        return self.traffic.metrics() | {
            "depth": self.handler.depth.depth(),
            "occupancy": self.handler.reading().occupancy,
            "partitions": self.gate.partitions,
            "producers": len(self.ledger.memory),
        }

    def close(self) -> None:
        """Refuse publishers from now on."""
        self.handler.close()
        self.gate.close()
