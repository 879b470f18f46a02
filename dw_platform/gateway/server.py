"""Serving the application until it is told to stop.

Stopping: no connection is accepted any more, requests that were accepted are answered within a limit, and only then
does `serve` return, so that the caller can close what keeps the records. Nothing that was acknowledged depends on that:
it was durable before its answer left.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from dw_platform.foundation import UserError
from dw_platform.gateway.address import url_of
from dw_platform.gateway.protocol import guarded
from dw_platform.gateway.settings import GatewaySettings, is_loopback

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 30
_BACKLOG = 1024


class PortTakenError(UserError):
    """The gateway cannot listen where it should."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host, self.port, self.reason = host, port, reason
        super().__init__(
            f"The gateway cannot listen at {host}, port {port}: {reason}. Stop what uses it, set `gateway.port` in "
            "platform.yaml, or pass --port."
        )


class _Server(uvicorn.Server):
    """uvicorn's server; signals are ours, because uvicorn would raise them again before anything could be closed."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await asyncio.to_thread(self._on_started)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._asked_to_stop, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _asked_to_stop(self, number: signal.Signals) -> None:
        if not self.should_exit:
            log.info("stopping", extra={"signal": number.name})
        # Asked twice by a person at a terminal: not waiting for slow clients any more.
        self.force_exit = self.should_exit and number == signal.SIGINT
        self.should_exit = True


def listen(settings: GatewaySettings) -> socket.socket:
    """Return the socket, bound: whoever comes before `serve` waits in line; raise PortTakenError if it cannot be."""
    host = settings.host.strip("[]")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, settings.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise PortTakenError(settings.host, settings.port, reason) from error
    return listener


def url_of_listener(listener: socket.socket, settings: GatewaySettings) -> str:
    """Return the address that programs of this machine use."""
    return url_of(settings.scheme, settings.host, listener.getsockname()[1])


def serve(
    app: Any, listener: socket.socket, settings: GatewaySettings, *, on_started: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, then finish what was accepted; only for the main thread."""
    if settings.scheme == "http" and not is_loopback(settings.host):
        log.warning("keys and records travel unencrypted; `gateway.tls` changes that")
    config = uvicorn.Config(
        app,
        http=guarded(settings.head_timeout_s),
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(settings.stop_limit_s)),
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
    )
    with short_pauses(), asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_Server(config, on_started).serve([listener]))


@contextlib.contextmanager
def short_pauses() -> Iterator[None]:
    """Keep what was loaded before out of the garbage collector's sight, and let it look less often.

    Modules of a data platform are hundreds of thousands of objects. Looking at all of them again and again stopped
    every request for up to 66 ms, about twice a second under load.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
