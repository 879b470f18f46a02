"""How a value is written in a platform file: how it is read, how it is shown, and how an editor checks it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from dw_platform.config.environment import FromEnvironment

Reader = Callable[[Any, Path], Any]
"""Takes a value of the document and the folder of its file; returns the typed value or raises `refusal(...)`."""


@dataclass(frozen=True, slots=True, eq=False)  # by identity: annotations are hashed, dictionaries cannot be
class Written:
    """Annotates a field's type; see `values.py` for the kinds there are."""

    read: Reader
    schema: dict[str, Any]
    show: Callable[[Any], Any] | None = None
    """Turns the typed value into what JSON shows, where that is not plain already."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        serialization = None
        if self.show:
            serialization = core_schema.plain_serializer_function_ser_schema(self.show, when_used="json")
        return core_schema.with_info_plain_validator_function(self._validate, serialization=serialization)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        del schema, handler
        return dict(self.schema)

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        folder: Path = (info.context or {}).get("folder", Path())
        return self.read(value, folder)


def refusal(allowed: str, message: str = "") -> PydanticCustomError:
    """Return the error for a value that does not fit; it carries no part of the value, which may be a secret."""
    return PydanticCustomError("refused", "{allowed}", {"allowed": allowed, "message": message})


def text_of(value: Any, allowed: str) -> str:
    """Return `value` if it is text; a number gets the advice to quote it."""
    if not isinstance(value, str):
        raise refusal(f"{allowed}; put it in quotes" if isinstance(value, int | float) else allowed)
    return str(value)


def words(pattern: str, allowed: str, **schema: Any) -> Written:
    """Describe texts that match `pattern` as a whole."""
    compiled = re.compile(pattern, re.ASCII)

    def read(value: Any, _: Path) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise refusal(allowed)
        return str(value)

    return Written(read, {"type": "string", "pattern": f"^({pattern})$", **schema})


def power_of_two(low: int, high: int) -> Written:
    """Describe powers of two from `low` to `high`, both of which are one."""
    powers = [1 << number for number in range(low.bit_length() - 1, high.bit_length())]
    number = whole(low, high)

    def read(value: Any, folder: Path) -> int:
        try:
            found: int = number.read(value, folder)
        except PydanticCustomError:
            found = 0
        if found not in powers:
            raise refusal(f"a power of two from {low:,} to {high:,}, such as 65,536")
        return found

    return Written(read, {"anyOf": [{"enum": powers}, {"type": "string", "pattern": "^[0-9]+(_[0-9]+)+$"}]})


def whole(low: int, high: int | None = None) -> Written:
    """Describe whole numbers from `low` to `high`, both included."""
    allowed = f"a whole number, {low:,} or more" if high is None else f"a whole number from {low:,} to {high:,}"
    ceiling = 2**63 - 1 if high is None else high

    def read(value: Any, _: Path) -> int:
        if isinstance(value, FromEnvironment) and re.fullmatch(r"[0-9][0-9_]{0,30}", value, re.ASCII):
            value = int(value.replace("_", ""))
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= ceiling:
            raise refusal(allowed)
        return value

    number = {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})
    # To an editor, which reads YAML 1.2, a number with _ is a text.
    return Written(read, {"anyOf": [number, {"type": "string", "pattern": "^[0-9]+(_[0-9]+)+$"}]})
