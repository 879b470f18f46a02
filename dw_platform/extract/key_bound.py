"""The condition for not being beyond a position: the upper bound of a page.

`c1 <= u1 AND (c1 < u1 OR (c2 <= u2 AND ...))`: the first half is a range that an index can use. What is known about
a column's NULLs from the rest of the statement makes it shorter, and sometimes decides it.
"""

from collections.abc import Sequence

from dw_platform.extract.key_column import KeyColumn, Position

Known = bool | None
"""Whether a column is NULL in all rows of a statement (True), in none (False), or nobody knows (None)."""

Condition = str | bool
"""SQL, or the truth value where it needs none."""


def upper_bound(columns: Sequence[KeyColumn], prefix: Position, nullness: Sequence[Known], upto: Position) -> Condition:
    """Return the condition for rows that equal `prefix` in their first columns not to come after `upto`."""
    start = 0
    # Equal by their text they are equal to the database; different ones may still be, so that is left to it.
    while start < len(prefix) and prefix[start] == upto[start]:
        start += 1
    bound: Condition = True
    for at in reversed(range(start, len(columns))):
        bound = _within(columns[at], upto[at], known=nullness[at], deeper=bound)
    return bound


def _within(column: KeyColumn, value: str | None, *, known: Known, deeper: Condition) -> Condition:
    """Return the condition for `column` to come before `value`, or to be equal to it with `deeper` true."""
    if known is None and column.nullable:
        null = _within(column, value, known=True, deeper=deeper)
        other = _within(column, value, known=False, deeper=deeper)
        return _either(_both(column.is_null, null), _both(column.is_not_null, other) if value is None else other)
    if known:
        return deeper if value is None else column.nulls_first
    if value is None:
        return not column.nulls_first
    if deeper is True:
        return column.upto(value)
    return column.before(value) if deeper is False else f"{column.upto(value)} AND ({column.before(value)} OR {deeper})"


def _both(first: str, second: Condition) -> Condition:
    return (second and first) if isinstance(second, bool) else f"{first} AND {second}"


def _either(first: Condition, second: Condition) -> Condition:
    if isinstance(first, bool):
        return first or second
    return (second or first) if isinstance(second, bool) else f"({first} OR {second})"
