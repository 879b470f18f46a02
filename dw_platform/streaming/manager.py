"""Publishing to and reading from all streams of a platform, with limits that change while it runs.

Order: records of one key, and records of one partition, are read in the order in which they were published, also
while partitions are added. Loss: none that was acknowledged, unless the stream itself says that it drops. A broker
that is away holds up its own topics only.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from dw_platform.foundation import Clock, InvalidValueError, PlatformError, SystemClock
from dw_platform.foundation.ticker import Ticker
from dw_platform.log import LogBatch, Records, UnknownTopicError, check_name
from dw_platform.scaling import GaugeReading, PressureChanged, PressureGauge, StreamScaleDecision
from dw_platform.store import PersistentStore
from dw_platform.streaming.backpressure import Deadline, StreamingBackpressureHandler
from dw_platform.streaming.checkpoints import Checkpoints, StreamCheckpoint
from dw_platform.streaming.contract import TopicInfo
from dw_platform.streaming.definition import StreamDefinition, merged
from dw_platform.streaming.errors import StreamsClosedError
from dw_platform.streaming.groups import GroupMember, check_group
from dw_platform.streaming.growth import Growth
from dw_platform.streaming.limits import StreamingLimits
from dw_platform.streaming.metrics import flat_metrics
from dw_platform.streaming.publishing import DegradationDirective, ProducerStamp, PublishReceipt
from dw_platform.streaming.reading import FetcherPool
from dw_platform.streaming.scaler import ConsumersWanted, StreamScaler
from dw_platform.streaming.strategies import BackpressureStrategy
from dw_platform.streaming.stream import Stream
from dw_platform.streaming.subscription import StreamSubscription
from dw_platform.streaming.waits import Steps, run, run_async

log = logging.getLogger(__name__)

# Records that a subscription fetches ahead.
DEFAULT_BATCH = 1_000
# How often depth is looked at: a publisher that waits for room waits this much longer at most.
REFRESH_EVERY_S = 0.1


class StreamingScalingManager:
    """A StreamPublisher, a ScalableSubsystem and BackpressureAware; any thread and any event loop may use it.

    `with` (or `start` and `close`) runs its background work. Without it publishing works as well, partitions just do
    not grow by themselves. Brokers belong to whoever opened them, unless `owns_brokers` is set.
    """

    def __init__(
        self,
        definitions: Iterable[StreamDefinition],
        *,
        store: PersistentStore,
        limits: StreamingLimits | None = None,
        clock: Clock | None = None,
        name: str = "streaming",
        owns_brokers: bool = False,
    ) -> None:
        self.name = name
        self._store, self._clock, self._limits = store, clock or SystemClock(), limits or StreamingLimits()
        self._owns_brokers = owns_brokers
        self._gauge = PressureGauge(name, self._limits.thresholds, clock=self._clock)
        self._refresher = Ticker(f"{name}-depth", self.refresh, lambda: REFRESH_EVERY_S, clock=self._clock)
        self._follower = Ticker(f"{name}-maps", self.follow, lambda: REFRESH_EVERY_S, clock=self._clock)
        self._streams = {
            definition.topic: Stream(
                definition, self._limits, store=store, clock=self._clock, watch=self._watch, name=name
            )
            for definition in merged(definitions)
        }
        self._check(self._limits)
        self._fetchers = FetcherPool()
        self._checkpoints = Checkpoints(store, clock=self._clock)
        self._scaler = StreamScaler(store, clock=self._clock)
        self._evaluator = Ticker(f"{name}-scaling", self.evaluate, self._evaluate_every_s, clock=self._clock)
        self._subscriptions: set[StreamSubscription] = set()
        self._evaluating = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Look after depth, partitions and consumers on threads of its own; starting twice is harmless."""
        self._refresher.start()
        self._evaluator.start()

    def topics(self) -> list[str]:
        return sorted(self._streams)

    def topic(self, topic: str) -> TopicInfo:
        stream = self._opened(topic)
        return stream.broker.topic(topic)

    async def publish(
        self, topic: str, records: Records, *, stamp: ProducerStamp | None = None, timeout_s: float | None = None
    ) -> PublishReceipt:
        return await run_async(self._publish(topic, records, stamp, timeout_s, inline=False))

    def publish_sync(
        self, topic: str, records: Records, *, stamp: ProducerStamp | None = None, timeout_s: float | None = None
    ) -> PublishReceipt:
        return run(self._publish(topic, records, stamp, timeout_s, inline=True))

    def _publish(
        self,
        topic: str,
        records: Records,
        stamp: ProducerStamp | None,
        timeout_s: float | None,
        *,
        inline: bool,
    ) -> Steps[PublishReceipt]:
        longest_s = self._limits.longest_wait.total_seconds()
        deadline = Deadline.after(longest_s if timeout_s is None else timeout_s, self._clock)
        return self._stream(topic).publish(records, stamp, deadline, inline=inline)

    def read(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_records: int | None = None
    ) -> LogBatch:
        stream = self._opened(topic)
        with self._fetchers.lend(stream.broker, topic, partition) as fetcher:
            return fetcher.fetch(offset, max_bytes=max_bytes, max_records=max_records)

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        broker = self._opened(topic).broker
        starts, ends = broker.start_offsets(topic), broker.end_offsets(topic)
        return {partition: (starts.get(partition, 0), end) for partition, end in sorted(ends.items())}

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        auto_commit: bool = True,
        max_records: int = DEFAULT_BATCH,
        member: str | None = None,
    ) -> StreamSubscription:
        """Return a member of `group` that reads its share of the topic; a new group begins with the oldest record.

        At most `max_records` are fetched ahead. `member` is a name for people; what makes it unique is added.
        """
        stream = self._stream(topic)
        check_group(group)
        if max_records < 1:
            raise InvalidValueError("max_records", max_records, "at least 1")
        name = f"{member or f'{socket.gethostname()}-{os.getpid()}'}-{secrets.token_hex(4)}"
        subscription = StreamSubscription(
            stream,
            GroupMember(self._store, topic, group, check_name("member", name), clock=self._clock),
            checkpoints=self._checkpoints,
            limits=self.current_limits,
            clock=self._clock,
            auto_commit=auto_commit,
            max_records=max_records,
            on_close=self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    def checkpoint(self, topic: str, group: str, partition: int) -> StreamCheckpoint | None:
        """Return how far a group has read a partition, as far as subscriptions have stored it."""
        return self._checkpoints.get(topic, group, partition)

    def maintain(self, topic: str) -> None:
        """Apply the topic's retention and compaction where that is the client's work; it reads and removes files."""
        self._opened(topic).broker.maintain(topic)

    def close(self) -> None:
        """Refuse further work, let what is on its way finish, and stop; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        for subscription in tuple(self._subscriptions):
            subscription.close_sync()
        self._evaluator.stop()
        for stream in self._streams.values():
            stream.close()
        for stream in self._streams.values():
            run(stream.gate.idle(self._limits.longest_wait.total_seconds()))
        self._refresher.stop()
        self._follower.stop()
        self._farewell()
        self._fetchers.close()
        if self._owns_brokers:
            for broker in {id(stream.broker): stream.broker for stream in self._streams.values()}.values():
                broker.close()

    def refresh(self) -> None:
        """Look at the depth of every stream now; one whose broker is away does not hold up the others."""
        try:
            self._for_each(lambda stream: stream.handler.refresh())
        finally:
            readings = [stream.handler.reading().latest for stream in self._streams.values()]
            self._gauge.observe(max(readings, default=0.0))

    def follow(self) -> None:
        """Obey the partition maps that are shared with other processes; one that grows a topic waits for this."""
        self._for_each(lambda stream: stream.fellows.follow())

    def evaluate(self) -> None:
        """Look at throughput and lag of every stream now, and act on it; also stores what producers have published."""
        with self._evaluating:
            self._for_each(Stream.open, opened=False)
            self.follow()
            self._for_each(lambda stream: stream.ledger.memory.snapshot())
            self._for_each(lambda stream: self._scaler.evaluate(stream, self._limits))

    def grow(self, topic: str, partitions: int) -> Growth:
        """Give a topic more partitions as `evaluate` would, and return what became of it."""
        stream = self._opened(topic)
        if partitions < stream.gate.partitions:
            raise InvalidValueError("partitions", partitions, f"at least the {stream.gate.partitions} in use")
        with self._evaluating:
            return self._scaler.grow(stream, partitions, self._limits, why="asked for")

    def wanted_consumers(self, topic: str, group: str) -> StreamScaleDecision | None:
        """Return how many consumers a group should have, and why; None before the first look."""
        return self._scaler.wanted(topic, group)

    def on_consumers_wanted(self, listener: Callable[[ConsumersWanted], None]) -> Callable[[], None]:
        """Call `listener` when a group should have another number of consumers; return a function that ends this."""
        return self._scaler.on_wanted(listener)

    def set_strategy(self, topic: str, strategy: BackpressureStrategy | str) -> None:
        """Let a stream answer pressure in another way from now on; publishers that wait decide again."""
        self._stream(topic)
        others = {name: kept for name, kept in self._limits.overrides().items() if name != topic}
        chosen = others | {topic: BackpressureStrategy.named(strategy)}
        self.reconfigure_limits(
            replace(self._limits, strategies=tuple(f"{name}={kept}" for name, kept in sorted(chosen.items())))
        )

    def directive(self, topic: str) -> DegradationDirective | None:
        """Return what the pipeline of a stream should leave out now."""
        return self._stream(topic).handler.directive()

    def backpressure(self, topic: str) -> StreamingBackpressureHandler:
        """Return what watches over one stream's depth."""
        return self._stream(topic).handler

    def current_limits(self) -> StreamingLimits:
        """Return the limits that it works with now."""
        return self._limits

    def reconfigure_limits(self, limits: StreamingLimits) -> None:
        """Work with `limits` from now on; publishers that wait decide again."""
        self._check(limits)
        self._limits = limits
        self._gauge.reconfigure(limits.thresholds)
        for stream in self._streams.values():
            stream.reconfigure(limits)

    def backpressure_state(self) -> GaugeReading:
        """Return the pressure of the fullest stream."""
        return self._gauge.reading()

    def on_pressure_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        """Call `listener` at each change of level; return a function that ends this."""
        return self._gauge.on_change(listener)

    def scaling_metrics(self) -> Mapping[str, float]:
        """Return numbers of all streams together, and of each."""
        metrics = flat_metrics({topic: stream.metrics() for topic, stream in self._streams.items()})
        return metrics | self._scaler.metrics() | {"subscriptions": len(self._subscriptions)}

    def _evaluate_every_s(self) -> float:
        return self._limits.evaluate_every.total_seconds()

    def _for_each(self, work: Callable[[Stream], object], *, opened: bool = True) -> None:
        """Do something for every stream, and raise the first failure when all had their turn."""
        failures = []
        for stream in self._streams.values():
            try:
                if stream.opened is opened:
                    work(stream)
            except PlatformError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _farewell(self) -> None:
        """Store what the next start would have to find out otherwise."""
        for last in (lambda stream: stream.ledger.memory.snapshot(), lambda stream: stream.fellows.leave()):
            try:
                self._for_each(last)
            except PlatformError as error:
                log.warning("streams closed without a word to the store", extra={"reason": str(error)})

    def _check(self, limits: StreamingLimits) -> None:
        if len(self._streams) > limits.max_streams:
            raise InvalidValueError("max_streams", limits.max_streams, f"at least the {len(self._streams)} in use")
        for topic in limits.overrides():
            if topic not in self._streams:
                raise InvalidValueError("strategies", topic, f"one of the topics {', '.join(self._streams) or 'none'}")
        for stream in self._streams.values():
            stream.handler.check(limits)

    def _stream(self, topic: str) -> Stream:
        if self._closed:
            raise StreamsClosedError
        stream = self._streams.get(topic)
        if stream is None:
            raise UnknownTopicError(topic)
        if stream.fellows.shared:
            self._follower.start()
        return stream

    def _opened(self, topic: str) -> Stream:
        stream = self._stream(topic)
        if not stream.opened:
            stream.open()
        return stream

    def _watch(self, soon: bool) -> None:  # noqa: FBT001 - a callback of one flag
        self._refresher.start()
        if soon:
            self._refresher.hurry()
