"""`GET /topics…`: which topics there are, what is in them, and messages of the bus."""

from typing import Any

from starlette.responses import Response

from dw_platform.gateway.answers import JsonResponse
from dw_platform.gateway.call import NAMES, Call
from dw_platform.gateway.errors import CrossSiteError, InvalidParameterError
from dw_platform.gateway.keyring import Caller
from dw_platform.gateway.parsing import ARROW
from dw_platform.gateway.reading import as_arrow, as_json
from dw_platform.gateway.served import ServedTopics, Target
from dw_platform.gateway.state import GatewayState
from dw_platform.log import InvalidNameError, LogBatch, check_name

DEFAULT_RECORDS, MOST_RECORDS = 100, 10_000
DEFAULT_BYTES, MOST_BYTES = 1 << 20, 8 << 20
LARGEST_OFFSET = 10**18 - 1


async def list_topics(gateway: GatewayState, call: Call) -> Response:
    """Return the topics that the caller may use."""
    caller = gateway.keys.caller(call.key())
    return JsonResponse({"topics": await gateway.threads.run(_listed, gateway.topics, caller)})


def _listed(topics: ServedTopics, caller: Caller) -> list[dict[str, Any]]:
    return [
        {"name": name, "kind": kind, "partitions": target.topic(name).partitions}
        for name, kind, target in topics.all()
        if caller.may("publish", name) or caller.may("read", name)
    ]


async def show_topic(gateway: GatewayState, call: Call) -> Response:
    """Return a topic's partitions with their offsets."""
    topic = call.params["topic"]
    caller = gateway.keys.caller(call.key())
    if not caller.may("publish", topic):
        caller.require("read", topic)
    target = await gateway.topics.find(topic)
    kind = "bus" if target is gateway.topics.bus else "stream"
    return JsonResponse(await gateway.threads.run(_described, target, topic, kind))


def _described(target: Target, topic: str, kind: str) -> dict[str, Any]:
    info, offsets = target.topic(topic), target.offsets(topic)
    return {
        "name": topic,
        "kind": kind,
        "partitions": info.partitions,
        "version": info.version,
        "offsets": [
            {"partition": partition, "start_offset": start, "end_offset": end}
            for partition, (start, end) in sorted(offsets.items())
        ],
    }


async def read_records(gateway: GatewayState, call: Call) -> Response:
    """Return records of one partition from an offset on, as JSON or Arrow."""
    topic = call.params["topic"]
    gateway.keys.caller(call.key()).require("read", topic)
    partition = call.partition()
    target = await gateway.topics.find(topic)
    offset = call.whole_number("offset", default=0, most=LARGEST_OFFSET) if "offset" in call.query else None
    limit = call.whole_number("limit", default=DEFAULT_RECORDS, least=1, most=MOST_RECORDS)
    size = call.whole_number("max_bytes", default=DEFAULT_BYTES, least=1, most=MOST_BYTES)
    batch = await gateway.threads.run(
        lambda: _read(target, topic, partition, offset, max_records=limit, max_bytes=size)
    )
    headers = {"X-Next-Offset": str(batch.next_offset)}
    if ARROW in (call.header(b"accept") or ""):
        return Response(await gateway.threads.run(as_arrow, batch), media_type=ARROW, headers=headers)
    return JsonResponse(await gateway.threads.run(as_json, topic, partition, batch), headers=headers)


def _read(
    target: Target, topic: str, partition: int, offset: int | None, *, max_records: int, max_bytes: int
) -> LogBatch:
    if offset is None:
        # The oldest that there is; a partition that is not there is left to `read`, which names it.
        offset = target.offsets(topic).get(partition, (0, 0))[0]
    return target.read(topic, partition, offset, max_bytes=max_bytes, max_records=max_records)


async def take_messages(gateway: GatewayState, call: Call) -> Response:
    """Return messages of a bus topic that the group has not read, and count them as read."""
    topic = call.params["topic"]
    if call.header(b"sec-fetch-site") == "cross-site":
        raise CrossSiteError
    gateway.keys.caller(call.key()).require("read", topic)
    bus = gateway.topics.find_bus(topic)
    group = _group(call)
    limit = call.whole_number("limit", default=DEFAULT_RECORDS, least=1, most=MOST_RECORDS)
    messages = await bus.take(topic, group, limit)
    return JsonResponse({"topic": topic, "group": group, "messages": messages}, headers={"Cache-Control": "no-store"})


def _group(call: Call) -> str:
    group = call.query.get("group", "")
    try:
        check_name("group", group)
    except InvalidNameError as error:
        raise InvalidParameterError("group", NAMES) from error
    return group
