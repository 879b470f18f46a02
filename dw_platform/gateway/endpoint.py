"""The shell around every handler: limits, time, errors to answers, counting, one log line.

It is an ASGI application itself, so that the way of a request through the framework stays short.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response

from dw_platform.gateway.admission import Admission, DisconnectedError, Visit
from dw_platform.gateway.answers import answer_to, code_of
from dw_platform.gateway.call import Call
from dw_platform.gateway.errors import BodyTooSlowError, OverloadedError, RequestTooLargeError
from dw_platform.gateway.refusals import Refusals
from dw_platform.gateway.state import GatewayState

log = logging.getLogger(__name__)

Handler = Callable[[GatewayState, Call], Awaitable[Response]]

# The answer to these leaves while the body still comes; reading on would be endless work for nothing.
_HANGING_UP = (RequestTooLargeError, BodyTooSlowError, OverloadedError)
# What proxies write down for a client that went away; nobody receives it.
_CLIENT_GONE = 499
# Less than this is in the kernel's hands at once, and nobody waits for the client to take it.
_SENT_AT_ONCE = 64 * 1024


class Endpoint:
    """Serves one route by one handler; probes have their own admission, so that they work while the rest is full."""

    def __init__(
        self, gateway: GatewayState, route: str, handler: Handler, *, admission: Admission, refusals: Refusals
    ) -> None:
        self._gateway, self._route, self._handler = gateway, route, handler
        self._admission, self._refusals = admission, refusals
        self._limit_s = gateway.settings.request_timeout_s

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        started = self._gateway.clock.monotonic()
        status = _CLIENT_GONE
        try:
            visit = self._admission.enter()
        except OverloadedError as error:
            status = await self._deliver(self._refused(error), scope, receive, send)
        else:
            with visit:
                response = await self._respond(scope, receive, visit)
                if response is not None:
                    status = await self._deliver(response, scope, receive, send)
        seconds = self._gateway.clock.monotonic() - started
        self._gateway.metrics.finished(scope["method"], self._route, status, seconds)
        if log.isEnabledFor(logging.DEBUG):
            _log_access(scope, status, seconds)

    async def _respond(self, scope: dict[str, Any], receive: Any, visit: Visit) -> Response | None:
        """Return the handler's answer, or that to its error; None if there is nobody to answer."""
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._handler(self._gateway, Call(scope, receive, visit))
        except DisconnectedError:
            return None
        except TimeoutError:
            return self._refused(visit.too_late())
        except Exception as error:  # noqa: BLE001  the request ends here, with an answer
            return self._refused(error)

    def _refused(self, error: Exception) -> Response:
        response = answer_to(error)
        if isinstance(error, _HANGING_UP):
            response.headers["Connection"] = "close"
        code = code_of(error)
        self._gateway.metrics.refused[code] += 1
        self._refusals.note(code, self._route, response.status_code)
        return response

    async def _deliver(self, response: Response, scope: dict[str, Any], receive: Any, send: Any) -> int:
        if len(response.body) <= _SENT_AT_ONCE:
            await response(scope, receive, send)
            return response.status_code
        try:
            async with asyncio.timeout(self._limit_s):
                await response(scope, receive, send)
        except TimeoutError:
            # The server closes a connection whose answer was not finished, which is what a client that slow gets.
            return _CLIENT_GONE
        return response.status_code


def _log_access(scope: dict[str, Any], status: int, seconds: float) -> None:
    client = scope.get("client") or ("-",)
    facts = {"method": scope["method"], "path": scope["path"], "status": status, "client": client[0]}
    log.debug("request %(method)s %(path)s %(status)d from %(client)s", facts, extra={**facts, "seconds": seconds})
