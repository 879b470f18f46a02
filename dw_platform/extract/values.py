"""Values too large to be held: read slice by slice inside the database, given on chunk by chunk.

However large the value is, this process holds a slice and what is buffered for a slow reader. All slices belong to
one moment: a value that changes meanwhile is read as it was when the reading began.

Text is given as UTF-8, bytes as they are, anything else as the database's own text. NULL raises NoValueError, which an
empty value does not; a row that is not there raises RowGoneError. Both come with the first read of a stream.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from dw_platform.extract import values_mysql, values_postgresql, values_sqlite
from dw_platform.extract.buffer import BoundedBufferStream
from dw_platform.extract.description import SourceTable
from dw_platform.extract.line import Line
from dw_platform.extract.source import DatabaseSource, open_engine, translated
from dw_platform.extract.spot import Key, NoValueError, RowGoneError, Spot, find_spot
from dw_platform.foundation import PlatformError

__all__ = ["NoValueError", "RowGoneError", "ValueReader", "copy_value", "stream_value"]

# 16 chunks: the round trip to the server then costs little, and so does what is held of it.
_SLICE_BYTES = 1024 * 1024
# The server's own timeout should speak first: it says what it was.
_GRACE_S = 10.0

Write = Callable[[bytes], Any]
_SLICES: dict[str, Callable[[Any, Spot], Generator[bytes, None, None]]] = {
    "postgresql": values_postgresql.slices,
    "mysql": values_mysql.slices,
    "sqlite": values_sqlite.slices,
}


class ValueReader:
    """Reads values of one table over one connection, which is opened by the first; for one thread at a time."""

    def __init__(self, source: DatabaseSource, table: SourceTable) -> None:
        self._source, self._table = source, table
        self._engine = open_engine(source)

    def slices(self, key: Key, column: str, *, by: Sequence[str] = ()) -> Generator[bytes, None, None]:
        """Yield the value in slices of at most about 1 MiB (MySQL: 8 MiB); close the iterator to leave early."""
        size = min(_SLICE_BYTES, self._source.buffer_bytes)
        spot = find_spot(self._table, key, column, by=by, slice_bytes=size)
        read = _SLICES[self._source.kind]
        with translated(self._source, str(self._table)):
            connection = self._engine.raw_connection()
            try:
                with contextlib.closing(read(connection.driver_connection, spot)) as pieces:
                    yield from self._in_time(connection.driver_connection, pieces)
            except PlatformError:  # about the value; the connection is fine
                raise
            except BaseException:
                # It may be in the middle of anything, and there is no cheaper way to be sure of its state.
                connection.invalidate()
                raise
            finally:
                connection.close()

    def _in_time(self, connection: Any, pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
        """Yield the slices; give up on a server that has stopped, which does not watch its own statement timeout."""
        limit, line = self._source.statement_timeout_s, Line()
        line.hold(connection)
        try:
            while True:
                with line.limited(limit + min(limit, _GRACE_S)):
                    piece = next(pieces, None)
                if piece is None:
                    return
                yield piece
        finally:
            line.release()

    def copy(self, key: Key, column: str, write: Write, *, by: Sequence[str] = ()) -> int:
        """Hand the value to `write`, slice by slice, and return its size in bytes."""
        size = 0
        with contextlib.closing(self.slices(key, column, by=by)) as pieces:
            for piece in pieces:
                write(piece)
                size += len(piece)
        return size

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.close()


def copy_value(
    source: DatabaseSource, table: SourceTable, key: Key, column: str, write: Write, *, by: Sequence[str] = ()
) -> int:
    """Hand one value to `write`, slice by slice, and return its size in bytes; for many, use a ValueReader."""
    with ValueReader(source, table) as reader:
        return reader.copy(key, column, write, by=by)


def stream_value(
    source: DatabaseSource, table: SourceTable, key: Key, column: str, *, by: Sequence[str] = ()
) -> BoundedBufferStream:
    """Return one value as a stream of chunks; a thread reads ahead, as far as the source's buffer allows.

    The thread and its connection start with the first read, and end with the value or when the reader leaves.
    """
    # What is wrong with the question itself is said now.
    find_spot(table, key, column, by=by, slice_bytes=_SLICE_BYTES)

    def feed(stream: BoundedBufferStream) -> None:
        copy_value(source, table, key, column, stream.write, by=by)

    return BoundedBufferStream(
        max(source.buffer_bytes, source.chunk_bytes), source.chunk_bytes, feed=feed, name=f"value-{source.name}"
    )
