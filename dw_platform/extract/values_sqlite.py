"""A large value out of SQLite: through its incremental I/O, which never loads the value.

That needs a rowid. A table without one, a view and a computed column are read by `substr`, for which SQLite loads the
whole value into this process; so are numbers, which have no bytes of their own.

While a value is read, a transaction is open: the value cannot change, and where the file is not in WAL mode, writers
wait until the reading ends.
"""

import codecs
import contextlib
import sqlite3
from collections.abc import Generator, Iterator
from typing import Any

from dw_platform.extract.errors import SourceChangedError
from dw_platform.extract.spot import Spot

_ROWIDS = ("rowid", "_rowid_", "oid")


def slices(connection: sqlite3.Connection, spot: Spot) -> Generator[bytes, None, None]:
    """Yield the bytes of the value in slices; text as UTF-8, whose characters a slice may cut."""
    connection.execute("BEGIN")
    try:
        kind, rowid = _found(connection, spot)
        if kind == "null":
            raise spot.no_value()
        pieces = _pieces(connection, spot, kind, rowid)
        (encoding,) = connection.execute("PRAGMA encoding").fetchone()
        yield from pieces if kind == "blob" or encoding == "UTF-8" else _as_utf8(pieces, encoding)
    finally:
        connection.rollback()


def _found(connection: sqlite3.Connection, spot: Spot) -> tuple[str, Any]:
    taken = {column.name.casefold() for column in spot.table.columns}
    free = next((name for name in _ROWIDS if name not in taken), None)
    if free and not spot.table.is_view:
        # A table without rowids fails here; any other reason to fail shows itself below.
        with contextlib.suppress(sqlite3.OperationalError):
            return _looked_up(connection, spot, free)
    return _looked_up(connection, spot, "NULL")


def _looked_up(connection: sqlite3.Connection, spot: Spot, rowid: str) -> tuple[str, Any]:
    query = f"SELECT typeof({spot.column_sql}), {rowid} FROM {spot.table_sql} WHERE {spot.where} LIMIT 2"  # noqa: S608
    kind, found = spot.only(connection.execute(query).fetchall())
    return kind, found


def _pieces(connection: sqlite3.Connection, spot: Spot, kind: str, rowid: Any) -> Iterator[bytes]:
    if rowid is not None and kind in {"blob", "text"}:
        try:
            blob = connection.blobopen(
                spot.table.name, spot.column, rowid, readonly=True, name=spot.table.schema or "main"
            )
        except sqlite3.OperationalError:  # a computed column
            return _by_substr(connection, spot)
        return _by_blob(blob, spot)
    return _by_substr(connection, spot)


def _by_blob(blob: sqlite3.Blob, spot: Spot) -> Iterator[bytes]:
    with blob:
        try:
            while piece := blob.read(spot.slice_bytes):
                yield piece
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ABORT:
                raise
            what = f"the row whose column {spot.column} was being read"
            raise SourceChangedError(spot.table.source, str(spot.table), what) from error


def _by_substr(connection: sqlite3.Connection, spot: Spot) -> Iterator[bytes]:
    start, size = 1, spot.slice_bytes
    while True:
        piece = f"substr(CAST({spot.column_sql} AS BLOB), {start}, {size})"
        found = connection.execute(f"SELECT {piece} FROM {spot.table_sql} WHERE {spot.where}").fetchone()  # noqa: S608
        if found is None or not found[0]:
            return
        yield found[0]
        start += size


def _as_utf8(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="strict")
    for piece in pieces:
        yield decoder.decode(piece).encode()
    yield decoder.decode(b"", final=True).encode()
