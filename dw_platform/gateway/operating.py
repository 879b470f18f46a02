"""For those who run it: `/health`, `/ready`, `/metrics`, and the status page at `/`."""

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from dw_platform.foundation import PlatformError
from dw_platform.gateway.address import ADDRESS
from dw_platform.gateway.answers import JsonResponse, problem
from dw_platform.gateway.call import Call
from dw_platform.gateway.errors import KeyRefusedError, KeyRequiredError
from dw_platform.gateway.metrics import CONTENT_TYPE, exposition
from dw_platform.gateway.page import PressureRow, TopicRow, render
from dw_platform.gateway.state import GatewayState

# Whoever probes gives up after a few seconds, too.
PROBE_LIMIT_S = 5.0


async def health(gateway: GatewayState, call: Call) -> Response:
    """Say that the process lives."""
    del gateway, call
    return JsonResponse({"status": "ok"})


async def ready(gateway: GatewayState, call: Call) -> Response:
    """Say whether records could be taken now, or why not."""
    del call
    probes: dict[str, Callable[[], Any]] = {"topics": lambda: _ask_topics(gateway)}
    if (store := gateway.store) is not None:
        probes["store"] = lambda: store.versions_of([ADDRESS])
    names = list(probes)
    answers = await asyncio.gather(*(_probe(gateway, probe) for probe in probes.values()))
    reasons = [f"{name}: {reason}" for name, reason in zip(names, answers, strict=True) if reason]
    if not reasons:
        return JsonResponse({"status": "ready"})
    body = {"code": "not_ready", "message": "Records cannot be taken now.", "reasons": reasons, "retry_after_s": 1.0}
    return problem(503, body, {"Retry-After": "1"})


def _ask_topics(gateway: GatewayState) -> None:
    for name, _, target in gateway.topics.all():
        target.offsets(name)


async def _probe(gateway: GatewayState, probe: Callable[[], Any]) -> str:
    """Return why the probe failed, in words that anybody may read, or nothing."""
    try:
        async with asyncio.timeout(PROBE_LIMIT_S):
            await gateway.threads.run(probe)
    except TimeoutError:
        return f"no answer within {PROBE_LIMIT_S:g} s"
    except PlatformError as error:
        return type(error).__name__.removesuffix("Error")
    return ""


async def show_metrics(gateway: GatewayState, call: Call) -> Response:
    """Return the numbers for Prometheus; with `require_keys` any key that counts may see them."""
    gateway.keys.caller(call.key())
    text = exposition(
        gateway.metrics,
        in_flight=gateway.admission.requests,
        buffered=gateway.admission.buffered_bytes,
        subsystems=gateway.subsystems,
    )
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


async def show_page(gateway: GatewayState, call: Call) -> Response:
    """Return the status page; a browser is asked for a key by a dialogue, where keys are required."""
    try:
        gateway.keys.caller(_browser_key(call) or call.key())
    except (KeyRequiredError, KeyRefusedError) as error:
        text = "<!doctype html><title>dw gateway</title><p>The password is an API key; the user name does not matter."
        headers = {"WWW-Authenticate": 'Basic realm="dw gateway, an API key as password"'}
        del error
        return Response(text, 401, headers, "text/html; charset=utf-8")
    topics = await gateway.threads.run(_topic_rows, gateway)
    pressure = [
        PressureRow(subsystem.name, reading.level.label, reading.occupancy)
        for subsystem in gateway.subsystems
        for reading in (subsystem.backpressure_state(),)
    ]
    page = render(topics, pressure, gateway.clock.now())
    return Response(page, headers={"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"})


def _browser_key(call: Call) -> str | None:
    """Return the password of Basic authentication; only this page takes it, because browsers send it unasked."""
    scheme, _, content = (call.header(b"authorization") or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(content.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _topic_rows(gateway: GatewayState) -> list[TopicRow]:
    rows = []
    for name, kind, target in gateway.topics.all():
        rate = gateway.metrics.per_second(name)
        try:
            offsets = target.offsets(name)
            rows.append(TopicRow(name, kind, target.topic(name).partitions, offsets, rate, ""))
        except PlatformError as error:
            rows.append(TopicRow(name, kind, None, {}, rate, type(error).__name__.removesuffix("Error")))
    return rows
