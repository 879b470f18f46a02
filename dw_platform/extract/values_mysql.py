"""A large value out of MySQL or MariaDB, a slice a statement, all in one snapshot.

The server reads the whole value for every slice, so slices are large; how large a result may be at all is the
server's `max_allowed_packet`. Tables of engines without snapshots (MyISAM) may change in between: a value that does not
end where it should is SourceChangedError.
"""

from collections.abc import Generator, Iterator
from typing import Any

from dw_platform.extract.errors import SourceChangedError, StatementRefusedError
from dw_platform.extract.spot import Spot

# With 64 MiB buffered, four of them fit several times; a 1 GiB value is read by the server 128 times over.
_SLICE_BYTES = 8 * 1024 * 1024


def slices(connection: Any, spot: Spot) -> Generator[bytes, None, None]:
    """Yield the bytes of the value in slices; text as UTF-8, whose characters a slice may cut."""
    whole = spot.column_sql
    if spot.table.column(spot.column).kind.text:
        whole = f"CAST(CONVERT({whole} USING utf8mb4) AS BINARY)"
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            yield from _sliced(cursor, spot, whole)
        finally:
            connection.rollback()


def _sliced(cursor: Any, spot: Spot, whole: str) -> Iterator[bytes]:
    rows = f"FROM {spot.table_sql} WHERE {spot.where}"
    measured = f"{spot.column_sql} IS NULL, OCTET_LENGTH({whole}), @@max_allowed_packet"
    cursor.execute(f"SELECT {measured} {rows} LIMIT 2")
    is_null, length, packet = spot.only(cursor.fetchall())
    if is_null:
        raise spot.no_value()
    if length is None:
        raise StatementRefusedError(spot.table.source, f"the value is larger than max_allowed_packet, {packet:,} bytes")
    size = max(1, min(max(_SLICE_BYTES, spot.slice_bytes), packet // 2))
    for start in range(1, length + 1, size):
        cursor.execute(f"SELECT SUBSTRING({whole}, {start}, {size}) {rows}")
        found = cursor.fetchone()
        piece = b"" if found is None or found[0] is None else _bytes(found[0])
        if len(piece) != min(size, length - start + 1):
            raise SourceChangedError(spot.table.source, str(spot.table), f"a value of column {spot.column} is another")
        yield piece


def _bytes(value: Any) -> bytes:
    """Return what SUBSTRING gave; of numbers and dates it is text."""
    return value.encode() if isinstance(value, str) else bytes(value)
