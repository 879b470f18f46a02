"""Reading one lane of an extraction page by page; runs inside Spark tasks.

The next page is asked for while the current one is written, so the database and the Parquet writer work at the same
time. A page holds as many rows as fit into `PAGE_BYTES`, going by those before, and at most `page_rows`.

Memory: two pages and the part that is being written, whatever the size of the table.
"""

import concurrent.futures
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dw_platform.extract.keyset import Position
from dw_platform.extract.reader import Page, PageReader, TableQuery
from dw_platform.extract.source import DatabaseSource
from dw_platform.extract.values import NoValueError, RowGoneError, ValueReader
from dw_platform.lake.parts import ReadPage
from dw_platform.lake.value_files import ValueFiles

PAGE_BYTES = 8 * 1024 * 1024
# Until a page has shown how wide rows are.
_FIRST_PAGE = 5_000
_LEAST_ROWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePages:
    """Reads lanes of one table; picklable, and called by the tasks."""

    source: DatabaseSource
    query: TableQuery
    upto: Mapping[int, Position | None]
    """Where each lane ends."""

    page_rows: int
    names: tuple[str, ...]
    """What the columns are called in the table."""

    key: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Columns whose large values go to files, and the columns that name those."""

    values: ValueFiles | None = None

    def __call__(self, lane: int, start: Any) -> Iterator[ReadPage]:
        """Yield the pages of a lane after `start`."""
        at = None if start is None else tuple(start)
        with (
            PageReader(self.source, self.query) as reader,
            ValueReader(self.source, self.query.table) as values,
            concurrent.futures.ThreadPoolExecutor(1, "page-ahead") as ahead,
        ):
            size = min(self.page_rows, _FIRST_PAGE)
            asked = ahead.submit(reader.page, at, size, upto=self.upto[lane])
            while True:
                page = asked.result()
                at = at if page.last is None else page.last
                if not page.exhausted:
                    asked = ahead.submit(reader.page, at, self._fitting(page), upto=self.upto[lane])
                rows = self._with_files(page.rows, values).rename_columns(list(self.names))
                yield ReadPage(rows, at, page.exhausted)
                if page.exhausted:
                    return

    def _fitting(self, page: Page) -> int:
        width: int = max(1, page.rows.nbytes // max(1, page.rows.num_rows))
        return max(_LEAST_ROWS, min(self.page_rows, PAGE_BYTES // width))

    def _with_files(self, rows: pa.Table, values: ValueReader) -> pa.Table:
        """Store the large values of a page and put the names of their files into its rows."""
        for column, named in self.files.items():
            places = [place for place, marked in enumerate(rows[named].is_valid().to_pylist()) if marked]
            if not places:
                continue
            names: list[str | None] = [None] * rows.num_rows
            for place in places:
                names[place] = self._stored(rows, place, column, values)
            index = rows.schema.get_field_index(named)
            rows = rows.set_column(index, rows.schema.field(index), pa.array(names, pa.string()))
        return rows

    def _stored(self, rows: pa.Table, place: int, column: str, values: ValueReader) -> str | None:
        assert self.values is not None
        key = {name: rows[name][place].as_py() for name in self.key}
        try:
            return self.values.store(lambda write: values.copy(key, column, write))
        except (RowGoneError, NoValueError):
            # Deleted, or set to NULL, after the page was read: there is no value any more.
            return None
