"""Limits are frozen dataclasses: a change is a new value, and a refused change leaves the old one untouched.

Every field has a default, so a subsystem's limits can be built from nothing. Nested dataclasses (thresholds) are
reached with a dot, `thresholds.warning`. Each class calls `check_limits` in `__post_init__` and adds the rules that
concern several fields; whatever is built is therefore valid.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar, get_type_hints

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.coerce import coerce, to_json_value


class Limits(Protocol):
    """Any dataclass instance; frozen, and with a default for every field."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


L = TypeVar("L", bound=Limits)


def bounded(
    *, at_least: Any = None, above: Any = None, at_most: Any = None, unit: str = "", reason: str = ""
) -> dict[str, Any]:
    """Return a field's metadata: the bounds that `check_limits` enforces, and its unit and reason for operators.

    The unit "bytes", like a name that ends in `bytes`, lets the value be written as `64KiB`.
    """
    return {"at_least": at_least, "above": above, "at_most": at_most, "unit": unit, "reason": reason}


def check_limits(limits: Limits) -> None:
    """Refuse values of another type than declared, NaN, and values outside the bounds given with `bounded`."""
    for item in fields(limits):
        value, declared = getattr(limits, item.name), _hints(type(limits))[item.name]
        if is_dataclass(declared):
            continue  # it has checked itself
        if coerce(item.name, to_json_value(value), declared, is_size=_is_size(item)) != value:
            raise InvalidValueError(item.name, value, f"of type {getattr(declared, '__name__', declared)}")
        if value is not None:
            _check_bounds(item, value)


def limits_to_json(limits: Limits) -> dict[str, Any]:
    """Return every limit under its dotted key, as JSON can hold it and `apply_changes` reads it back."""
    flat: dict[str, Any] = {}
    for item in fields(limits):
        value = getattr(limits, item.name)
        if _is_nested(value):
            flat |= {f"{item.name}.{key}": inner for key, inner in limits_to_json(value).items()}
        else:
            flat[item.name] = to_json_value(value)
    return flat


def apply_changes(limits: L, changes: Mapping[str, Any]) -> L:
    """Return `limits` with `changes`, given as typed text or JSON, by dotted keys or nested; or refuse them all.

    The changes are judged together, so thresholds that are only valid together can move together.
    """
    wanted, known = flatten(changes), limits_to_json(limits)
    for key, value in wanted.items():
        if key not in known:
            raise InvalidValueError(key, value, f"there is no such limit, the limits are {', '.join(known)}")
    return _replaced(limits, wanted, prefix="")


def flatten(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested changes by dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in changes.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner_key}": inner for inner_key, inner in flatten(value).items()}
        else:
            flat[key] = value
    return flat


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitInfo:
    """One limit as an operator reads it."""

    key: str
    value: Any
    unit: str
    reason: str


def describe_limits(limits: Limits, prefix: str = "") -> tuple[LimitInfo, ...]:
    """Return every limit with its current value, unit and reason, in the order of declaration."""
    described: list[LimitInfo] = []
    for item in fields(limits):
        key, value = prefix + item.name, getattr(limits, item.name)
        if _is_nested(value):
            described += describe_limits(value, f"{key}.")
        else:
            unit, reason = item.metadata.get("unit", ""), item.metadata.get("reason", "")
            described.append(LimitInfo(key=key, value=to_json_value(value), unit=unit, reason=reason))
    return tuple(described)


def _replaced(limits: L, changes: Mapping[str, Any], *, prefix: str) -> L:
    updates: dict[str, Any] = {}
    for item in fields(limits):
        key, value = prefix + item.name, getattr(limits, item.name)
        if _is_nested(value):
            updates[item.name] = _replaced(value, changes, prefix=f"{key}.")
        elif key in changes:
            declared = _hints(type(limits))[item.name]
            updates[item.name] = coerce(key, changes[key], declared, is_size=_is_size(item))
    try:
        return replace(limits, **updates)
    except InvalidValueError as error:
        raise InvalidValueError(prefix + error.field, error.value, error.allowed) from error


def _is_nested(value: Any) -> TypeGuard[Limits]:
    return is_dataclass(value)


@cache
def _hints(declared: type) -> dict[str, Any]:
    return get_type_hints(declared)


def _is_size(item: Field[Any]) -> bool:
    return item.name.endswith("bytes") or item.metadata.get("unit") == "bytes"


def _check_bounds(item: Field[Any], value: Any) -> None:
    at_least, above, at_most = (item.metadata.get(bound) for bound in ("at_least", "above", "at_most"))
    if at_least is not None and value < at_least:
        raise InvalidValueError(item.name, value, f"at least {to_json_value(at_least)}")
    if above is not None and value <= above:
        raise InvalidValueError(item.name, value, f"above {to_json_value(above)}")
    if at_most is not None and value > at_most:
        raise InvalidValueError(item.name, value, f"at most {to_json_value(at_most)}")
