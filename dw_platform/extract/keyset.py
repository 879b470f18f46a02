"""Reading a table in the order of a unique key, a page at a time, by statements that every database answers by index.

A page after the position (v1 .. vk) is a short sequence of branches, deepest first: `c1 = v1 AND .. cj = vj AND c(j+1)
strictly after v(j+1)`. Each is an equality prefix and one range, so an index on the key serves it on PostgreSQL,
MySQL and SQLite alike, whatever the prefix repeats; a single condition with OR would not. The branches are disjoint
and follow each other in the order, so laid end to end they are all rows after the position, each once. The next
branch is asked only while rows are missing. NULLs are branches of their own, because they compare with nothing.

The caller sees to it that the order is total: its columns contain a key without duplicates. A column that is declared
not nullable must hold no NULL, or rows would be left out. The database alone compares, by its own collation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dw_platform.extract.key_bound import Known, upper_bound
from dw_platform.extract.key_column import KeyColumn, OrderColumn, Position, Quote
from dw_platform.extract.notation import InvalidPositionError, Notation
from dw_platform.foundation import InvalidValueError

__all__ = ["Branch", "OrderColumn", "Position", "branches", "key_expressions", "position_of", "reversed_order"]


@dataclass(frozen=True, slots=True)
class Branch:
    """One statement's part of a page."""

    where: str
    """A condition, or "" for all rows."""

    order_by: str


def branches(
    order: Sequence[OrderColumn],
    after: Position | None,
    upto: Position | None,
    *,
    notation: Notation,
    quote: Quote,
) -> list[Branch]:
    """Return the statements whose results, one after the other, are the rows after `after` up to and with `upto`."""
    if not order:
        raise InvalidValueError("order", "nothing", "at least one column")
    columns = [KeyColumn.of(column, notation, quote) for column in order]
    bound = None if upto is None else _checked(upto, columns)
    found = _parts_of_all(columns[0]) if after is None else _parts_after(columns, _checked(after, columns))
    made = (_branch(columns, part, bound) for part in found)
    return [branch for branch in made if branch is not None]


def key_expressions(
    order: Sequence[OrderColumn], *, notation: Notation, quote: Quote, native: frozenset[str] = frozenset()
) -> list[tuple[str, ...]]:
    """Return for each column of the order what to select so that `position_of` has its exact value.

    `native` names the columns that the reader gets as integers or text without loss.
    """
    return [notation.key_expressions(quote(column.name), native=column.name in native) for column in order]


def position_of(values: Sequence[Sequence[Any]], *, notation: Notation) -> Position:
    """Return the position of a row, given what `key_expressions` selected from it as Python values."""
    return tuple(notation.text_of(each) for each in values)


def reversed_order(order: Sequence[OrderColumn]) -> tuple[OrderColumn, ...]:
    """Return the order that gives the same rows from the other end."""
    return tuple(
        replace(
            column,
            descending=not column.descending,
            nulls_first=None if column.nulls_first is None else not column.nulls_first,
        )
        for column in order
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that share a prefix with a position and come after it in the next column."""

    prefix: Position
    condition: str
    null: Known
    """Whether the column after the prefix is NULL."""


def _checked(position: Position, columns: Sequence[KeyColumn]) -> Position:
    if len(position) != len(columns):
        problem = f"it has {len(position)} values and the key has {len(columns)} columns"
        raise InvalidPositionError(columns[0].notation.kind, problem)
    return position


def _parts_of_all(column: KeyColumn) -> list[_Part]:
    if column.own_nulls:
        return [_Part((), "", None)]
    # No index has NULLs where they are wished here, but each side by itself is in its order.
    sides = [_Part((), column.is_null, null=True), _Part((), column.is_not_null, null=False)]
    return sides if column.nulls_first else sides[::-1]


def _parts_after(columns: Sequence[KeyColumn], after: Position) -> list[_Part]:
    found = []
    for depth in reversed(range(len(columns))):
        column, value, prefix = columns[depth], after[depth], after[:depth]
        if value is not None:
            found.append(_Part(prefix, column.after(value), null=False))
            if column.nullable and not column.nulls_first:
                found.append(_Part(prefix, column.is_null, null=True))
        elif column.nulls_first:
            found.append(_Part(prefix, column.is_not_null, null=False))
    return found


def _branch(columns: Sequence[KeyColumn], part: _Part, upto: Position | None) -> Branch | None:
    """Return the statement of a part, or None if the bound leaves nothing of it."""
    depth = len(part.prefix)
    nullness: list[Known] = [value is None for value in part.prefix]
    nullness += [part.null, *(None if column.nullable else False for column in columns[depth + 1 :])]
    bound = True if upto is None else upper_bound(columns, part.prefix, nullness, upto)
    if bound is False:
        return None
    conditions = [column.equal(value) for column, value in zip(columns, part.prefix, strict=False)]
    conditions += [condition for condition in (part.condition, bound) if isinstance(condition, str) and condition]
    items = [column.sort_item(mixed=known is None) for column, known in zip(columns, nullness, strict=True)]
    return Branch(" AND ".join(conditions), ", ".join(items))
