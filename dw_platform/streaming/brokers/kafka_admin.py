"""Topics, offsets and groups of a Kafka cluster, by its admin requests; no consumer joins a group for them.

What is only passing (an election, a coordinator that loads) is asked again until the request timeout is over.
"""

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import datetime
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there from elsewhere
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from dw_platform.foundation import Clock, InvalidValueError, PlatformError
from dw_platform.log import UnknownTopicError
from dw_platform.streaming.brokers.kafka_config import abandon, client_settings, request_timeout_s
from dw_platform.streaming.brokers.kafka_errors import error_of, is_passing, is_refusal, is_silence, made, translated
from dw_platform.streaming.errors import BrokerAccessError
from dw_platform.streaming.settings import BrokerSettings

_PAUSE_S = 0.05
Request = Callable[[AdminClient], Any]


class KafkaAdmin:
    """One admin client, made when it is needed first, and again in a process that was forked from its owner."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._timeout_s = request_timeout_s(settings)
        # Half of it, because silence has a second cause: see `_ask`.
        self._patience_s = self._timeout_s / 2
        self._lock, self._never = threading.Lock(), threading.Event()
        self._made: tuple[int, AdminClient] | None = None
        self._last_error: KafkaError | None = None

    def names(self) -> list[str]:
        """Return all topics but Kafka's own."""
        found = self._ask(lambda client: client.list_topics(timeout=self._patience_s))
        return sorted(name for name in found.topics if not name.startswith("__"))

    def partitions(self, topic: str) -> int:
        """Return how many the topic has; raise UnknownTopicError if there is none of that name."""
        return len(self._described(topic))

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> int:
        """Make the topic unless it is there; return how many partitions it has once they can be used."""
        new, there = NewTopic(topic, partitions, config=dict(config)), {KafkaError.TOPIC_ALREADY_EXISTS: None}
        self._ask(lambda client: client.create_topics([new], request_timeout=self._patience_s)[topic], topic, there)
        return self._usable(topic)

    def grow(self, topic: str, partitions: int) -> int:
        """Add partitions up to that number; return how many there are once they can be used."""
        new = NewPartitions(topic, partitions)
        try:
            self._ask(lambda client: client.create_partitions([new], request_timeout=self._patience_s)[topic], topic)
        except InvalidValueError:
            # The answer to an earlier attempt may have been lost, or somebody else was faster.
            if self.partitions(topic) < partitions:
                raise
        return self._usable(topic, at_least=partitions)

    def config(self, topic: str) -> dict[str, str] | None:
        """Return the topic's settings; None where this user may not see them."""
        place, hidden = ConfigResource(ResourceType.TOPIC, topic), {KafkaError.TOPIC_AUTHORIZATION_FAILED: None}
        found = self._ask(
            lambda client: client.describe_configs([place], request_timeout=self._patience_s)[place], topic, hidden
        )
        return None if found is None else {name: str(entry.value) for name, entry in found.items()}

    def offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        """Return for each partition the offset that `spec` names; -1 where there is none."""
        wanted = {TopicPartition(topic, number): spec for number in range(self.partitions(topic))}
        # What a transaction has not committed yet cannot be read, so the end is where such a thing begins.
        level = IsolationLevel.READ_COMMITTED

        def ask(client: AdminClient) -> dict[int, int]:
            found = client.list_offsets(wanted, isolation_level=level, request_timeout=self._patience_s)
            return {place.partition: future.result().offset for place, future in found.items()}

        return dict(sorted(self._ask(ask, topic).items()))

    def ends(self, topic: str) -> dict[int, int]:
        """Return for each partition where the next record will be."""
        return self.offsets(topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def starts(self, topic: str) -> dict[int, int]:
        """Return for each partition the first offset that is left."""
        return self.offsets(topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def at(self, topic: str, when: datetime) -> dict[int, int]:
        """Return for each partition the first record at or after `when`, or the end."""
        # Rounded up: records have whole milliseconds, and one of the millisecond before is too early.
        found = self.offsets(topic, OffsetSpec.for_timestamp(max(0, int(-(-when.timestamp() * 1000 // 1)))))
        ends = self.ends(topic)
        return {number: end if found.get(number, -1) < 0 else found[number] for number, end in ends.items()}

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return where the group reads next; nothing if it is unknown."""
        whole, unknown = ConsumerGroupTopicPartitions(group, None), {KafkaError.GROUP_ID_NOT_FOUND: None}
        found = self._ask(
            lambda client: client.list_consumer_group_offsets([whole], request_timeout=self._patience_s)[group],
            topic,
            unknown,
        )
        places = [] if found is None else found.topic_partitions or []
        return {
            place.partition: place.offset
            for place in sorted(places)
            # A negative one says that there is none.
            if place.topic == topic and place.offset >= 0
        }

    def commit(self, group: str, topic: str, next_offsets: Mapping[int, int]) -> None:
        """Store these offsets as they are."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in next_offsets.items()]
        request = ConsumerGroupTopicPartitions(group, places)

        def ask(client: AdminClient) -> None:
            found = client.alter_consumer_group_offsets([request], request_timeout=self._patience_s)[group].result()
            for place in found.topic_partitions or ():
                if place.error is not None:
                    raise KafkaException(place.error)

        self._ask(ask, topic)

    def groups(self) -> list[str]:
        """Return all groups of the cluster."""
        found = self._ask(lambda client: client.list_consumer_groups(request_timeout=self._patience_s))
        return sorted(group.group_id for group in found.valid)

    def delete_before(self, topic: str, next_offsets: Mapping[int, int]) -> None:
        """Remove everything below these offsets."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in next_offsets.items()]

        def ask(client: AdminClient) -> None:
            for future in client.delete_records(places, request_timeout=self._patience_s).values():
                future.result()

        self._ask(ask, topic)

    def close(self) -> None:
        """Let the client go; the library ends its threads with it."""
        with self._lock:
            if self._made is not None and self._made[0] != os.getpid():
                abandon(self._made)
            self._made = None

    def _described(self, topic: str) -> list[Any]:
        one = TopicCollection([topic])
        found = self._ask(lambda client: client.describe_topics(one, request_timeout=self._patience_s)[topic], topic)
        return list(found.partitions)

    def _usable(self, topic: str, at_least: int = 1) -> int:
        """Wait until the servers have told each other of the partitions and each has a leader."""
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            try:
                found = self._described(topic)
            except UnknownTopicError:
                found = []
            if len(found) >= at_least and all(partition.leader is not None for partition in found):
                return len(found)
            if self._clock.monotonic() > deadline:
                raise translated(KafkaError(KafkaError.LEADER_NOT_AVAILABLE), self._settings.address)
            self._clock.wait(self._never, _PAUSE_S)

    def _ask(self, request: Request, topic: str = "", otherwise: Mapping[int, Any] | None = None) -> Any:
        """Return the answer, or what `otherwise` has for an error; passing errors are waited out.

        After a server was away the library may wait for answers about groups on a connection that is no more, forever.
        So a client that gets no answer is replaced, and asked once more.
        """
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            client = self._client()
            try:
                answer = request(client)
                return answer.result() if isinstance(answer, Future) else answer
            except KafkaException as exception:
                error = error_of(exception)
                if otherwise is not None and error.code() in otherwise:
                    return otherwise[error.code()]
                problem = self._translated(error, topic, client)
                if is_silence(error):
                    self._replace(client)
                elif not is_passing(error):
                    raise problem from exception
                if isinstance(problem, BrokerAccessError) or self._clock.monotonic() + _PAUSE_S > deadline:
                    raise problem from exception
            self._clock.wait(self._never, _PAUSE_S)

    def _translated(self, error: KafkaError, topic: str, client: AdminClient) -> PlatformError:
        """Return what the platform raises; a refused sign-in shows up as silence, so look for the library's reason."""
        client.poll(0)
        last, self._last_error = self._last_error, None
        if last is not None and is_refusal(last):
            return translated(last, self._settings.address)
        return translated(error, self._settings.address, topic=topic, hint=last.str() if last else "")

    def _client(self) -> AdminClient:
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                abandon(self._made)
                chosen = client_settings(self._settings) | {"error_cb": self._remember}
                self._made = (os.getpid(), made(AdminClient, chosen))
            return self._made[1]

    def _replace(self, client: AdminClient) -> None:
        with self._lock:
            if self._made is not None and self._made[1] is client:
                self._made = None

    def _remember(self, error: KafkaError) -> None:
        # That all servers are away is known; why is in what came before it.
        if self._last_error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._last_error = error
