"""What most tests of the reader do: describe, map, read."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dw_platform.extract.conditions import Condition
from dw_platform.extract.description import SourceTable, describe_table
from dw_platform.extract.key_column import OrderColumn
from dw_platform.extract.keys import choose_key
from dw_platform.extract.reader import PageReader, TableQuery
from dw_platform.extract.source import open_engine
from dw_platform.extract.types import map_columns
from tests.extract.conftest import Sandbox


def described(box: Sandbox, text: str) -> SourceTable:
    engine = open_engine(box.source)
    try:
        with engine.connect() as connection:
            return describe_table(connection, box.source, text)
    finally:
        engine.dispose()


def query_of(
    box: Sandbox,
    text: str = "t",
    *,
    key: Sequence[str] = (),
    columns: Sequence[str] = (),
    exclude: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    where: Sequence[Condition] = (),
) -> TableQuery:
    table = described(box, text)
    chosen = choose_key(table, key)
    return TableQuery(
        table,
        map_columns(table, columns=columns, exclude=exclude, overrides=overrides),
        tuple(OrderColumn(name, nullable=chosen.nullable) for name in chosen.columns),
        tuple(where),
    )


def read_all(box: Sandbox, query: TableQuery, *, limit: int = 1000) -> pa.Table:
    """Return the table, laid together from its pages."""
    with PageReader(box.source, query) as reader:
        after, parts = None, []
        while True:
            page = reader.page(after, limit)
            parts.append(page.rows)
            if page.exhausted:
                return pa.concat_tables(parts)
            after = page.last
