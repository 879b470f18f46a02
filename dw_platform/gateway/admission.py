"""How much the gateway does at once: requests and the bytes of their bodies, counted as they come.

Whoever comes when it is full is told so at once; nothing queues inside, because a queue here would only hide the
pressure from those who cause it.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from dw_platform.foundation import TransientError
from dw_platform.gateway.errors import (
    BodyTooSlowError,
    MalformedBodyError,
    OverloadedError,
    RequestTimedOutError,
    RequestTooLargeError,
)
from dw_platform.gateway.settings import GatewaySettings

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class DisconnectedError(Exception):
    """The client has gone before its request was whole; there is nobody to answer."""


class Admission:
    """Counts what is under way; used by the event loop's thread only."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.requests = 0
        self.buffered_bytes = 0

    def enter(self) -> "Visit":
        """Let a request in, or raise OverloadedError; leave the visit in any case when it is over."""
        if self.requests >= self._settings.max_requests:
            raise OverloadedError("requests", self._settings.max_requests)
        return Visit(self, self._settings)


class Visit:
    """One request that was let in; what it holds is given back when it ends."""

    def __init__(self, admission: Admission, settings: GatewaySettings) -> None:
        self._admission, self._settings, self._held = admission, settings, 0
        self._reading = False
        admission.requests += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._admission.requests -= 1
        self._admission.buffered_bytes -= self._held

    async def body(self, receive: Receive, declared: str | None) -> bytes:
        """Return the whole body, within the limits of size and time; raise if it is cut off or too much.

        Nothing is published before it is whole, so a client that breaks off has published nothing.
        """
        limit = self._settings.max_request_bytes
        if declared is not None and declared.isdecimal() and int(declared) > limit:
            raise RequestTooLargeError(limit)
        self._reading = True
        body = await self._collect(receive, limit)
        self._reading = False
        return body

    def too_late(self) -> TransientError:
        """Return what to tell a caller whose time is over: whose fault it is, and what it means for the records."""
        kind = BodyTooSlowError if self._reading else RequestTimedOutError
        return kind(self._settings.request_timeout_s)

    async def _collect(self, receive: Receive, limit: int) -> bytes:
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            if chunk := message.get("body", b""):
                self._hold(len(chunk))
                if self._held > limit:
                    raise RequestTooLargeError(limit)
                chunks.append(chunk)
            if not message.get("more_body", False):
                break
        if not chunks:
            raise MalformedBodyError("it is empty")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _hold(self, size: int) -> None:
        most = self._settings.max_buffered_bytes
        self._held += size
        self._admission.buffered_bytes += size
        if self._admission.buffered_bytes > most:
            raise OverloadedError("bytes of requests", most)
