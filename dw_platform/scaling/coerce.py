"""A limit's value as people type it or as JSON holds it, turned into the type that its field declares.

The same rules read the command line, the API and the control store, so `max_bytes=64KiB` means one thing everywhere.
A value of the wrong kind raises InvalidValueError. A field of a kind that no text can express raises TypeError,
which is the author's mistake and shows as soon as the limits are put into a catalogue.
"""

import math
import types
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin

from dw_platform.foundation import InvalidValueError, format_duration, parse_bytes, parse_duration

T = TypeVar("T")

_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def to_json_value(value: Any) -> Any:
    """Return `value` as JSON can hold it and `coerce` reads it back."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [to_json_value(item) for item in value]
    return value


def coerce(name: str, value: Any, declared: Any, *, is_size: bool = False) -> Any:
    """Return `value` as the `declared` type; `is_size` lets a whole number be written as `64KiB`."""
    if get_origin(declared) in {Union, types.UnionType}:
        return _optional(name, value, declared, is_size=is_size)
    if get_origin(declared) is tuple:
        return _many(name, value, declared, is_size=is_size)
    if isinstance(declared, type) and issubclass(declared, Enum):
        return _member(name, value, declared)
    if declared is int and is_size:
        return _size(name, value)
    reader = _READERS.get(declared)
    if reader is None:
        raise TypeError(f"{name}: a limit cannot be declared as {declared!r}")
    return reader(name, value)


def _optional(name: str, value: Any, declared: Any, *, is_size: bool) -> Any:
    inner = [kind for kind in get_args(declared) if kind is not types.NoneType]
    if len(inner) != 1 or len(inner) == len(get_args(declared)):
        raise TypeError(f"{name}: a limit cannot be declared as {declared!r}")
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    return coerce(name, value, inner[0], is_size=is_size)


def _many(name: str, value: Any, declared: Any, *, is_size: bool) -> tuple[Any, ...]:
    kind, *rest = get_args(declared)
    if rest != [...]:
        raise TypeError(f"{name}: a limit cannot be declared as {declared!r}")
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise InvalidValueError(name, value, "a list, or values with commas between them")
    return tuple(coerce(name, item, kind, is_size=is_size) for item in value)


def _member(name: str, value: Any, declared: type[Enum]) -> Enum:
    for member in declared:
        if value is member or str(value).strip().lower() == str(member.value).lower():
            return member
    raise InvalidValueError(name, value, f"one of {', '.join(str(member.value) for member in declared)}")


def _size(name: str, value: Any) -> int:
    if not isinstance(value, str | int):
        raise InvalidValueError(name, value, "a whole number of bytes")
    return _named(name, value, parse_bytes)


def _duration(name: str, value: Any) -> timedelta:
    return _named(name, value, parse_duration)


def _named(name: str, value: Any, parse: Callable[[Any], T]) -> T:
    try:
        return parse(value)
    except InvalidValueError as error:
        raise InvalidValueError(name, value, error.allowed) from error


def _whole(name: str, value: Any) -> int:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidValueError(name, value, "a whole number")
    return number


def _real(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValueError(name, value, "a finite number")
    return number


def _switch(name: str, value: Any) -> bool:
    found = value if isinstance(value, bool) else _SWITCH.get(str(value).strip().lower())
    if found is None:
        raise InvalidValueError(name, value, "true or false")
    return found


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(name, value, "text")
    return value


_READERS: dict[Any, Callable[[str, Any], Any]] = {
    bool: _switch,
    int: _whole,
    float: _real,
    str: _text,
    timedelta: _duration,
}
