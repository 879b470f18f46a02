"""How a database gives a column: its natural Arrow type, the SQL for it, and the SQL for its text."""

from dataclasses import dataclass

import pyarrow as pa

MOST_DIGITS = 38
"""Delta's decimals, and Arrow's of 128 bits, have no more."""

UTC = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What `types_<database>.reading` says about a column."""

    arrow: pa.DataType | None
    """None where no type keeps the values exactly."""

    expression: str
    text: str
    """SQL for the database's own text of the value."""

    wire: pa.DataType | None = None
    """What the driver hands over, if that is not `arrow`."""

    note: str = ""
    guard: str | None = None
    guard_what: str = ""
    text_guard: str | None = None
    """As `guard`, for the text."""

    binary: str | None = None
    """SQL for the value as bytes, where that is a choice."""

    binary_guard: str | None = None
    choices: tuple[str, ...] = ("string",)
    """Overrides to offer where `arrow` is None."""


def decimal_for(precision: int | None, scale: int | None) -> pa.DataType | None:
    """Return the decimal that holds every value so declared; None if 38 digits do not.

    PostgreSQL allows scales below zero (rounded to thousands) and above the precision (small fractions only).
    """
    if precision is None:
        return None
    places = max(scale or 0, 0)
    digits = max(precision - min(scale or 0, 0), places)
    return pa.decimal128(digits, places) if digits <= MOST_DIGITS else None
