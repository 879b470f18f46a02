"""From errors to responses: one table from kinds of errors to status codes, one form for all bodies.

    {"error": {"code": "unknown_topic", "message": "There is no topic x. ...", "topic": "x"}}

What the caller can mend is told with all its facts. What is ours to mend is told in general words, because addresses,
paths and reasons of servers behind the gateway are none of the caller's business; the log has them.
"""

import json
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from dw_platform.bus import HEADER, BusClosedError, InvalidMessageError, MessageTooLargeError, PublishRejectedError
from dw_platform.foundation import PlatformError, TransientError, UserError
from dw_platform.gateway import errors
from dw_platform.log import (
    InvalidNameError,
    PartitionStoppedError,
    RecordsExpiredError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from dw_platform.scaling import PressureLevel
from dw_platform.streaming import PublishTimedOutError, SequenceGapError, StreamRejectedError, StreamsClosedError

log = logging.getLogger(__name__)

DEFAULT_RETRY_S = 1.0
_SHED = (StreamRejectedError, PublishRejectedError)
# The first that fits counts.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.KeyRequiredError, 401),
    (errors.KeyRefusedError, 401),
    (errors.RightMissingError, 403),
    (errors.CrossSiteError, 403),
    (UnknownTopicError, 404),
    (UnknownPartitionError, 404),
    (InvalidNameError, 404),
    (errors.BodyTooSlowError, 408),
    (SequenceGapError, 409),
    (RecordsExpiredError, 410),
    (errors.RequestTooLargeError, 413),
    (RecordTooLargeError, 413),
    (MessageTooLargeError, 413),
    (errors.UnsupportedContentTypeError, 415),
    (errors.QuotaExceededError, 429),
    (StreamRejectedError, 429),
    (PublishRejectedError, 429),
    (errors.OverloadedError, 503),
    (errors.RequestTimedOutError, 504),
    (PublishTimedOutError, 504),
    (InvalidMessageError, 400),
    (UserError, 400),
    # Its partition is opened again, and checked, with the next publish.
    (PartitionStoppedError, 503),
    # It stops; whoever comes back finds the next one.
    (StreamsClosedError, 503),
    (BusClosedError, 503),
    (TransientError, 503),
    (PlatformError, 500),
)
# Errors whose words and facts are meant for callers although the status begins with a 5.
_TOLD = (errors.OverloadedError, errors.RequestTimedOutError, PublishTimedOutError)
_GENERAL = {
    503: "What keeps the records does not answer now. Nothing of this request was acknowledged; send it again.",
    500: "Something is wrong at the gateway. Nothing of this request was acknowledged; its log says what.",
}


class JsonResponse(Response):
    """JSON by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def status_of(error: Exception) -> int:
    """Return the status that tells of `error`."""
    if isinstance(error, errors.NothingAcceptedError) and error.too_large:
        return 413
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def answer_to(error: Exception) -> JsonResponse:
    """Return the response that tells the caller of `error`; what the operator has to mend goes to the log, too."""
    status = status_of(error)
    told = status < 500 or isinstance(error, _TOLD)
    if not told:
        log.warning("request failed: %s", error, exc_info=error if status == 500 else None)
    body: dict[str, Any] = {"code": code_of(error) if isinstance(error, PlatformError) else "internal"}
    body["message"] = str(error) if told else _GENERAL[status]
    if told:
        body |= facts_of(error)
    headers: dict[str, str] = {}
    if status in (429, 503) or isinstance(error, PublishTimedOutError):
        wait_s = max(float(getattr(error, "retry_after_s", DEFAULT_RETRY_S)), 0.001)
        body["retry_after_s"] = round(wait_s, 3)
        headers["Retry-After"] = str(math.ceil(wait_s))
    if isinstance(error, _SHED):
        headers[HEADER] = PressureLevel.SHEDDING.label
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return problem(status, body, headers)


def problem(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> JsonResponse:
    """Return an error response."""
    return JsonResponse({"error": body}, status, dict(headers or {}))


def code_of(error: Exception) -> str:
    """Return the word for programs: the class's name, without `Error`."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def facts_of(error: Exception) -> dict[str, Any]:
    """Return the error's attributes, as JSON has them."""
    return {name: json.loads(json.dumps(value, default=str)) for name, value in vars(error).items() if name[0] != "_"}
