"""The API as an OpenAPI 3.1 document, written by hand and held to the truth by a fuzzer in the tests."""

from typing import Any

from dw_platform import __version__
from dw_platform.gateway.browsing import DEFAULT_BYTES, DEFAULT_RECORDS, LARGEST_OFFSET, MOST_BYTES, MOST_RECORDS
from dw_platform.gateway.parsing import ARROW, JSON, NDJSON

_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_ERRORS = {
    "400": "The request makes no sense, or not one of its records was good; the body says what and why.",
    "401": "A key is needed, or the one that was shown does not count.",
    "403": "The key does not allow this.",
    "404": "There is no such topic or partition.",
    "405": "The path does not take this method.",
    "408": "The body did not arrive in time; nothing was published.",
    "409": "An idempotent producer skipped a sequence number; nothing was published.",
    "410": "The records were removed by retention; `earliest` can be read.",
    "413": "The request or every record of it is too large; nothing was published.",
    "415": "The content type is not understood.",
    "429": "Too much for now, by the caller's quota or by the platform's pressure; nothing was published.",
    "500": "Something is wrong at the gateway.",
    "503": "Overloaded, or what keeps the records does not answer; send it again.",
    "504": "Not finished in time; records may or may not be published.",
}
_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
}
_BACKPRESSURE = {
    "X-Backpressure": {
        "description": "How much pressure there is; slow down.",
        "schema": {"enum": ["warning", "critical", "shedding"]},
    }
}
_COMMON = ("401", "403", "404", "405", "500", "503", "504")


def document() -> dict[str, Any]:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dw gateway",
            "version": __version__,
            "description": "Publish records to topics and read them back. An answer to a publish comes after the "
            "records are durable under their topic's policy.",
        },
        "paths": _topic_paths() | _operator_paths(),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A key made by `dw keys create`."},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
        "security": [{}, {"bearer": []}, {"header": []}],
    }


def _topic_paths() -> dict[str, Any]:
    return {
        "/topics": {"get": _operation("listTopics", "Topics that the caller may use.", _json("Topics"), _COMMON)},
        "/topics/{topic}": {
            "get": _operation(
                "showTopic", "A topic, its partitions and offsets.", _json("Topic"), (*_COMMON, "400"), [_topic()]
            )
        },
        "/topics/{topic}/records": {"post": _publish()},
        "/topics/{topic}/partitions/{partition}/records": {"get": _read()},
        "/topics/{topic}/messages": {"post": _take()},
    }


def _publish() -> dict[str, Any]:
    parameters = [
        _topic(),
        _query("key_field", "Top-level field whose value is a record's key.", {"type": "string", "minLength": 1}),
        _header("X-Producer-Id", "Makes a retry write nothing twice, with X-Sequence.", f"^{_NAME}$"),
        _header("X-Sequence", "0 for a producer's first batch to the topic, then one more with each.", "^[0-9]{1,18}$"),
    ]
    failures = (*_COMMON, "400", "408", "409", "413", "415", "429")
    answer = _json("Published")
    answer["headers"] = _BACKPRESSURE
    operation = _operation("publish", "Publish records; 200 once they are durable.", answer, failures, parameters)
    record = {"type": "object", "description": "One record; its value is this text, byte for byte."}
    operation["requestBody"] = {
        "required": True,
        "content": {
            JSON: {"schema": {"oneOf": [record, {"type": "array", "items": record, "minItems": 1}]}},
            NDJSON: {"schema": {"type": "string", "description": "One object a line."}},
            ARROW: {
                "schema": {
                    "type": "string",
                    "contentMediaType": ARROW,
                    "description": "Columns value, and as wanted key, headers and timestamp; not compressed.",
                }
            },
        },
    }
    return operation


def _read() -> dict[str, Any]:
    parameters = [
        _topic(),
        _path("partition", {"type": "integer", "minimum": 0, "maximum": 2**31}),
        _query("offset", "Where to begin; the oldest record when not given.", _whole(0, LARGEST_OFFSET)),
        _query("limit", "Most records.", _whole(1, MOST_RECORDS, DEFAULT_RECORDS)),
        _query("max_bytes", "Most bytes, but at least one record.", _whole(1, MOST_BYTES, DEFAULT_BYTES)),
    ]
    answer = _json("Records")
    answer["content"][ARROW] = {"schema": {"type": "string", "contentMediaType": ARROW}}
    answer["headers"] = {"X-Next-Offset": {"description": "Where to read on.", "schema": {"type": "integer"}}}
    return _operation("readRecords", "Records of one partition.", answer, (*_COMMON, "400", "410"), parameters)


def _take() -> dict[str, Any]:
    parameters = [
        _topic(),
        _query(
            "group", "Who reads; every group gets every message.", {"type": "string", "pattern": f"^{_NAME}$"}, True
        ),
        _query("limit", "Most messages.", _whole(1, MOST_RECORDS, DEFAULT_RECORDS)),
    ]
    summary = "Take messages of a bus topic; they count as read."
    return _operation("takeMessages", summary, _json("Messages"), (*_COMMON, "400"), parameters)


def _operator_paths() -> dict[str, Any]:
    html = {"description": "The page.", "content": {"text/html": {"schema": {"type": "string"}}}}
    text = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    page = _operation("statusPage", "Topics, rates and pressure for people.", html, ("405", "500", "503", "504"))
    page["responses"]["401"] = {
        "description": "The key is wanted as a password.",
        "content": {"text/html": {"schema": {"type": "string"}}},
    }
    return {
        "/": {"get": page},
        "/health": {
            "get": _operation("health", "Whether the process lives.", _json("Status"), ("405", "500", "503", "504"))
        },
        "/ready": {
            "get": _operation(
                "ready", "Whether records could be taken now.", _json("Status"), ("405", "500", "503", "504")
            )
        },
        "/metrics": {"get": _operation("metrics", "Numbers.", text, ("401", "405", "500", "503", "504"))},
        "/openapi.json": {
            "get": _operation(
                "openapi",
                "This document.",
                {"description": "It.", "content": {JSON: {"schema": {"type": "object"}}}},
                ("405", "500", "503", "504"),
            )
        },
    }


def _operation(
    name: str, summary: str, answer: dict[str, Any], failures: tuple[str, ...], parameters: list[Any] | None = None
) -> dict[str, Any]:
    responses = {"200": answer} | {status: _failure(status) for status in sorted(failures)}
    operation: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    return operation | {"parameters": parameters} if parameters else operation


def _failure(status: str) -> dict[str, Any]:
    failure = {"description": _ERRORS[status], "content": {JSON: {"schema": _reference("Error")}}}
    if status in ("429", "503"):
        failure["headers"] = _RETRY_AFTER | _BACKPRESSURE if status == "429" else _RETRY_AFTER
    return failure


def _json(schema: str) -> dict[str, Any]:
    return {"description": schema, "content": {JSON: {"schema": _reference(schema)}}}


def _reference(schema: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _whole(least: int, most: int, default: int | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    return schema if default is None else schema | {"default": default}


def _topic() -> dict[str, Any]:
    return _path("topic", {"type": "string", "minLength": 1})


def _path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(name: str, text: str, schema: dict[str, Any], required: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002
    return {"name": name, "in": "query", "required": required, "description": text, "schema": schema}


def _header(name: str, text: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string", "pattern": pattern}}


def _object(properties: dict[str, Any], *, optional: tuple[str, ...] = (), closed: bool = True) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["required"] = [name for name in properties if name not in optional]
    return schema | {"additionalProperties": False} if closed else schema


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _schemas() -> dict[str, Any]:
    whole, text = {"type": "integer", "minimum": 0}, {"type": "string"}
    maybe, encoding = {"type": ["string", "null"]}, {"enum": ["utf-8", "base64"]}
    rejected = {
        "rejected_count": whole,
        "rejected": _list(_object({"index": whole, "reason": text})),
        "rejected_ranges": _list({"type": "array", "items": whole, "minItems": 2, "maxItems": 2}),
    }
    kept = {"key": maybe, "key_encoding": encoding, "value": maybe, "encoding": encoding}
    headers = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
    kind = {"enum": ["stream", "bus"]}
    part = _object({"partition": whole, "base_offset": whole, "next_offset": whole})
    offsets = _object({"partition": whole, "start_offset": whole, "end_offset": whole})
    return {
        "Published": _object(
            {
                "topic": text,
                "records": whole,
                "partitions": _list(part),
                "duplicate": {"type": "boolean"},
                "pressure": {"enum": ["normal", "warning", "critical", "shedding"]},
                **rejected,
            },
            optional=("rejected", "rejected_ranges"),
        ),
        "Error": _object(
            {"error": _object({"code": text, "message": text, **rejected}, optional=tuple(rejected), closed=False)}
        ),
        "Topics": _object({"topics": _list(_object({"name": text, "kind": kind, "partitions": whole}))}),
        "Topic": _object(
            {"name": text, "kind": kind, "partitions": whole, "version": whole, "offsets": _list(offsets)}
        ),
        "Records": _object(
            {
                "topic": text,
                "partition": whole,
                "records": _list(
                    _object({"offset": whole, "timestamp_ms": {"type": "integer"}, **kept, "headers": headers})
                ),
                "next_offset": whole,
            }
        ),
        "Messages": _object(
            {
                "topic": text,
                "group": text,
                "messages": _list(_object({"partition": whole, "offset": whole, **kept, "headers": headers})),
            }
        ),
        "Status": _object({"status": text}),
    }
