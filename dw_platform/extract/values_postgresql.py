"""A large value out of PostgreSQL, a slice at a time, all slices from one snapshot.

Bytes that are stored as they are get sliced by one statement each: the server reads just the pages of that slice. Any
function on compressed bytes or on text would unpack the value anew for every slice. So those are unpacked once, by a
cursor whose plan keeps the unpacked value in the server's memory while slices are fetched from it; the server needs no
more memory for that than for an ordinary SELECT of the value.

A session that nobody reads from for the statement timeout is ended by the server, because its snapshot keeps old rows
from being cleaned up.
"""

from collections.abc import Generator, Iterator
from typing import Any

from dw_platform.extract.spot import Spot


def slices(connection: Any, spot: Spot) -> Generator[bytes, None, None]:
    """Yield the bytes of the value in slices; text as UTF-8, whose characters a slice may cut."""
    import psycopg  # noqa: PLC0415 - the connection is one of its own, so it is there

    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with connection.transaction():
        is_bytes = spot.table.column(spot.column).kind.base == "bytea"
        length, compressed = _measured(connection, spot, is_bytes=is_bytes)
        if length is None:
            raise spot.no_value()
        if is_bytes and not compressed:
            yield from _sliced(connection, spot, length)
        else:
            yield from _unpacked(connection, spot, is_bytes=is_bytes)


def _measured(connection: Any, spot: Spot, *, is_bytes: bool) -> tuple[int | None, bool]:
    """Return the length and whether it is compressed; for what is no bytea, the length says only whether it is NULL."""
    if is_bytes:
        wanted = f"octet_length({spot.column_sql}), pg_column_compression({spot.column_sql}) IS NOT NULL"
    else:
        wanted = f"CASE WHEN {spot.column_sql} IS NOT NULL THEN 0 END, false"
    query = f"SELECT {wanted} FROM {spot.table_sql} WHERE {spot.where} LIMIT 2"  # noqa: S608 - quoted by Spot
    length, compressed = spot.only(connection.execute(query).fetchall())
    return length, compressed


def _sliced(connection: Any, spot: Spot, length: int) -> Iterator[bytes]:
    size = spot.slice_bytes
    with connection.cursor(binary=True) as cursor:
        for start in range(1, length + 1, size):
            piece = f"substring({spot.column_sql} FROM {start} FOR {size})"
            cursor.execute(f"SELECT {piece} FROM {spot.table_sql} WHERE {spot.where}")  # noqa: S608 - as above
            yield cursor.fetchone()[0]


def _unpacked(connection: Any, spot: Spot, *, is_bytes: bool) -> Iterator[bytes]:
    whole = f"{spot.column_sql} || ''::bytea" if is_bytes else f"convert_to({spot.column_sql}::text, 'UTF8')"
    size = spot.slice_bytes
    # OFFSET 0 keeps the planner from moving the unpacking into every slice, and the series depends on the value, so
    # that the value is the outer side of the join, which is computed once.
    query = (
        f"SELECT substring(whole.bytes FROM start FOR {size}) "  # noqa: S608 - quoted by Spot
        f"FROM (SELECT {whole} AS bytes FROM {spot.table_sql} WHERE {spot.where} OFFSET 0) AS whole, "
        f"LATERAL generate_series(1, octet_length(whole.bytes), {size}) AS start"
    )
    with connection.cursor("dw_value", binary=True) as cursor:
        cursor.execute(query)
        while row := cursor.fetchone():
            yield row[0]
