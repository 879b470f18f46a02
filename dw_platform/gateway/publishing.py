"""`POST /topics/{topic}/records`: from a body to offsets.

The order of the checks is from cheap to dear, and nothing is published before all of them have passed: who asks, what
topic, how much, in what form, then the body, then each record.
"""

from dataclasses import replace
from typing import Any

from starlette.responses import Response

from dw_platform.gateway.answers import JsonResponse
from dw_platform.gateway.arrow_body import parse_arrow
from dw_platform.gateway.call import Call
from dw_platform.gateway.errors import InvalidParameterError, UnsupportedContentTypeError
from dw_platform.gateway.parsing import ARROW, JSON, NDJSON, Batch, Parser, parse_json, parse_ndjson
from dw_platform.gateway.rejections import summary
from dw_platform.gateway.settings import TopicRules
from dw_platform.gateway.state import GatewayState
from dw_platform.streaming.publishing import PublishReceipt

PARSERS: dict[str, Parser] = {JSON: parse_json, NDJSON: parse_ndjson, ARROW: parse_arrow}
# Longer parsing would be felt by everybody else on the event loop; shorter is done before a thread has woken up.
PARSE_INLINE_BYTES = 128 * 1024
_PATIENCE = 0.95


async def publish(gateway: GatewayState, call: Call) -> Response:
    """Take the records of a body and answer once they are durable."""
    topic = call.params["topic"]
    caller = gateway.keys.caller(call.key())
    caller.require("publish", topic)
    target = await gateway.topics.find(topic)
    caller.require_quota()
    stamp, parser, rules = call.stamp(), _parser(call), _rules(gateway, call, topic)
    started = gateway.clock.monotonic()
    body = await call.body()
    batch = await _parsed(gateway, parser, body, rules)
    del body
    # A little less than what is left of the request's time, so that a publisher that gives up can still say so.
    left_s = gateway.settings.request_timeout_s * _PATIENCE - (gateway.clock.monotonic() - started)
    caller.charge(len(batch.records))
    try:
        receipt = await target.publish(topic, batch.records, stamp=stamp, timeout_s=max(left_s, 0.0))
    except Exception:
        caller.charge(-len(batch.records))
        raise
    gateway.metrics.published(
        topic, records=receipt.records, size=batch.bytes, rejected=len(batch.rejected), duplicate=receipt.duplicate
    )
    return JsonResponse(_answer(receipt, batch), headers=dict(receipt.headers) if receipt.headers else None)


def _parser(call: Call) -> Parser:
    encoding = call.header(b"content-encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise UnsupportedContentTypeError(f"the encoding {encoding}", tuple(PARSERS))
    try:
        return PARSERS[call.content_type()]
    except KeyError:
        raise UnsupportedContentTypeError(call.content_type(), tuple(PARSERS)) from None


def _rules(gateway: GatewayState, call: Call, topic: str) -> TopicRules:
    rules, field = gateway.settings.rules(topic), call.query.get("key_field")
    if field is None:
        return rules
    if not field:
        raise InvalidParameterError("key_field", "the name of a field of the records")
    return replace(rules, key_field=field)


async def _parsed(gateway: GatewayState, parser: Parser, body: bytes, rules: TopicRules) -> Batch:
    if len(body) <= PARSE_INLINE_BYTES or parser is parse_arrow:
        return parser(body, rules)
    return await gateway.threads.run(parser, body, rules)


def _answer(receipt: PublishReceipt, batch: Batch) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "topic": receipt.topic,
        "records": receipt.records,
        "partitions": [
            {"partition": part.partition, "base_offset": part.base_offset, "next_offset": part.next_offset}
            for part in receipt.parts
        ],
        "duplicate": receipt.duplicate,
        "pressure": receipt.level.label,
    }
    return answer | summary(batch.rejected) if batch.rejected else answer | {"rejected_count": 0}
