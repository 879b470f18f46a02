"""What an extraction will read and how, before it reads: key, columns, types, estimated rows, tasks."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dw_platform.config import DatabaseSection, ExtractSection
from dw_platform.extract.description import SourceTable, UniqueKey, describe_table
from dw_platform.extract.errors import DatabaseUnavailableError, NullInKeyError
from dw_platform.extract.keys import choose_key
from dw_platform.extract.keyset import OrderColumn, Position
from dw_platform.extract.reader import PageReader, TableQuery
from dw_platform.extract.sampling import estimated_rows, free_connections, split_positions
from dw_platform.extract.source import DatabaseSource, open_engine, translated
from dw_platform.extract.types import ColumnMapping, map_columns
from dw_platform.lake.parquet import WriteJob
from dw_platform.lake.planning import new_job
from dw_platform.lake.snapshot import Snapshot
from dw_platform.lake.value_files import ValueFiles
from dw_platform.pipelines.databases import database_source
from dw_platform.pipelines.extract_read import LanePages
from dw_platform.pipelines.platform import Platform

# Below this a Spark job, and a JVM if none runs yet, costs more than it saves.
WORTH_SPARK_ROWS = 200_000
_LARGE_ROWS = 10_000_000
_THREADS = 2
# Several lanes a task, so that one that turns out larger does not keep the others waiting; but each leaves a last,
# smaller file, so only where there are enough rows.
_LANES_A_TASK = 4
_ROW_GROUP_BYTES = 8 * 1024 * 1024
# What Delta refuses in a name of a table without column mapping.
_FORBIDDEN = str.maketrans(dict.fromkeys(" ,;{}()\n\t=", "_"))
_LENGTH = {"postgresql": "octet_length({})", "mysql": "OCTET_LENGTH({})", "sqlite": "length(CAST({} AS BLOB))"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractPlan:
    """Everything that is settled before the first page."""

    name: str
    section: ExtractSection
    source: DatabaseSource
    table: SourceTable
    key: UniqueKey
    columns: tuple[ColumnMapping, ...]
    estimated_rows: int | None
    page_rows: int
    free_connections: int | None

    @property
    def order(self) -> tuple[OrderColumn, ...]:
        """The key, in its own order."""
        return tuple(self._ordered(name) for name in self.key.columns)

    @property
    def cursor_order(self) -> tuple[OrderColumn, ...]:
        """The cursor, then the key without it."""
        assert self.section.cursor is not None
        others = [name for name in self.key.columns if name != self.section.cursor]
        # A comparison with the cursor leaves NULLs out, so there are none among the rows that are read.
        return (OrderColumn(self.section.cursor), *(self._ordered(name) for name in others))

    @property
    def query(self) -> TableQuery:
        """All rows, in the order of the key."""
        return TableQuery(table=self.table, columns=self.columns, order=self.order)

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called in the lake."""
        return tuple(lake_name(column.name) for column in self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table in the lake."""
        return pa.schema([pa.field(name, column.arrow) for name, column in zip(self.names, self.columns, strict=True)])

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key's columns in the lake."""
        return tuple(lake_name(name) for name in self.key.columns)

    @property
    def binding(self) -> str:
        """Hash of everything that decides what is read; a run goes on only under the same."""
        columns = [(column.name, column.expression, str(column.arrow)) for column in self.columns]
        facts = [self.name, self.source.kind, str(self.table), self.table.fingerprint, columns, self.key.columns]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def pages(self, upto: Sequence[Position | None], values: ValueFiles, query: TableQuery | None = None) -> LanePages:
        """Return what reads the lanes that end at `upto`."""
        return LanePages(
            source=self.source,
            query=query or self.query,
            upto=dict(enumerate(upto)),
            page_rows=self.page_rows,
            names=self.names,
            key=self.key.columns,
            files={column: file_column(column) for column in self.section.files},
            values=values,
        )

    def job(self, base: Snapshot) -> WriteJob:
        """Return what the tasks write: smaller row groups than elsewhere, because each task holds pages besides."""
        return replace(new_job(base, self.schema), row_group_bytes=_ROW_GROUP_BYTES)

    def workers(self, cores: int) -> int:
        """Return how many tasks read at once: no more than there are cores, and connections to have."""
        allowed = self.source.max_connections
        if self.free_connections is not None:
            if self.free_connections < 1:
                raise DatabaseUnavailableError(self.source.name, "all its connections are in use")
            allowed = min(allowed, self.free_connections)
        # Values that go to files are read over a connection of their own.
        return max(1, min(cores, allowed // 2 if self.section.files else allowed))

    def use_spark(self, platform: Platform) -> bool:
        """Return whether Spark tasks read it, rather than threads of this process."""
        return platform.spark.started or self._expected_rows >= WORTH_SPARK_ROWS

    def cores(self, platform: Platform) -> int:
        """Return how many tasks can run at once."""
        return platform.spark.parallelism if self.use_spark(platform) else _THREADS

    def cores_without_spark(self, platform: Platform) -> int:
        """Return how many tasks would run at once, without opening a session to ask."""
        return platform.spark.parallelism if platform.spark.started else (os.cpu_count() or _THREADS)

    def lane_count(self, workers: int, commit_rows: int) -> int:
        """Return into how many ranges the key is cut."""
        rows = self._expected_rows
        many = rows >= _LANES_A_TASK * workers * commit_rows
        return workers * (_LANES_A_TASK if many else 1) if rows >= workers * self.page_rows else 1

    @property
    def _expected_rows(self) -> int:
        if self.estimated_rows is not None:
            return self.estimated_rows
        # A table that nobody can estimate was too large to be counted; a view is read as one range anyway, because
        # cutting it would compute it once for each cut.
        return 0 if self.table.is_view else _LARGE_ROWS

    def _ordered(self, name: str) -> OrderColumn:
        return OrderColumn(name, nullable=self.table.column(name).nullable)


def plan_extract(database: DatabaseSection, section: ExtractSection, *, page_size: int | None = None) -> ExtractPlan:
    """Look at the source and settle what is read; raises what is wrong with it before anything is read."""
    source = database_source(database)
    engine = open_engine(source)
    try:
        with translated(source), engine.connect() as connection:
            table = describe_table(connection, source, section.source)
            rows = estimated_rows(connection, source, table)
    finally:
        engine.dispose()
    key = choose_key(table, section.key)
    columns = map_columns(
        table, columns=_with_key(section, key), exclude=section.exclude, overrides=dict(section.types)
    )
    return ExtractPlan(
        name=f"{database.name}.{section.source}",
        section=section,
        source=source,
        table=table,
        key=key,
        columns=_with_files(table, columns, dict(section.files)),
        estimated_rows=rows,
        page_rows=page_size or section.page_size,
        free_connections=free_connections(source),
    )


def check_key(plan: ExtractPlan) -> Position | None:
    """Return the greatest key now, the fixed end of a copy; NullInKeyError if the key does not tell rows apart."""
    with PageReader(plan.source, plan.query) as reader:
        if plan.key.nullable and reader.has_null_in_key():
            raise NullInKeyError(plan.source.name, str(plan.table), plan.key.columns)
        return reader.last_position()


def cut(plan: ExtractPlan, upto: Position, lanes: int) -> list[Position]:
    """Return the ends of the lanes, ascending; the last one is `upto`."""
    inner = split_positions(plan.source, plan.query, parts=lanes, upto=upto) if lanes > 1 else []
    return [*(position for position in inner if position != upto), upto]


def lake_name(column: str) -> str:
    """Return what a column is called in the lake: its own name, with _ for what Delta refuses in names."""
    return column.translate(_FORBIDDEN)


def file_column(column: str) -> str:
    """Return the column that names the files of large values."""
    return f"{column}_file"


def describe_plan(plan: ExtractPlan, *, workers: int, lanes: Sequence[Any]) -> dict[str, Any]:
    """Return a plan for people and for JSON."""
    return {
        "extract": plan.name,
        "table": plan.section.table,
        "source": str(plan.table),
        "mode": plan.section.mode,
        "key": list(plan.key.columns),
        "cursor": plan.section.cursor,
        "estimated_rows": plan.estimated_rows,
        "page_size": plan.page_rows,
        "tasks": workers,
        "ranges": list(lanes),
        "columns": [
            {
                "name": column.name,
                "in_lake": lake_name(column.name),
                "type": plan.table.column(column.name).type_text if _is_own(plan, column) else "",
                "becomes": str(column.arrow),
                "note": column.note,
            }
            for column in plan.columns
        ],
    }


def _is_own(plan: ExtractPlan, column: ColumnMapping) -> bool:
    return any(column.name == own.name for own in plan.table.columns)


def _with_key(section: ExtractSection, key: UniqueKey) -> tuple[str, ...]:
    """Return the wished columns; without the key nothing could be merged, so it is always among them."""
    if not section.columns:
        return ()
    needed = (*key.columns, *([section.cursor] if section.cursor else []))
    return (*section.columns, *(name for name in needed if name not in section.columns))


def _with_files(
    table: SourceTable, columns: tuple[ColumnMapping, ...], files: dict[str, int]
) -> tuple[ColumnMapping, ...]:
    """Leave large values of `files` out of the rows, and mark those that have one."""
    found = list[ColumnMapping]()
    for column in columns:
        if column.name not in files:
            found.append(column)
            continue
        length = _LENGTH[table.kind].format(table.quote(column.name))
        limit = files[column.name]
        found.append(replace(column, expression=f"CASE WHEN {length} <= {limit} THEN {column.expression} END"))
        marked = f"CASE WHEN {length} > {limit} THEN 'x' END"
        marked = f"CAST({marked} AS text)" if table.kind == "postgresql" else marked
        note = f"the file of values above {limit:,} bytes"
        found.append(ColumnMapping(file_column(column.name), pa.string(), marked, pa.string(), note))
    return tuple(found)
