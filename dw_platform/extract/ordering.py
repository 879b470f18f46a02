"""The order of a table's pages: what the user wishes, made total by a key of the table."""

from collections.abc import Sequence
from dataclasses import replace

from dw_platform.extract.conditions import Condition
from dw_platform.extract.description import SourceTable, UniqueKey
from dw_platform.extract.key_column import OrderColumn
from dw_platform.extract.keys import why_refused
from dw_platform.foundation import InvalidValueError

Wished = str | OrderColumn
"""A column: by name, with a minus in front for descending, or with all that can be said about it."""


def parsed(wished: Sequence[Wished], names: Sequence[str]) -> tuple[OrderColumn, ...]:
    """Return the wished order; a name that a column has is that column, even if it begins with a minus."""
    found = [each if isinstance(each, OrderColumn) else _parsed(each, names) for each in wished]
    for at, column in enumerate(found):
        if any(column.name == other.name for other in found[:at]):
            raise InvalidValueError("order", column.name, "each column at most once")
    return tuple(found)


def table_order(table: SourceTable, wished: Sequence[Wished], key: UniqueKey | None) -> tuple[OrderColumn, ...]:
    """Return the wished order with the columns of `key` behind it, unless it tells all rows apart by itself."""
    found = [
        replace(each, nullable=table.column(each.name).nullable)
        for each in parsed(wished, [column.name for column in table.columns])
    ]
    names = {column.name for column in found}
    if why := why_refused(table, sorted(names)):
        raise InvalidValueError("order", ", ".join(sorted(names)), f"other columns: {why}")
    if key is None or any(names.issuperset(each.columns) for each in table.keys if not each.nullable):
        return tuple(found)
    # In the direction of the column before, so that an index over both serves it from either end.
    descending = found[-1].descending if found else False
    missing = [name for name in key.columns if name not in names]
    return (*found, *(OrderColumn(name, descending, table.column(name).nullable) for name in missing))


def query_order(names: Sequence[str], wished: Sequence[Wished], key: Sequence[str]) -> tuple[OrderColumn, ...]:
    """Return the order of a query's rows; nobody knows whether a column of it may be NULL, so each may."""
    found = [replace(each, nullable=True) for each in parsed(wished, names)]
    for name in key:
        if name not in {column.name for column in found}:
            found.append(OrderColumn(name, found[-1].descending if found else False, nullable=True))
    for column in found:
        if column.name not in names:
            raise InvalidValueError("order", column.name, f"a column of the query, which has {', '.join(names)}")
    return tuple(found)


def check_conditions(conditions: Sequence[Condition], names: Sequence[str]) -> None:
    """Refuse conditions on columns that a query does not have."""
    for condition in conditions:
        if condition.column not in names:
            raise InvalidValueError("where", condition.column, f"a column of the query, which has {', '.join(names)}")


def _parsed(text: str, names: Sequence[str]) -> OrderColumn:
    if text.startswith("-") and text not in names:
        return OrderColumn(text[1:], descending=True)
    return OrderColumn(text)
