"""The five requests of Kafka's protocol that fetching needs, in versions that Kafka has spoken since 2.3.

Each request is a function that returns its body; each answer is read by `Answer`, a cursor over the received bytes.
"""

import struct
from dataclasses import dataclass

NO_ERROR, OFFSET_OUT_OF_RANGE, CORRUPT, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE = 0, 1, 2, 3, 5
INVALID_TOPIC, TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED = 17, 29, 30, 31
REFUSED = {TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED}
LATEST, EARLIEST = -1, -2
# Nobody's replica, and no session: every request says all that it wants.
_CLIENT, _NO_SESSION, _NO_EPOCH = -1, (0, -1), -1


@dataclass(frozen=True, slots=True)
class Api:
    """A kind of request and the version of it that is spoken here."""

    key: int
    version: int


FETCH, LIST_OFFSETS, METADATA = Api(1, 11), Api(2, 2), Api(3, 4)
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = Api(17, 1), Api(18, 0), Api(36, 0)
NEEDED = (FETCH, LIST_OFFSETS, METADATA)


class Answer:
    """Reads an answer's fields one after the other."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytearray, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def take(self, layout: str) -> tuple[int, ...]:
        """Return numbers of that layout, in struct's letters."""
        found = struct.unpack_from(f">{layout}", self.data, self.at)
        self.at += struct.calcsize(f">{layout}")
        return found

    def number(self, layout: str) -> int:
        """Return one number."""
        return self.take(layout)[0]

    def text(self) -> str | None:
        """Return a text; None for null."""
        size = self.number("h")
        return None if size < 0 else self._bytes(size).decode()

    def binary(self) -> bytes:
        """Return bytes; nothing for null."""
        return self._bytes(max(0, self.number("i")))

    def skip_numbers(self) -> None:
        """Pass over a list of int32."""
        count = max(0, self.number("i"))
        self.at += 4 * count

    def _bytes(self, size: int) -> bytes:
        self.at += size
        return bytes(self.data[self.at - size : self.at])


@dataclass(frozen=True, slots=True)
class Leaders:
    """Who leads the partitions of a topic; `error` is the topic's, and each partition has its own."""

    error: int
    addresses: dict[int, tuple[str, int] | None]


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition's part of a fetch: where in the received bytes its records are."""

    error: int
    end: int
    """Up to where records can be read."""

    aborted: tuple[tuple[int, int], ...]
    records_at: int
    records_end: int


def metadata_body(topic: str) -> bytes:
    """Ask who leads the topic's partitions, without making it."""
    return struct.pack(">i", 1) + _text(topic) + b"\x00"


def read_metadata(answer: Answer) -> Leaders:
    """Return the leaders of the one topic that was asked for."""
    answer.number("i")
    servers = dict[int, tuple[str, int]]()
    for _ in range(answer.number("i")):
        number, host, port = answer.number("i"), answer.text() or "", answer.number("i")
        answer.text()
        servers[number] = (host, port)
    answer.text()
    answer.take("ii")
    error = answer.number("h")
    answer.text()
    answer.number("b")
    addresses = dict[int, tuple[str, int] | None]()
    for _ in range(answer.number("i")):
        _, partition, leader = answer.take("hii")
        answer.skip_numbers()
        answer.skip_numbers()
        addresses[partition] = servers.get(leader)
    return Leaders(error, addresses)


def list_offsets_body(topic: str, partition: int, when: int, isolation: int) -> bytes:
    """Ask for the partition's first or next offset, LATEST or EARLIEST."""
    head = struct.pack(">ibi", _CLIENT, isolation, 1) + _text(topic)
    return head + struct.pack(">iiq", 1, partition, when)


def read_list_offsets(answer: Answer) -> tuple[int, int]:
    """Return error and offset."""
    answer.take("ii")
    answer.text()
    _, _, error, _, offset = answer.take("iihqq")
    return error, offset


def fetch_body(topic: str, partition: int, offset: int, *, max_bytes: int, wait_ms: int, isolation: int) -> bytes:
    """Ask for records; the answer comes at once if there is any, else within `wait_ms`."""
    head = struct.pack(">iiiibii", _CLIENT, wait_ms, 1, max_bytes, isolation, *_NO_SESSION)
    place = struct.pack(">iiiqqi", 1, partition, _NO_EPOCH, offset, -1, max_bytes)
    return head + struct.pack(">i", 1) + _text(topic) + place + struct.pack(">i", 0) + _text("")


def read_fetch(answer: Answer, isolation: int) -> Fetched:
    """Return the one partition that was asked for."""
    _, error, _, topics = answer.take("ihii")
    if error or not topics:
        return Fetched(error or UNKNOWN_TOPIC_OR_PARTITION, -1, (), answer.at, answer.at)
    answer.text()
    _, _, error, high, stable, _, transactions = answer.take("iihqqqi")
    aborted = tuple((*answer.take("qq"),) for _ in range(max(0, transactions)))
    _, size = answer.take("ii")
    end = stable if isolation and stable >= 0 else high
    return Fetched(error, end, aborted, answer.at, answer.at + max(0, size))  # type: ignore[arg-type]


def read_versions(answer: Answer) -> dict[int, tuple[int, int]]:
    """Return lowest and highest version of each request that the server knows."""
    answer.number("h")
    found = [answer.take("hhh") for _ in range(answer.number("i"))]
    return {key: (lowest, highest) for key, lowest, highest in found}


def handshake_body(mechanism: str) -> bytes:
    """Say how the client wants to sign in."""
    return _text(mechanism)


def authenticate_body(token: bytes) -> bytes:
    """Send one step of signing in."""
    return struct.pack(">i", len(token)) + token


def request(api: Api, number: int, client: str, body: bytes) -> bytes:
    """Return the whole request as it goes over the wire."""
    head = struct.pack(">hhi", api.key, api.version, number) + _text(client)
    return struct.pack(">i", len(head) + len(body)) + head + body


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
