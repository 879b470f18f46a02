"""The choice of the key by which a table is read: what tells its rows apart and gives them an order.

A constraint or an index of the database has to prove it; only where there can be none (views) the user's word counts.
Some column types of MySQL cannot carry a position and are refused with the reason, rather than losing rows later.
"""

from collections.abc import Sequence

from dw_platform.extract.description import SourceColumn, SourceTable, UniqueKey
from dw_platform.extract.errors import NoKeyError

_MYSQL_REFUSED = {
    "float": "a FLOAT never equals the number it is shown as",
    "enum": "an ENUM sorts by number but compares as text",
    "set": "a SET sorts by number but compares as text",
    "bit": "a BIT is compared as number or text depending on its neighbour",
    "json": "JSON has no order that an index could serve",
}


def choose_key(table: SourceTable, wanted: Sequence[str] = ()) -> UniqueKey:
    """Return the key to read `table` by: `wanted` if it is unique, otherwise the best one; raise NoKeyError."""
    if wanted:
        return _wanted(table, tuple(wanted))
    refused = []
    for key in table.keys:
        if why := why_refused(table, key.columns):
            refused.append(why)
        # A primary key that allows NULL is SQLite's; the reading checks it, and finds none in practice.
        elif key.primary or not key.nullable:
            return key
    raise NoKeyError(table.source, str(table), "; ".join([*refused, *_reasons(table)]))


def _wanted(table: SourceTable, wanted: tuple[str, ...]) -> UniqueKey:
    columns = [table.column(name) for name in wanted]
    if len(set(wanted)) < len(wanted):
        raise NoKeyError(table.source, str(table), f"the key ({', '.join(wanted)}) names a column twice")
    if why := why_refused(table, wanted):
        raise NoKeyError(table.source, str(table), why)
    for key in table.keys:
        # In the order of the index, which then serves the pages.
        if set(key.columns) == set(wanted):
            return key
    for key in table.keys:
        if set(key.columns) < set(wanted):
            return UniqueKey(wanted, nullable=key.nullable or _may_be_null(columns))
    if table.is_view:
        return UniqueKey(wanted, nullable=_may_be_null(columns), trusted=True)
    raise NoKeyError(
        table.source,
        str(table),
        "; ".join([f"no constraint or index says that ({', '.join(wanted)}) is unique", *_reasons(table)]),
    )


def _may_be_null(columns: Sequence[SourceColumn]) -> bool:
    return any(column.nullable for column in columns)


def why_refused(table: SourceTable, names: Sequence[str]) -> str:
    """Return why one of these columns cannot carry a position, or nothing."""
    if table.kind != "mysql":
        return ""
    for name in names:
        if why := _MYSQL_REFUSED.get(table.column(name).kind.base):
            return f"{why}, so column {name} cannot be part of the key"
    return ""


def _reasons(table: SourceTable) -> list[str]:
    if table.is_view:
        return ["it is a view, which has no key of its own"]
    if not table.keys:
        return ["it has neither a primary key nor a unique index"]
    shown = ", ".join(f"({', '.join(key.columns)})" for key in table.keys)
    if all(key.nullable for key in table.keys):
        return [f"its unique keys may be NULL: {shown}; name one that never is"]
    return [f"its unique keys are: {shown}"]
