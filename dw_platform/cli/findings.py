"""What `dw doctor` says about one part, and how it tries things without harm."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

from dw_platform.foundation import PlatformError

_DIAL_LIMIT_S = 3.0
_PORTS = {
    "http": 80,
    "https": 443,
    "kafka": 9092,
    "pulsar": 6650,
    "nats": 4222,
    "amqp": 5672,
    "rabbitmq": 5672,
    "sc": 15002,
}


class Health(StrEnum):
    """How one part of the machine is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One part, how it is, and what to do if it is not well."""

    part: str
    health: Health
    finding: str


def tried(part: str, attempt: Callable[[], str]) -> Finding:
    """Return what the attempt says, or its error."""
    try:
        return Finding(part, Health.OK, attempt())
    except PlatformError as error:
        return Finding(part, Health.FAILED, str(error))


def dialled(part: str, address: str, shown: str) -> Finding:
    """Open a connection and close it; whether the other side speaks the protocol is its client's business."""
    try:
        parts = urlsplit(address)
        port = parts.port or _PORTS.get(parts.scheme.partition("+")[0], 0)
    except ValueError:  # its text quotes the address
        return Finding(part, Health.FAILED, f"{shown} is no address; write special characters in it as %XX")
    return _connected(part, parts, port, shown)


def _connected(part: str, parts: SplitResult, port: int, shown: str) -> Finding:
    try:
        with socket.create_connection((parts.hostname or "localhost", port), timeout=_DIAL_LIMIT_S):
            return Finding(part, Health.OK, shown)
    except UnicodeError:  # a name that is none, such as one with two dots in a row
        return Finding(part, Health.FAILED, f"{shown} has no usable host name")
    except OSError as error:
        told = error.strerror or str(error)
        return Finding(part, Health.FAILED, f"{shown} does not answer: {told}; check that it runs there")
