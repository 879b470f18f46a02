"""A table as of one version: what to plan from, and the handle that a commit must be made with.

deltalake accepts any `txn` version from a fresh handle, even a lower one than the log has. What it does refuse
is a commit whose handle is older than another commit of the same `app_id`. So a writer takes a snapshot, reads
its positions, plans, and commits with that same snapshot; whoever came second gets a conflict and plans again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from dw_platform.foundation import PermanentError, TransientError
from dw_platform.lake.features import TableFacts, WriterChoice, choose_writer
from dw_platform.lake.location import TableLocation
from dw_platform.lake.opening import open_delta
from dw_platform.lake.schema import conform, normal_schema


class NeedsSparkError(PermanentError):
    """The table has a feature with which only Spark can read it."""

    def __init__(self, table: str, cause: str) -> None:
        self.table, self.cause = table, cause
        super().__init__(f"{table} cannot be read without Spark ({cause}). Read it as a DataFrame instead.")


class TableReplacedError(TransientError):
    """Another log is in the place of the one that was read: the table was restored meanwhile."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(f"{table} was restored from a backup meanwhile. Nothing was written; begin again with it.")


class Snapshot:
    """One version of one table, read from its log; no data and no JVM."""

    def __init__(self, table: str, location: TableLocation, *, version: int | None = None) -> None:
        self.table = table
        self.location = location
        self.delta = open_delta(table, location, version=version)
        self.version = int(self.delta.version())
        self.log_identity = location.log_identity(self.version)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, as Arrow; NOT NULL columns are not nullable."""
        return normal_schema(pa.schema(self.delta.schema().to_arrow()))

    @cached_property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.delta.metadata().partition_columns)

    @cached_property
    def configuration(self) -> Mapping[str, str]:
        return dict(self.delta.metadata().configuration)

    @cached_property
    def facts(self) -> TableFacts:
        protocol = self.delta.protocol()
        return TableFacts(
            writer_version=protocol.min_writer_version,
            writer_features=frozenset(protocol.writer_features or ()),
            configuration=self.configuration,
            columns=json.loads(self.delta.schema().to_json())["fields"],
        )

    @cached_property
    def writer(self) -> WriterChoice:
        """The engine that may append to this table."""
        return choose_writer(self.facts)

    def position(self, app_id: str) -> int | None:
        """Return the version stored for `app_id` in the log: where a source partition is read next."""
        # The handle reads the log when it is asked, and would take what another log says for what this one said.
        if self.location.log_identity(self.version) != self.log_identity:
            raise TableReplacedError(self.table)
        return self.delta.transaction_version(app_id)

    @cached_property
    def row_count(self) -> int | None:
        """Rows by the log's own statistics; None when a file has none or rows are masked by deletion vectors."""
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        if "num_records" not in actions.schema.names:
            return 0 if len(actions) == 0 else None
        counts = actions.column("num_records")
        if counts.null_count or "deletionVectors" in self.facts.writer_features:
            return None
        return int(sum(counts.to_pylist()))

    @cached_property
    def size_bytes(self) -> int:
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        return int(sum(actions.column("size_bytes").to_pylist()))

    @cached_property
    def file_count(self) -> int:
        return len(self.delta.file_uris())

    def logged_bounds(self, column: str) -> tuple[Any, Any] | None:
        """Return the lowest and highest value that the log's statistics name; None if a file has none."""
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        found = [actions[name] for side in ("min", "max") if (name := f"{side}.{column}") in actions.schema.names]
        if len(found) < 2 or not len(actions) or any(values.null_count for values in found):
            return None
        return pc.min(found[0]).as_py(), pc.max(found[1]).as_py()

    def highest(self, column: str) -> Any:
        """Return the highest value of a column, by reading it; None if there is none."""
        values = self.read_arrow([column])[column]
        return pc.max(values).as_py() if len(values) else None

    def read_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows in this process, for small tables such as the platform's own records; no JVM."""
        names = list(columns or self.schema.names)
        schema = pa.schema([self.schema.field(name).with_nullable(True) for name in names])
        return pa.Table.from_batches(list(self.stream_arrow(names)), schema=schema)

    def stream_arrow(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows batch by batch, so that memory does not grow with the table; no JVM."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        # By SQL: deltalake's other readers ignore column mapping and refuse deletion vectors.
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        try:
            result = QueryBuilder().register("rows", self.delta).execute(f"SELECT {quoted} FROM rows")  # noqa: S608
            yield from (conform(batch, schema) for batch in pa.RecordBatchReader.from_stream(result))
        except DeltaError as error:
            raise NeedsSparkError(self.table, str(error).splitlines()[0]) from error
