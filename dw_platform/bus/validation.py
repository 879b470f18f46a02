"""Messages are looked at before anything else happens, so a bad one in a batch changes nothing."""

from collections.abc import Sequence

from dw_platform.bus.errors import InvalidMessageError, MessageTooLargeError
from dw_platform.bus.limits import BusLimits, TopicOptions
from dw_platform.bus.message import Message


def check_messages(topic: str, messages: Sequence[Message], options: TopicOptions, limits: BusLimits) -> None:
    """Raise for the first message that the topic cannot carry."""
    for message in messages:
        if not isinstance(message, Message):
            raise InvalidMessageError(topic, f"it is a {type(message).__name__}, not a Message")
        if not isinstance(message.key, bytes | None):
            raise InvalidMessageError(topic, f"its key is a {type(message.key).__name__}, not bytes")
        if options.durable and not isinstance(message.value, bytes):
            raise InvalidMessageError(
                topic, f"a durable topic takes bytes, its value is {type(message.value).__name__}"
            )
        if (size := message.size()) > limits.max_record_bytes:
            raise MessageTooLargeError(topic, size, limits.max_record_bytes)
