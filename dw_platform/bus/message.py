"""What travels on the bus, and how a class of messages is declared hot."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

_HOT = "__bus_hot__"

C = TypeVar("C", bound=type)


@dataclass(frozen=True, slots=True)
class Message:
    """One message; those with the same key are delivered in the order in which they were published.

    A durable topic takes values of bytes only. In memory a value is passed on as it is, so do not change it later.
    """

    value: Any
    key: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def size(self) -> int:
        """Return the bytes of key, value and headers; a value that is not bytes counts as nothing."""
        value = self.value
        size = len(value) if isinstance(value, bytes | bytearray | memoryview) else 0
        if self.key is not None:
            size += len(self.key)
        if self.headers:
            size += sum(len(name) + len(text) for name, text in self.headers.items())
        return size

    def with_headers(self, headers: Mapping[str, str]) -> "Message":
        """Return the same message with `headers` added."""
        return Message(self.value, self.key, {**self.headers, **headers})


class Delivery(NamedTuple):
    """A message as a subscriber gets it; version, partition and offset together are unique within the topic."""

    topic: str
    version: int
    """Of the topic's partition map."""

    partition: int
    offset: int
    message: Message

    @property
    def value(self) -> Any:
        """The message's value."""
        return self.message.value


def hot(message_class: C) -> C:
    """Declare that messages of this class are many and small: their topic uses a ring buffer from the first one on."""
    setattr(message_class, _HOT, True)
    return message_class


def is_hot(message_class: type) -> bool:
    """Return whether the class, or one it inherits from, was declared hot."""
    return getattr(message_class, _HOT, False) is True
