"""Filters as data: a column, a comparison and a value, which only this module turns into SQL.

Several hold together (AND). As in SQL, a comparison with NULL is never true, so `!=` leaves rows with NULL out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from dw_platform.extract.key_column import Quote
from dw_platform.extract.notation import Notation
from dw_platform.foundation import InvalidValueError

_COMPARED = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NULLS = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL"}
OPERATORS = (*_COMPARED, "in", *_NULLS)


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison; `value` is a Python value, a tuple of them for `in`, and nothing for `is_null`."""

    column: str
    op: str
    value: Any = None

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            raise InvalidValueError("op", self.op, f"one of {', '.join(OPERATORS)}")
        if self.op in _NULLS and self.value is not None:
            raise InvalidValueError(f"value of {self.op}", self.value, "nothing")
        if self.op in _COMPARED and (self.value is None or isinstance(self.value, list | tuple | set | dict)):
            raise InvalidValueError("value", self.value, f"a single value for {self.op}; use is_null for NULL")
        if self.op == "in":
            object.__setattr__(self, "value", _several(self.value))


def conditions_sql(
    conditions: Iterable[Condition], *, notation: Notation, quote: Quote, numbers: frozenset[str] = frozenset()
) -> str:
    """Return the conditions joined by AND, or "" if there are none.

    `numbers` names the columns whose values are numbers: text that is compared with them is read as one.
    """
    return " AND ".join(_sql(each, notation, quote, number=each.column in numbers) for each in conditions)


def _sql(condition: Condition, notation: Notation, quote: Quote, *, number: bool) -> str:
    column, op = quote(condition.column), condition.op
    if op in _NULLS:
        return f"{column} {_NULLS[op]}"
    values = condition.value if op == "in" else (condition.value,)
    literals = [_literal(condition, value, notation, number=number) for value in values]
    if op != "in":
        return f"{column} {_COMPARED[op]} {literals[0]}"
    return f"{column} IN ({', '.join(literals)})" if literals else "1 = 0"


def _literal(condition: Condition, value: Any, notation: Notation, *, number: bool) -> str:
    if number and isinstance(value, str):
        value = _number(condition, value)
    text = notation.text_of((value,))
    if text is None:
        raise InvalidValueError("value", value, "a value that is not NULL; use is_null")
    return notation.literal(text)


def _number(condition: Condition, text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise InvalidValueError(f"value of {condition.column}", text, "a number, as the column holds") from error
    if not value.is_finite():
        raise InvalidValueError(f"value of {condition.column}", text, "a finite number")
    return value


def _several(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or any(each is None for each in value):
        raise InvalidValueError("value", value, "a list of values for in, without NULL")
    return tuple(value)
