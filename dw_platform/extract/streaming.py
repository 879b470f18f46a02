"""Rows one after the other, pulled from a cursor that stays in the database.

Nothing is fetched before it is asked for, and never more than a batch is held. Who leaves the loop, or is cancelled,
closes the cursor and gives the connection back; a statement that still runs is cancelled where the driver can do that
(PostgreSQL), and otherwise ends by its timeout.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, CursorResult

from dw_platform.extract import table_pages
from dw_platform.extract.conditions import Condition
from dw_platform.extract.errors import ValueNotKeptError
from dw_platform.extract.key_column import OrderColumn
from dw_platform.extract.query_pages import QueryTable, all_rows
from dw_platform.extract.reader import TableQuery
from dw_platform.extract.selection import Selection
from dw_platform.extract.source import DatabaseSource, translated
from dw_platform.extract.statements import ask

Row = dict[str, Any]
Convert = Callable[[Sequence[Sequence[Any]]], list[Row]]


@dataclass(frozen=True, slots=True)
class Stream:
    """A statement on its connection, and what makes rows of its answer."""

    connection: Connection
    statement: str
    convert: Convert
    table: str = ""


def query_stream(
    connection: Connection, table: QueryTable, order: Sequence[OrderColumn], where: Sequence[Condition]
) -> Stream:
    """Return the stream of a query; its values come as the driver gives them."""
    # By itself it keeps its own order, which inside another it need not.
    statement = all_rows(table, order, where) if order or where else table.query
    return Stream(connection, statement, lambda rows: [dict(zip(table.names, row, strict=True)) for row in rows])


def table_stream(connection: Connection, query: TableQuery) -> Stream:
    """Return the stream of a table, with the values that its pages have."""
    table = query.table
    selection = Selection.of(query.columns, (), table.kind)
    if table.kind == "mysql":
        # As its pages: the text of the protocol, which Arrow converts. The connection is not used for anything else.
        driver: Any = connection.connection.driver_connection
        driver.decoders = {}
    statement = f"SELECT {', '.join(selection.expressions)} {table_pages.all_rows(query)}"
    wires = {at: mapping.wire for at, mapping in zip(selection.values, query.columns, strict=True)}

    def convert(rows: Sequence[Sequence[Any]]) -> list[Row]:
        columns = [_column(query, at, values, wires) for at, values in enumerate(zip(*rows, strict=True))]
        return table_pages.items_of(columns, selection, query, check_text=False)

    return Stream(connection, statement, convert, str(table))


def _column(query: TableQuery, at: int, values: Sequence[Any], wires: dict[int, pa.DataType]) -> pa.ChunkedArray:
    wire = wires.get(at)
    if query.table.kind == "mysql" and wire is not None:
        wire = pa.binary() if any(isinstance(value, bytes) for value in values) else pa.string()
    try:
        return pa.chunked_array([pa.array(values, wire)])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        name = query.columns[list(wires).index(at)].name
        what = "a value of another kind than its declared type"
        raise ValueNotKeptError(query.table.source, str(query.table), name, what) from error


async def stream_rows(
    source: DatabaseSource, opened: Callable[[ExitStack], Stream], *, batch: int
) -> AsyncGenerator[Row, None]:
    """Yield the rows of what `opened` opens with the first of them; it leaves on the stack how to close it."""
    cursor = _Cursor(source, opened, batch)
    try:
        while rows := await cursor.fetch():
            for row in rows:
                yield row
    finally:
        await cursor.close()


class _Cursor:
    """A cursor with a thread of its own, because drivers block and want one caller at a time."""

    def __init__(self, source: DatabaseSource, opened: Callable[[ExitStack], Stream], batch: int) -> None:
        self._source, self._opened, self._batch = source, opened, batch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"stream-{source.name}")
        self._stack = ExitStack()
        self._stream: Stream | None = None
        self._result: CursorResult[Any] | None = None
        self._busy = False

    async def fetch(self) -> list[Row]:
        self._busy = True
        rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._fetch)
        self._busy = False
        return rows

    async def close(self) -> None:
        """End everything; whoever is cancelled in the middle of a fetch does not wait for the thread to come back.

        It closes what it has opened then, however far it was.
        """
        closed = asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)
        if self._busy:
            self._cancel()
        else:
            await closed

    def _fetch(self) -> list[Row]:
        if self._stream is None:
            with translated(self._source):
                self._stream = self._opened(self._stack)
        stream = self._stream
        with translated(self._source, stream.table):
            if self._result is None:
                self._result = ask(stream.connection, stream.statement, stream_results=True)
            rows = self._result.fetchmany(self._batch)
        return stream.convert(rows) if rows else []

    def _cancel(self) -> None:
        if self._stream is not None and self._source.kind == "postgresql":
            with contextlib.suppress(Exception):  # it may end by itself at this very moment
                driver: Any = self._stream.connection.connection.driver_connection
                driver.cancel()

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # the reader has left, and there is nobody to tell
            if self._stream is not None and self._source.kind == "mysql":
                _abandon(self._stream.connection)
            elif self._result is not None:
                self._result.close()
        with contextlib.suppress(Exception):
            self._stack.close()


def _abandon(connection: Connection) -> None:
    """Close a connection of pymysql at once: giving it back would first read the rest, maybe the whole table."""
    driver: Any = connection.connection.driver_connection
    result = getattr(driver, "_result", None)
    if result is not None:
        result.unbuffered_active = False  # or it goes on reading when it is collected
    connection.invalidate()
