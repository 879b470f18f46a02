"""What the client library gets to know: defaults that fit this platform, then what the user wrote, which wins."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from dw_platform.foundation import InvalidValueError
from dw_platform.log import LogPolicy
from dw_platform.streaming.settings import BrokerSettings

# Kafka counts a whole batch where the platform counts a record: its frame, lengths and a few headers come on top.
FRAMING = 512
# The library's own largest batch; a topic that takes less gets a producer of its own.
LARGEST_BATCH = 1_000_000
_UNREAD = timedelta(days=7)


# Not for the user to change: with other values an acknowledgement or a position would mean less than is promised.
_OURS = {
    "acks", "request.required.acks", "enable.idempotence", "transactional.id", "delivery.report.only.error",
    "group.id", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "auto.offset.reset",
}  # fmt: skip
# Clients of the library that a forked process got from its parent: letting one go would wait for threads that stayed
# behind, so they are kept for good.
_INHERITED: list[Any] = []


def abandon(client: Any) -> None:
    """Keep a client that belongs to the process from which this one was forked from being ended here."""
    _INHERITED.append(client)


def check_options(settings: BrokerSettings) -> None:
    """Raise InvalidValueError for an option that is the platform's to set, or is no number where one is needed."""
    for name in sorted(_OURS & settings.options.keys()):
        allowed = "left out: the platform sets it, because its promises depend on it"
        raise InvalidValueError(f"broker.options.{name}", settings.options[name], allowed)
    chosen = producer_settings(settings, LARGEST_BATCH)
    for name in ("socket.timeout.ms", "delivery.timeout.ms", "batch.size"):
        number(chosen, name)


def client_settings(settings: BrokerSettings) -> dict[str, Any]:
    """Return what every client of this broker is made with.

    A user name means signing in by PLAIN over TLS; `security.protocol` and `sasl.mechanism` in the options say
    otherwise. No client makes topics by asking for them.
    """
    chosen: dict[str, Any] = {
        "bootstrap.servers": settings.address,
        "client.id": "dw_platform",
        "allow.auto.create.topics": False,
        # How long an answer may take; what has to be sent again is sent again within this time.
        "socket.timeout.ms": 10_000,
        # Errors reach the caller as exceptions, so the library need not write them to standard error, too.
        "log_level": 2,
    }
    if settings.username is not None:
        chosen |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        chosen |= {"sasl.username": settings.username, "sasl.password": settings.password or ""}
    chosen |= settings.options
    # The library knows both names for one setting and would take the default for the user's wish.
    if "sasl.mechanisms" in settings.options:
        chosen.pop("sasl.mechanism", None)
    return chosen


def producer_settings(settings: BrokerSettings, largest_batch: int) -> dict[str, Any]:
    """Return what a producer is made with: acknowledged by all replicas, nothing twice and in order."""
    chosen = {
        "batch.size": LARGEST_BATCH,
        "delivery.timeout.ms": 30_000,
        # Publishers hand in whole batches, so there is little to wait for.
        "linger.ms": 1,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 262_144,
        "message.max.bytes": 1_000_000_000,
        **client_settings(settings),
        "acks": "all",
        "enable.idempotence": True,
    }
    return chosen | {"batch.size": min(largest_batch, number(chosen, "batch.size"))}


def consumer_settings(settings: BrokerSettings) -> dict[str, Any]:
    """Return what a consumer is made with: it reads one partition and belongs to no group."""
    return {
        "fetch.queue.backoff.ms": 5,  # a full queue is looked at again soon; the default of a second stalls
        **client_settings(settings),
        "group.id": "dw_platform.fetch",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }


def request_timeout_s(settings: BrokerSettings) -> float:
    """Return how long a request may take in all."""
    return number(client_settings(settings), "socket.timeout.ms") / 1000


def number(chosen: Mapping[str, Any], name: str) -> int:
    """Return a setting as a number."""
    written = str(chosen[name])
    if not written.isdecimal() or int(written) < 1:
        raise InvalidValueError(f"broker.options.{name}", written, "a whole number above 0")
    return int(written)


def topic_settings(policy: LogPolicy) -> dict[str, str]:
    """Return how a topic is made: what the policy says and Kafka can do.

    Kafka knows nothing of readers. `when_read` adds no rule; with `keep_unread` messages stay for a week at least,
    Kafka's own default, however many they are, because what nobody has read yet cannot be held back.
    """
    age, size = policy.retention.max_age, policy.retention.max_bytes
    if policy.retention.keep_unread:
        age, size = None if age is None else max(age, _UNREAD), None
    return {
        "cleanup.policy": "compact" if policy.compacted else "delete",
        "retention.ms": "-1" if age is None else str(max(1, int(age.total_seconds() * 1000))),
        "retention.bytes": "-1" if size is None else str(size),
        "max.message.bytes": str(policy.max_record_bytes + FRAMING),
    }
