"""uvicorn's HTTP/1.1 protocol with limits on the head of a request.

uvicorn limits how long a connection may be idle between requests, not how long or how large a head may be; a client
that sends a byte a minute, or a header without end, would be waited for and kept in memory.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024


class GuardedProtocol(HttpToolsProtocol):
    """Closes connections whose request does not begin in time, or begins with too much."""

    head_timeout_s = 10.0
    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._start_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


def guarded(head_timeout_s: float) -> type[asyncio.Protocol]:
    """Return the protocol with that limit."""
    attributes: dict[str, Any] = {"head_timeout_s": head_timeout_s}
    return type("GuardedProtocol", (GuardedProtocol,), attributes)
