"""Rows of a table that are not read by key: pages by offset, where nothing tells rows apart, and streams."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dw_platform.extract.conditions import conditions_sql
from dw_platform.extract.conform import conformed
from dw_platform.extract.errors import ValueNotKeptError
from dw_platform.extract.notation import notation_of
from dw_platform.extract.reader import TableQuery
from dw_platform.extract.reader_rows import open_rows
from dw_platform.extract.selection import Selection, number_columns
from dw_platform.extract.source import DatabaseSource, translated
from dw_platform.extract.statements import cut, tail


def table_filter(query: TableQuery) -> str:
    """Return the conditions of a table's pages as SQL."""
    table = query.table
    return conditions_sql(
        query.where, notation=notation_of(table.kind), quote=table.quote, numbers=number_columns(table)
    )


def offset_rows(source: DatabaseSource, query: TableQuery, *, offset: int, limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` rows after the first `offset`, with the values that pages by key would have."""
    table, selection = query.table, Selection.of(query.columns, (), source.kind)
    with translated(source, str(table)):
        rows = open_rows(source)
        try:
            columns, _ = rows.fetch(selection, all_rows(query, cut(limit, offset)), limit)
        finally:
            rows.close()
    return items_of(columns, selection, query, check_text=rows.check_text) if columns else []


def items_of(
    columns: Sequence[pa.ChunkedArray], selection: Selection, query: TableQuery, *, check_text: bool
) -> list[dict[str, Any]]:
    """Return rows as Python values with the types of their mappings, or raise ValueNotKeptError."""
    table = query.table
    if selection.guard is not None and (found := selection.broken_guard(columns[selection.guard])) is not None:
        mapping = query.columns[found]
        raise ValueNotKeptError(table.source, str(table), mapping.name, mapping.guard_what)
    arrays = [
        conformed(columns[at], mapping, table, check_text=check_text)
        for at, mapping in zip(selection.values, query.columns, strict=True)
    ]
    items: list[dict[str, Any]] = pa.Table.from_arrays(arrays, schema=query.schema).to_pylist()
    return items


def all_rows(query: TableQuery, rows: str = "") -> str:
    """Return what stands behind the columns of a SELECT of all rows, or of those that the clause `rows` leaves."""
    table, notation = query.table, notation_of(query.table.kind)
    items = [
        notation.sort_item(
            f"{table.quoted()}.{table.quote(each.name)}", descending=each.descending, nulls_first=each.nulls_first
        )
        for each in query.order
    ]
    return tail(table.quoted(), where=[table_filter(query)], order_by=", ".join(items), cut=rows)
