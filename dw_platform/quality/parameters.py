"""What a check's parameter may be, so that a wrong one is refused before Great Expectations is imported."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any


class ParameterType(StrEnum):
    """The kinds of values that checks take; the value of each member is what an error says is allowed."""

    COUNT = "a whole number, 0 or more"
    NUMBER = "a number"
    BOUND = "a number, or a date or time such as 2026-01-31 or 2026-01-31T08:00:00 (UTC)"
    FRACTION = "a number above 0, at most 1"
    FLAG = "true or false"
    TEXT = "text"
    CHOICE = "one of a fixed set of words"
    TEXTS = "a list of texts"
    CHOICES = "a list of words from a fixed set"
    VALUES = "a list of texts or numbers"
    PAIRS = "a list of pairs, such as [[DE, EUR], [NO, NOK]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a kind of check."""

    name: str
    type: ParameterType
    summary: str
    required: bool = False
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """What an error says next to a refused value."""
        if self.type is ParameterType.CHOICE:
            return f"one of {', '.join(self.choices)}"
        if self.type is ParameterType.CHOICES:
            return f"a list of {', '.join(self.choices)}"
        return self.type.value

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is of the parameter's type."""
        return _ACCEPTS[self.type](value, self.choices)


def as_moment(value: Any) -> datetime | None:
    """Return the time without zone that `value` names, a date being its midnight; None when it names none."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001  zones are the caller's
    # A zone beside others' UTC would make two bounds incomparable, so everything is written in UTC.
    return value if isinstance(value, datetime) and value.tzinfo is None else None


def _is_whole(value: Any) -> bool:
    # 64 bits: what a column can hold, and what converts to a float without overflow.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str) or _is_number(value)


def _is_list_of(value: Any, accepts: Callable[[Any], bool]) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and len(value) > 0 and all(accepts(item) for item in value)


_ACCEPTS: Mapping[ParameterType, Callable[[Any, tuple[str, ...]], bool]] = {
    ParameterType.COUNT: lambda value, _: _is_whole(value) and value >= 0,
    ParameterType.NUMBER: lambda value, _: _is_number(value),
    ParameterType.BOUND: lambda value, _: _is_number(value) or as_moment(value) is not None,
    ParameterType.FRACTION: lambda value, _: _is_number(value) and 0 < value <= 1,
    ParameterType.FLAG: lambda value, _: isinstance(value, bool),
    ParameterType.TEXT: lambda value, _: _is_text(value),
    ParameterType.CHOICE: lambda value, choices: _is_text(value) and value in choices,
    ParameterType.TEXTS: lambda value, _: _is_list_of(value, _is_text),
    ParameterType.CHOICES: lambda value, choices: _is_list_of(value, choices.__contains__),
    ParameterType.VALUES: lambda value, _: _is_list_of(value, _is_scalar),
    ParameterType.PAIRS: lambda value, _: _is_list_of(
        value, lambda item: _is_list_of(item, _is_scalar) and len(item) == 2
    ),
}
