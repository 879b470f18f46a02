"""Who makes which table."""

from dataclasses import dataclass
from typing import Literal

from dw_platform.config.platform import PlatformConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The one part of the file that makes a table."""

    table: str
    kind: Literal["generate", "sql", "stream", "extract"]
    path: str
    """Where it stands in the file, such as `lake.tables[0]`."""


def produced_tables(config: PlatformConfig) -> dict[str, Producer]:
    """Return every table the platform fills, with what fills it; a loaded file has one producer for each."""
    found = [
        Producer(table=table.name, kind="sql" if table.sql is not None else "generate", path=f"lake.tables[{index}]")
        for index, table in enumerate(config.lake.tables)
    ]
    found += [
        Producer(table=stream.table, kind="stream", path=f"streams[{index}]")
        for index, stream in enumerate(config.streams)
    ]
    found += [
        Producer(table=table.table, kind="extract", path=f"databases[{outer}].tables[{inner}]")
        for outer, database in enumerate(config.databases)
        for inner, table in enumerate(database.tables)
    ]
    return {producer.table: producer for producer in found}
