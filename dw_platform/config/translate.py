"""Pydantic's errors in the platform's words: the place, what is wrong there, what is allowed.

A value is repeated only if it is short, plain and nobody's secret. Whatever stands where a secret belongs, came
from the environment or looks like an address is not.
"""

import re
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dw_platform.config.environment import FromEnvironment
from dw_platform.config.nodes import Document
from dw_platform.config.platform import PlatformConfig
from dw_platform.config.problems import Place, Problem
from dw_platform.config.secrets import Options, SecretText, SecretUrl, is_sensitive
from dw_platform.quality import did_you_mean

_SHAPES = {"dict_type": "keys and values", "tuple_type": "a list", "too_short": "at least one entry"}
_PLAIN = re.compile(r"[\w .,*/+\[\]()%-]{1,40}")


def problems_of(error: ValidationError, document: Document, values: Mapping[str, Any]) -> list[Problem]:
    """Return one problem for each of pydantic's errors."""
    return [_problem(details, document, values) for details in error.errors(include_url=False, include_input=False)]


def _problem(details: ErrorDetails, document: Document, values: Mapping[str, Any]) -> Problem:
    place: Place = details["loc"]
    if place[-1:] == ("[key]",) and get_origin(_type_at(place[:-2])) is dict:
        place = place[:-1]  # pydantic's way to say that the key itself is wrong
    message, allowed = _words(details, place, values)
    return Problem(place=place, message=message, allowed=allowed, line=document.line(place))


def _words(details: ErrorDetails, place: Place, values: Mapping[str, Any]) -> tuple[str, str]:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        known = list(_keys(_type_at(place[:-1])))
        return f"is not a known key{did_you_mean(str(place[-1]), known)}", ", ".join(known)
    if kind == "missing":
        return "is missing", _description(place)
    if kind in {"model_type", "model_attributes_type"}:
        return f"cannot be {_shape(_value_at(values, place))}", f"the keys {', '.join(_keys(_type_at(place)))}"
    if kind in _SHAPES:
        return f"cannot be {_shape(_value_at(values, place))}", _SHAPES[kind]
    if kind == "literal_error":
        return _does_not_fit(values, place), str(context["expected"]).replace("'", "")
    if kind == "refused" and context["message"]:
        return str(context["message"]), str(context["allowed"])
    return _does_not_fit(values, place), str(context.get("allowed", details["msg"]))


def _type_at(place: Place) -> Any:
    """Return the type that the models declare at `place`, or None outside of them."""
    found: Any = PlatformConfig
    for step in place:
        found = _inner(found)
        if isinstance(found, type) and issubclass(found, BaseModel):
            fields = {field.alias or name: field for name, field in found.model_fields.items()}
            found = fields[step].annotation if step in fields else None
        else:
            found = get_args(found)[-1 if get_origin(found) is dict else 0] if get_args(found) else None
    return _inner(found)


def _inner(annotation: Any) -> Any:
    """Return the type without what is around it: `X` for `X | None` and for `Annotated[X, ...]`."""
    while get_origin(annotation) in {Annotated, Union, UnionType}:
        annotation = get_args(annotation)[0]
    return annotation


def _keys(model: Any) -> dict[str, str]:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return {}
    return {field.alias or name: field.description or "" for name, field in model.model_fields.items()}


def _description(place: Place) -> str:
    return _keys(_type_at(place[:-1])).get(str(place[-1]), "").rstrip(".")


def _value_at(values: Any, place: Place) -> Any:
    for step in place:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        return "keys and values"
    return "a list" if isinstance(value, list) else "a single value"


def _does_not_fit(values: Mapping[str, Any], place: Place) -> str:
    """Return what is wrong, with the value itself where that is safe."""
    value = _value_at(values, place)
    if isinstance(value, Mapping | list):
        return f"cannot be {_shape(value)}"
    text = value.written if isinstance(value, FromEnvironment) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    hidden = _type_at(place) in {SecretText, SecretUrl, Options, None} or any(is_sensitive(str(step)) for step in place)
    if value is None or hidden or not _PLAIN.fullmatch(re.sub(r"\$\{\w+(:-)?|}", "", text)):
        return "does not fit" if value is not None else "is empty"
    return f"cannot be {text}"
