"""Key ranges of even size, taken from the rows themselves.

The key's index is walked in steps of equal length, which is exact and reads the index twice at most. For large tables
of PostgreSQL a sample of blocks replaces it: the database sorts it, and every so many rows a boundary is taken.
Strides between the smallest and the largest key would be cheaper, but keys are seldom spread evenly, and one range
would then hold most of the rows.
"""

import math
from collections.abc import Sequence

from sqlalchemy import Connection, text

from dw_platform.extract import keyset
from dw_platform.extract.description import SourceTable
from dw_platform.extract.key_column import Position
from dw_platform.extract.notation import notation_of
from dw_platform.extract.reader import PageReader, TableQuery
from dw_platform.extract.reader_rows import open_rows
from dw_platform.extract.selection import Selection
from dw_platform.extract.source import DatabaseSource, open_engine, translated

# Rows of one block mostly have neighbouring keys, so it is the blocks that count: 2,000 of them place a boundary
# within about 1 % of the table. A sample of 400 left ranges a quarter larger than others.
_SAMPLE_ROWS = 100_000
# A walk passes over about 8 million rows a second, so up to here it takes a fraction of a second and is exact.
_WALKED_ROWS = 1_000_000
# Below it there is little to gain from ranges, and a sample of whole blocks says little about them.
_FEWEST_PER_PART = 50
# Counting a table that nobody has analysed takes well below a second up to here.
_COUNTED_BYTES = 256 * 1024 * 1024

_PG_SIZE = text("SELECT pg_catalog.pg_relation_size(pg_catalog.to_regclass(:name))")
_PG_PARTITIONS = text("""
    SELECT CASE WHEN bool_and(c.reltuples >= 0) THEN sum(c.reltuples)::bigint END
    FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass(:name)) p JOIN pg_catalog.pg_class c ON c.oid = p.relid
    WHERE p.isleaf AND c.relkind = 'r'
""")
_PG_FREE = text("""
    WITH used AS (SELECT usename, datname FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend')
    SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
            - COALESCE(current_setting('reserved_connections', true)::int, 0) - (SELECT count(*) FROM used)
    UNION ALL SELECT rolconnlimit - (SELECT count(*) FROM used WHERE usename = rolname)
        FROM pg_catalog.pg_roles WHERE rolname = current_user AND rolconnlimit >= 0
    UNION ALL SELECT datconnlimit - (SELECT count(*) FROM used u WHERE u.datname = d.datname)
        FROM pg_catalog.pg_database d WHERE d.datname = current_database() AND datconnlimit >= 0
""")


def split_positions(source: DatabaseSource, query: TableQuery, *, parts: int, upto: Position) -> list[Position]:
    """Return up to `parts` - 1 positions in ascending order that cut the rows up to `upto` into even ranges."""
    if parts <= 1:
        return []
    found: list[Position] | None = None
    if source.kind == "postgresql" and (query.table.estimated_rows or 0) > _WALKED_ROWS and not query.table.is_view:
        found = _sampled(source, query, parts, upto)
    if found is None:
        found = _walked(source, query, parts, upto)
    # The last row is a boundary already, and equal ones would make empty ranges.
    return [each for each in dict.fromkeys(found) if each != upto]


def estimated_rows(connection: Connection, source: DatabaseSource, table: SourceTable) -> int | None:
    """Return about how many rows a table has, without reading more than a small one; None if nobody knows."""
    with translated(source, str(table)):
        if table.estimated_rows is not None or table.kind == "mysql" or table.is_view:
            return table.estimated_rows
        if table.kind == "sqlite":
            # The smallest index is counted, and the file is local.
            return _count(connection, table)
        name = {"name": table.quoted()}
        if (rows := connection.execute(_PG_PARTITIONS, name).scalar()) is not None:
            return int(rows)
        size = connection.execute(_PG_SIZE, name).scalar()
        return _count(connection, table) if size is not None and size <= _COUNTED_BYTES else None


def free_connections(source: DatabaseSource) -> int | None:
    """Return how many connections the database would still give to this user; None if it sets no limit."""
    if source.kind == "sqlite":
        return None
    engine = open_engine(source)
    try:
        with translated(source), engine.connect() as connection:
            if source.kind == "postgresql":
                return max(0, min(int(left) for left in connection.execute(_PG_FREE).scalars()))
            return _mysql_free(connection)
    finally:
        engine.dispose()


def _sampled(source: DatabaseSource, query: TableQuery, parts: int, upto: Position) -> list[Position] | None:
    """Return boundaries from a sample of the table's blocks; None if it is too small to tell."""
    percent = max(100 * _SAMPLE_ROWS / max(query.table.estimated_rows or 0, _SAMPLE_ROWS), 0.0001)
    selection = Selection.of((), query.key_expressions(), source.kind)
    groups = []
    opened = open_rows(source)
    try:
        for branch in query.branches(None, upto):
            tail = query.tail(branch.where, branch.order_by, sample=f"TABLESAMPLE SYSTEM ({percent:.6f})")
            with translated(source, str(query.table)):
                # Statistics may be years old: the limit keeps a table that has grown since from being fetched whole.
                columns, _ = opened.fetch(selection, f"{tail} LIMIT {10 * _SAMPLE_ROWS}", 10 * _SAMPLE_ROWS)
            if columns:
                groups.append(columns)
    finally:
        opened.close()
    ends = [len(columns[0]) for columns in groups]
    if sum(ends) < parts * _FEWEST_PER_PART:
        return None
    chosen = []
    for at in _evenly(sum(ends), parts):
        group, index = 0, at
        while index >= ends[group]:
            group, index = group + 1, index - ends[group]
        values = {each: groups[group][each][index].as_py() for each in selection.key_expressions}
        chosen.append(keyset.position_of(selection.grouped(values), notation=notation_of(source.kind)))
    return chosen


def _walked(source: DatabaseSource, query: TableQuery, parts: int, upto: Position) -> list[Position]:
    """Return boundaries by passing over as many rows of the index as a range is to have."""
    found: list[Position] = []
    with PageReader(source, query) as reader:
        step = math.ceil(reader.count(upto=upto) / parts)
        after: Position | None = None
        while step and len(found) < parts - 1:
            after = reader.position_ahead(after, step, upto=upto)
            if after is None:
                break
            found.append(after)
    return found


def _evenly(rows: int, parts: int) -> Sequence[int]:
    return [rows * part // parts for part in range(1, parts)]


def _count(connection: Connection, table: SourceTable) -> int:
    statement = f"SELECT count(*) FROM {table.quoted()}"  # noqa: S608 - a quoted name
    rows = connection.exec_driver_sql(statement, execution_options={"no_parameters": True}).scalar()
    return int(rows or 0)


def _mysql_free(connection: Connection) -> int:
    most, own = connection.execute(text("SELECT @@max_connections, @@max_user_connections")).one()
    _, used = connection.execute(text("SHOW GLOBAL STATUS LIKE 'Threads_connected'")).one()
    left = int(most) - int(used)
    return max(0, min(left, int(own)) if int(own) else left)
