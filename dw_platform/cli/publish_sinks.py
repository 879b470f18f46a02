"""Where `dw publish` sends records: to the broker directly, or to the gateway that has the platform's own log.

The way is chosen before the first record and kept: half a batch here and half there could not be told apart later.
"""

import itertools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TypeVar

from dw_platform.cli.gateway_client import GatewayBusyError, GatewaySink
from dw_platform.foundation import Clock, TransientError, UserError
from dw_platform.gateway.address import gateway_address
from dw_platform.log import PartitionLockedError, Records, UnknownTopicError
from dw_platform.pipelines import Platform
from dw_platform.pipelines.streams import open_streams
from dw_platform.pipelines.topics import PlatformBrokers, owner_of, stream_of
from dw_platform.streaming import Broker, PublishTimedOutError, StreamingScalingManager, StreamRejectedError
from dw_platform.streaming.publishing import PartitionReceipt
from dw_platform.streaming.routing import split

T = TypeVar("T")
# A stream under pressure is asked again this often, so that Ctrl-C is noticed.
_TURN_S = 1.0
_LOOK_EVERY_S = 0.1


class NoSuchTopicError(UserError):
    """The topic is not there, and nothing in the file says how it should be made."""

    def __init__(self, topic: str, streams: list[str]) -> None:
        self.topic, self.streams = topic, tuple(streams)
        known = f" Topics of streams: {', '.join(streams)}." if streams else ""
        super().__init__(
            f"There is no topic {topic}, and no stream of platform.yaml reads one of that name. Make it by "
            f"`dw topics create {topic} --partitions N`, or add a stream.{known}"
        )


class NeedsGatewayError(TransientError):
    """The topic lives in the gateway's process, which does not run."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"{topic} is a topic of the message bus, which runs inside the gateway, and no gateway runs. Start it by "
            "`dw gateway` or, with `gateway.enabled: true` in platform.yaml, by `dw up`."
        )


class BusyTopicError(TransientError):
    """Another process writes the topic's partitions, and it is no gateway that would take records for it."""

    def __init__(self, topic: str, holder: str, waited_s: float) -> None:
        self.topic, self.holder, self.waited_s = topic, holder, waited_s
        super().__init__(
            f"{topic} is being written by {holder} for more than {waited_s:g} s, and no gateway runs to take records "
            "meanwhile. Wait for it, or publish through a gateway: `dw gateway` or `dw up`."
        )


class StoppedError(Exception):
    """Somebody wants to end while a batch waits to be taken."""


class Sink(Protocol):
    """Takes batches of one topic."""

    @property
    def through(self) -> str:
        """What records go through, for people."""

    def publish(self, records: Records) -> tuple[PartitionReceipt, ...]:
        """Return once all records are durable; raise if any is not."""

    def close(self) -> None:
        """Let others have the topic."""


class StreamSink:
    """A stream's topic, directly: with the stream's backpressure and its partition map."""

    def __init__(self, streams: StreamingScalingManager, topic: str, kind: str) -> None:
        self._streams, self._topic, self.through = streams, topic, f"the {kind} broker"

    def publish(self, records: Records) -> tuple[PartitionReceipt, ...]:
        return self._streams.publish_sync(self._topic, records, timeout_s=_TURN_S).parts

    def close(self) -> None:
        self._streams.close()


class TopicSink:
    """A topic that belongs to nothing, directly."""

    def __init__(self, brokers: PlatformBrokers, topic: str) -> None:
        self._brokers, self._broker, self._topic = brokers, brokers.of(topic), topic
        self._turn, self.through = itertools.count(), f"the {self._broker.kind} broker"

    def publish(self, records: Records) -> tuple[PartitionReceipt, ...]:
        partitions = self._broker.topic(self._topic).partitions
        receipts = []
        for partition, part in split(records, partitions, next(self._turn) % partitions):
            result = self._broker.publish(self._topic, partition, part)
            receipts.append(PartitionReceipt(partition, result.base_offset, result.next_offset))
        return tuple(receipts)

    def close(self) -> None:
        self._brokers.close()


class PatientSink:
    """Sends a batch again while the other side says that it has no room; Ctrl-C ends the waiting."""

    def __init__(self, sink: Sink, *, patience_s: float, clock: Clock, stop: threading.Event) -> None:
        self._sink, self._patience_s, self._clock, self._stop = sink, patience_s, clock, stop
        self.through = sink.through

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._sink.close()

    def publish(self, records: Records) -> tuple[PartitionReceipt, ...]:
        """Return once all records are durable; raise StoppedError or the last refusal if they never were."""
        deadline = self._clock.monotonic() + self._patience_s
        while True:
            try:
                return self._sink.publish(records)
            except (GatewayBusyError, StreamRejectedError, PublishTimedOutError) as error:
                wait_s = float(getattr(error, "retry_after_s", 0.0))
                if self._stop.is_set():
                    raise StoppedError from error
                if self._clock.monotonic() + wait_s > deadline:
                    raise
                if self._clock.wait(self._stop, wait_s):
                    raise StoppedError from error


def open_sink(
    platform: Platform, topic: str, *, api_key: str | None, patience_s: float, stop: threading.Event
) -> PatientSink:
    """Return where the topic's records go; raise NoSuchTopicError, before anything is read, if that is nowhere."""
    brokers = PlatformBrokers(platform)
    try:
        sink = _choose(platform, brokers, topic, api_key, lambda: _claim(platform, brokers, topic, patience_s, stop))
    except BaseException:
        brokers.close()
        raise
    return PatientSink(sink, patience_s=patience_s, clock=platform.clock, stop=stop)


def _choose(
    platform: Platform, brokers: PlatformBrokers, topic: str, api_key: str | None, claim: Callable[[], bool]
) -> Sink:
    broker, stream, owner = brokers.of(topic), stream_of(platform.config, topic), owner_of(platform.config, topic)
    through_gateway = stream is not None and not broker.capabilities.shared_by_processes
    if owner == "bus" or (through_gateway and _address(platform)):
        if not _address(platform):
            raise NeedsGatewayError(topic)
        return _gateway(platform, topic, api_key, stamped=owner != "bus")
    if stream is None:
        _require_topic(platform, broker, topic)
    if not broker.capabilities.shared_by_processes and not claim():
        return _gateway(platform, topic, api_key, stamped=True)
    if stream is None:
        return TopicSink(brokers, topic)
    kind = broker.kind
    brokers.close()
    return StreamSink(open_streams(platform), topic, kind)


def _address(platform: Platform) -> str | None:
    return gateway_address(platform.store)


def _gateway(platform: Platform, topic: str, api_key: str | None, *, stamped: bool) -> GatewaySink:
    tls = platform.config.gateway.tls
    certificate = tls.certificate if tls else None
    return GatewaySink(topic, lambda: _address(platform), api_key=api_key, certificate=certificate, stamped=stamped)


def _require_topic(platform: Platform, broker: Broker, topic: str) -> None:
    try:
        broker.topic(topic)
    except UnknownTopicError as error:
        raise NoSuchTopicError(topic, sorted({entry.topic_name for entry in platform.config.streams})) from error


def _claim(platform: Platform, brokers: PlatformBrokers, topic: str, patience_s: float, stop: threading.Event) -> bool:
    """Make sure that this process can write all partitions; return False if a gateway has them and takes records.

    All of them before the first record: a batch of which one partition is refused would be there in part.
    """
    deadline = platform.clock.monotonic() + patience_s
    while True:
        broker = brokers.of(topic)
        try:
            # Dropping what is below 0 drops nothing, and needs the writer of every partition.
            broker.drop_before(topic, dict.fromkeys(range(broker.topic(topic).partitions), 0))
        except UnknownTopicError:  # made with the first record
            return True
        except PartitionLockedError as error:
            brokers.close()  # or two that wait would wait for each other's partitions
            if stream_of(platform.config, topic) and _address(platform):
                return False
            if platform.clock.monotonic() >= deadline:
                raise BusyTopicError(topic, error.holder, patience_s) from error
            if platform.clock.wait(stop, _LOOK_EVERY_S):
                raise StoppedError from error
        else:
            return True
