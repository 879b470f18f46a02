"""Pages of MySQL and MariaDB: the driver's rows turned into Arrow columns, text by text.

The protocol carries every value as text. It stays text until Arrow casts whole columns, which spares the driver's
converters; only the key of the last row is converted, because a position needs the value itself.
"""

import contextlib
from typing import Any

import pyarrow as pa

from dw_platform.extract.selection import Selection
from dw_platform.extract.source import DatabaseSource, open_engine, translated


class MysqlRows:
    """Pages by pymysql's unbuffered cursor; a `Rows`."""

    check_text = False

    def __init__(self, source: DatabaseSource) -> None:
        self._engine = open_engine(source)
        with translated(source):
            self._pooled = self._engine.raw_connection()
        connection: Any = self._pooled.driver_connection
        self._connection = connection
        # No converters: Arrow converts whole columns at once.
        self._connection.decoders = {}

    def fetch(self, selection: Selection, tail: str, limit: int) -> tuple[list[pa.ChunkedArray], dict[int, Any] | None]:
        from pymysql.cursors import SSCursor  # noqa: PLC0415 - optional, see open_engine

        del limit
        with self._connection.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT {', '.join(selection.expressions)} {tail}")
            rows = cursor.fetchall()
            codes = [each[1] for each in cursor.description]
        # Reads run in a transaction of their own; ending it lets go of the snapshot and of the table's definition.
        self._connection.rollback()
        if not rows:
            return [], None
        key = {at: _converted(codes[at], rows[-1][at]) for at in selection.key_expressions}
        return [_column(values) for values in zip(*rows, strict=True)], key

    def close(self) -> None:
        with contextlib.suppress(Exception):
            # Never used again, so it must not go back into the pool without its converters.
            self._pooled.invalidate()
        self._engine.dispose()


def _column(values: tuple[Any, ...]) -> pa.ChunkedArray:
    binary = any(isinstance(value, bytes) for value in values)
    return pa.chunked_array([pa.array(values, pa.binary() if binary else pa.string())])


def _converted(code: int, value: Any) -> Any:
    from pymysql.converters import decoders  # noqa: PLC0415 - optional, see open_engine

    convert = decoders.get(code)
    return convert(value) if convert is not None and isinstance(value, str) else value
