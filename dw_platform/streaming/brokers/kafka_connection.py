"""One connection to one Kafka server: requests go out, answers come back in the same order, into one buffer."""

import socket
import ssl
import struct
from collections import deque

from dw_platform.streaming.brokers import kafka_protocol as protocol
from dw_platform.streaming.brokers.kafka_batches import SPARE
from dw_platform.streaming.brokers.kafka_protocol import Answer, Api
from dw_platform.streaming.brokers.kafka_security import Security, SignInError

_CLIENT = "dw_platform"
# Larger is no answer to anything that is asked here, but the sign of a server that speaks something else.
_LARGEST_ANSWER = (1 << 31) - 1 - SPARE
_FIRST_BUFFER = 1 << 16


class TooOldError(Exception):
    """The server does not know the versions of the requests that are needed."""


class Connection:
    """Connected and signed in when made; raise OSError if there is no connection (any more), SignInError if refused.

    An answer's bytes are valid until the next one is received.
    """

    def __init__(self, address: tuple[str, int], security: Security, timeout_s: float) -> None:
        self.address, self._timeout_s = address, timeout_s
        self._socket: socket.socket = socket.create_connection(address, timeout_s)
        self._buffer, self._number, self._expected = bytearray(_FIRST_BUFFER), 0, deque[int]()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls:
                self._socket = security.context().wrap_socket(self._socket, server_hostname=address[0])
            self._check_versions()
            self._sign_in(security)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise SignInError(f"its certificate is not accepted: {error.verify_message}") from error
        except BaseException:
            self.close()
            raise

    def ask(self, api: Api, body: bytes) -> Answer:
        """Send a request and return its answer."""
        self.send(api, body)
        return self.receive()

    def send(self, api: Api, body: bytes) -> None:
        """Send a request; `receive` returns the answers in the order of the requests."""
        self._number = (self._number + 1) & 0x7FFFFFFF
        self._socket.sendall(protocol.request(api, self._number, _CLIENT, body))
        self._expected.append(self._number)

    def receive(self, wait_s: float = 0.0) -> Answer:
        """Return the next answer; `wait_s` is how long the server was asked to wait before it answers."""
        self._socket.settimeout(self._timeout_s + wait_s)
        self._fill(0, 4)
        (size,) = struct.unpack_from(">i", self._buffer)
        if not 4 <= size <= _LARGEST_ANSWER:
            raise ConnectionError(f"{size} cannot be the length of an answer; this may not be a Kafka server")
        if len(self._buffer) < size + SPARE:
            # Anew, because Arrow may still look at the old one, and then it cannot be resized.
            self._buffer = bytearray(size + (size >> 2) + SPARE)
        self._fill(0, size)
        answer = Answer(self._buffer, 0, size)
        if answer.number("i") != self._expected.popleft():
            raise ConnectionError("the answer belongs to another request")
        return answer

    def close(self) -> None:
        """Disconnect; closing twice is harmless."""
        self._socket.close()

    def _fill(self, at: int, end: int) -> None:
        with memoryview(self._buffer) as view:
            while at < end:
                got = self._socket.recv_into(view[at:end])
                if not got:
                    raise ConnectionError("the server has closed the connection")
                at += got

    def _check_versions(self) -> None:
        known = protocol.read_versions(self.ask(protocol.API_VERSIONS, b""))
        for api in protocol.NEEDED:
            lowest, highest = known.get(api.key, (1, 0))
            if not lowest <= api.version <= highest:
                raise TooOldError(f"request {api.key} is known in versions {lowest} to {highest}, not {api.version}")

    def _sign_in(self, security: Security) -> None:
        if security.mechanism is None:
            return
        answer = self.ask(protocol.SASL_HANDSHAKE, protocol.handshake_body(security.mechanism))
        if answer.number("h"):
            offered = [answer.text() or "" for _ in range(answer.number("i"))]
            raise SignInError(f"it takes {', '.join(offered)}, not {security.mechanism}")
        steps, token = security.steps(), b""
        try:
            token = next(steps)
            while True:
                token = steps.send(self._step(token))
        except StopIteration:
            return

    def _step(self, token: bytes) -> bytes:
        answer = self.ask(protocol.SASL_AUTHENTICATE, protocol.authenticate_body(token))
        error, reason = answer.number("h"), answer.text()
        if error:
            raise SignInError(reason or f"signing in failed with error {error}")
        return answer.binary()


def addresses(servers: str) -> list[tuple[str, int]]:
    """Return host and port of each server in a list such as `a:9092,b:9092`."""
    found = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        host, _, port = server.rpartition("://")[2].rpartition(":")
        found.append((host.strip("[]"), int(port)) if port.isdigit() and host else (server.strip("[]"), 9092))
    return found
