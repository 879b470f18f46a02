"""The datagrams between nodes: small, bounded, and authenticated by a key that only the control store hands out.

    16 bytes  HMAC-SHA256 of the rest, cut
    the rest  a JSON array: kind, sender, receiver, incarnation, number, version, about, address, accepted

A datagram names its receiver, so a copy of it convinces nobody else; heartbeats are numbered and questions carry a
random number that the answer repeats, so a copy that comes later convinces nobody again. What is larger than 1,200
bytes, not authentic or not understood is dropped without an answer.
"""

import hmac
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dw_platform.fabric.membership import Address

MAX_BYTES = 1_200
KEY_BYTES = 32
_MAC_BYTES = 16


class MessageKind(StrEnum):
    """What a datagram says."""

    BEAT = "beat"
    """I live; `number` counts the heartbeats of this incarnation."""

    ACK = "ack"
    """I have heard heartbeat `number`, and count it if `accepted`."""

    PING = "ping"
    """Do you live? Answer with `number`."""

    PONG = "pong"
    """I do."""

    ASK = "ask"
    """Ping `about` at `address` for me, and answer with `number`."""

    VOUCH = "vouch"
    """`about` has answered me, in its life `incarnation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One datagram; what `kind` does not need stays empty."""

    kind: MessageKind
    sender: str
    receiver: str
    incarnation: int
    number: int
    version: int = 0
    """Of the group as the sender knows it, so that who knows an older one looks."""

    about: str = ""
    address: Address | None = None
    accepted: bool = False


def encode(message: Message, key: bytes) -> bytes:
    """Return the datagram."""
    content = [
        message.kind,
        message.sender,
        message.receiver,
        message.incarnation,
        message.number,
        message.version,
        message.about,
        message.address,
        message.accepted,
    ]
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return _mac(body, key) + body


def decode(datagram: bytes, key: bytes) -> Message | None:
    """Return the message, or None for anything that no node with this key has sent."""
    mac, body = datagram[:_MAC_BYTES], datagram[_MAC_BYTES:]
    if len(datagram) > MAX_BYTES or not hmac.compare_digest(mac, _mac(body, key)):
        return None
    try:
        return _message(json.loads(body))
    except (ValueError, TypeError):
        return None


def _message(content: Any) -> Message:
    kind, sender, receiver, incarnation, number, version, about, address, accepted = content
    return Message(
        kind=MessageKind(kind),
        sender=str(sender),
        receiver=str(receiver),
        incarnation=int(incarnation),
        number=int(number),
        version=int(version),
        about=str(about),
        address=None if address is None else (str(address[0]), int(address[1])),
        accepted=bool(accepted),
    )


def _mac(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_MAC_BYTES]
