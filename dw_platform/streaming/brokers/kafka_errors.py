"""What the client library reports, in the platform's own words."""

from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from dw_platform.foundation import InvalidValueError, PlatformError
from dw_platform.log import InvalidRecordsError, UnknownTopicError
from dw_platform.streaming.errors import BrokerAccessError, BrokerUnavailableError

T = TypeVar("T")
KIND = "kafka"
_ACCESS = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - the library's names for its own errors begin so
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._SSL,  # noqa: SLF001
}
_UNKNOWN = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
_WRONG_RECORDS = {KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG}
_WRONG_SETTINGS = {
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError._INVALID_ARG,  # noqa: SLF001
}
_SILENCE = {
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
}
# Short waits: somebody else is being elected, loaded or told.
_PASSING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its number is known, so the news is still on the way
    KafkaError._NOENT,  # noqa: SLF001
}


def is_silence(error: KafkaError) -> bool:
    """Return whether there was no answer."""
    return error.code() in _SILENCE


def is_passing(error: KafkaError) -> bool:
    """Return whether the same request may well succeed in a moment."""
    return error.code() in _PASSING


def is_refusal(error: KafkaError) -> bool:
    """Return whether the server, or its certificate, is the reason, and not its absence."""
    return error.code() in _ACCESS


def translated(error: KafkaError, address: str, *, topic: str = "", hint: str = "") -> PlatformError:
    """Return what the platform raises for it; `hint` is the reason that the library gave last, if it gave one."""
    code, reason = error.code(), _sentence(error.str())
    if code in _ACCESS:
        return BrokerAccessError(KIND, address, reason)
    if code in _UNKNOWN and topic:
        return UnknownTopicError(topic)
    if code in _WRONG_RECORDS:
        return InvalidRecordsError(f"the broker refuses them: {reason}")
    if code in _WRONG_SETTINGS:
        return InvalidValueError("a setting of the topic or in broker.options", topic or address, reason)
    return BrokerUnavailableError(KIND, address, f"{reason} ({hint})" if hint else reason)


def made(client: Callable[[dict[str, Any]], T], chosen: dict[str, Any]) -> T:
    """Return a new client of the library; raise InvalidValueError for settings that it does not know."""
    try:
        return client(chosen)
    except KafkaException as exception:
        names = sorted(set(chosen) - {"sasl.password"})
        raise InvalidValueError("broker.options", names, _sentence(error_of(exception).str())) from exception


def error_of(exception: BaseException) -> KafkaError:
    """Return the error inside the library's exception."""
    inner: Any = exception.args[0] if exception.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(exception))  # noqa: SLF001


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
