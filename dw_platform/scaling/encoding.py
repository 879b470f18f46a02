"""Records of this package in the control store: JSON objects with UTC times, readable by people."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.errors import UndecodableRecordError
from dw_platform.store.contract import Entry

T = TypeVar("T")


def encode_object(content: Mapping[str, Any]) -> bytes:
    """Return `content` as JSON; NaN is refused, because JSON has no such number."""
    return json.dumps(content, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()


def decode_object(entry: Entry, build: Callable[[dict[str, Any]], T]) -> T:
    """Return what `build` makes of the entry's JSON object, or raise UndecodableRecordError."""
    try:
        return build(as_object(json.loads(entry.value)))
    except (KeyError, TypeError, ValueError, InvalidValueError) as error:
        raise UndecodableRecordError(entry.key, f"{type(error).__name__}: {error}") from error


def as_object(value: Any) -> dict[str, Any]:
    """Return `value` if it is a JSON object."""
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return value


def as_time(value: Any) -> datetime:
    """Return the time that `value` names; one without a zone is refused, because ages would be a guess."""
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return time
