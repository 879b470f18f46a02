"""The gateway as an ASGI application; `server.py` serves it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dw_platform.foundation import Clock
from dw_platform.gateway import browsing, operating, publishing
from dw_platform.gateway.admission import Admission
from dw_platform.gateway.answers import JsonResponse, problem
from dw_platform.gateway.bus_topics import BusPublisher
from dw_platform.gateway.call import Call
from dw_platform.gateway.endpoint import Endpoint, Handler
from dw_platform.gateway.keyring import KeyRing
from dw_platform.gateway.metrics import GatewayMetrics
from dw_platform.gateway.openapi import document
from dw_platform.gateway.refusals import Refusals
from dw_platform.gateway.served import ServedTopics
from dw_platform.gateway.settings import GatewaySettings
from dw_platform.gateway.state import GatewayState
from dw_platform.gateway.threads import Threads
from dw_platform.scaling import ScalableSubsystem
from dw_platform.store import PersistentStore
from dw_platform.streaming.publishing import StreamPublisher

# Tried in this order, so what is asked for most comes first.
_TOPIC_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/topics/{topic}/records", publishing.publish),
    ("GET", "/topics", browsing.list_topics),
    ("GET", "/topics/{topic}", browsing.show_topic),
    ("POST", "/topics/{topic}/messages", browsing.take_messages),
    ("GET", "/topics/{topic}/partitions/{partition}/records", browsing.read_records),
)
_OPERATOR_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", operating.show_page),
    ("GET", "/health", operating.health),
    ("GET", "/ready", operating.ready),
    ("GET", "/metrics", operating.show_metrics),
)


def create_app(
    publisher: StreamPublisher,
    *,
    settings: GatewaySettings,
    keys: KeyRing,
    clock: Clock,
    bus: BusPublisher | None = None,
    subsystems: Sequence[ScalableSubsystem[Any]] = (),
    store: PersistentStore | None = None,
) -> Starlette:
    """Return the application; whoever made `publisher`, `keys` and `bus` also closes them, after the server has ended.

    `subsystems` are those whose pressure is shown, `store` is asked by `/ready`.
    """
    threads = Threads()
    gateway = GatewayState(
        settings=settings,
        keys=keys,
        clock=clock,
        topics=ServedTopics(publisher, bus, threads),
        metrics=GatewayMetrics(clock=clock),
        admission=Admission(settings),
        threads=threads,
        subsystems=tuple(subsystems),
        store=store,
    )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await threads.run(_warm_up)
        yield
        threads.close()

    app = Starlette(routes=_routes(gateway), lifespan=lifespan, exception_handlers={HTTPException: _elsewhere})
    app.router.redirect_slashes = False
    return app


def _warm_up() -> None:
    """Pay now, not with the first request, for what pyarrow imports when it first makes an array of Python objects."""
    pa.array([b""])


def _routes(gateway: GatewayState) -> list[Route]:
    refusals = Refusals(clock=gateway.clock)
    description = JsonResponse(document())

    async def describe(_gateway: GatewayState, _call: Call) -> Response:
        return description

    def route(method: str, path: str, handler: Handler, admission: Admission) -> Route:
        served = Route(path, Endpoint(gateway, path, handler, admission=admission, refusals=refusals), methods=[method])
        served.methods = {method}  # the framework adds HEAD, which the document does not know
        return served

    probes = Admission(gateway.settings)
    return [
        *(route(*each, gateway.admission) for each in _TOPIC_ROUTES),
        *(route(*each, probes) for each in _OPERATOR_ROUTES),
        route("GET", "/openapi.json", describe, probes),
    ]


async def _elsewhere(_request: Request, error: Exception) -> Response:
    """Answer for paths and methods that are not there."""
    assert isinstance(error, HTTPException)
    codes = {404: ("not_found", "There is nothing here; /openapi.json lists what there is.")}
    codes[405] = ("method_not_allowed", "This path does not take this method; the header Allow says which.")
    code, message = codes.get(error.status_code, ("refused", str(error.detail)))
    return problem(error.status_code, {"code": code, "message": message}, error.headers)
