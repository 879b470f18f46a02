"""Arrow batches become Parquet files of a table; runs inside Spark tasks and, for small data, in the driver.

A file that was written is not part of the table until the driver commits it. Names carry the job's id, so whatever
a failed job left behind can be found and removed, and no two attempts ever share a file.

Durability: on a local disk a file and its folder are fsynced before `write_batches` reports the file.
Memory: rows are gathered up to a job's `row_group_bytes` a file and `GATHERED_BYTES` in all files under way, of which
there are at most `MAX_OPEN_FILES`.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from dw_platform.foundation import PermanentError, fsync_directory
from dw_platform.lake.location import TableLocation
from dw_platform.lake.partitions import Partition, split_by_partition
from dw_platform.lake.schema import conform
from dw_platform.lake.statistics import (
    FloatBounds,
    dictionary_columns,
    file_statistics,
    footer_columns,
    without_distinct,
)
from dw_platform.lake.statistics import Path as ColumnPath

ROW_GROUP_ROWS = 1_000_000
ROW_GROUP_BYTES = 64 * 1024 * 1024
GATHERED_BYTES = 2 * ROW_GROUP_BYTES
MAX_OPEN_FILES = 32
TARGET_FILE_BYTES = 128 * 1024 * 1024


class NullInRequiredColumnError(PermanentError):
    """A column that the table declares NOT NULL holds a NULL."""

    def __init__(self, column: str, count: int) -> None:
        self.column, self.count = column, count
        super().__init__(f"column {column} is NOT NULL but {count:,} rows have no value in it. Nothing was written.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """What every task of one write needs to know; picklable."""

    location: TableLocation
    job_id: str
    schema: pa.Schema
    """The table's columns, partition columns among them."""

    partition_by: tuple[str, ...] = ()
    indexed: frozenset[ColumnPath] = frozenset()
    target_file_bytes: int = TARGET_FILE_BYTES
    row_group_bytes: int = ROW_GROUP_BYTES
    """Rows gather up to this before they are encoded, which takes about as much again."""

    @property
    def file_schema(self) -> pa.Schema:
        """The columns inside a file: Delta keeps partition values in the log only."""
        return pa.schema([field.with_nullable(True) for field in self.schema if field.name not in self.partition_by])


@dataclass(frozen=True, slots=True)
class DataFile:
    """A finished file, ready to be committed."""

    path: str
    """Relative to the table's root, as it is on disk."""

    size: int
    rows: int
    partition_values: str
    """JSON object of column to text or null."""

    statistics: str
    modified_ms: int


def new_job_id() -> str:
    """Return a name that no other write ever has."""
    return secrets.token_hex(12)


def write_batches(job: WriteJob, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
    """Write all batches and yield the finished files; on any error remove what this call wrote."""
    files = TaskFiles(job)
    try:
        for batch in batches:
            files.add(batch)
        finished = files.finish()
    except BaseException:
        files.discard()
        raise
    yield from finished


def remove_job_files(location: TableLocation, job_id: str) -> int:
    """Remove whatever a failed job left behind and return how many files that were."""
    system, root = location.filesystem()
    selector = pafs.FileSelector(root, recursive=True, allow_not_found=True)
    left = [info.path for info in system.get_file_info(selector) if info.is_file and f"-{job_id}-" in info.base_name]
    for path in left:
        with contextlib.suppress(FileNotFoundError):
            system.delete_file(path)
    return len(left)


def _require_values(job: WriteJob, batch: pa.RecordBatch) -> None:
    for field in job.schema:
        if field.nullable:
            continue
        if field.name not in batch.schema.names:
            raise NullInRequiredColumnError(field.name, len(batch))
        column = batch.column(field.name)
        missing = column.null_count
        if field.name in job.partition_by and pa.types.is_string(column.type):
            # Delta's log has one form for no value and for an empty text.
            missing += pc.sum(pc.equal(column, "")).as_py() or 0
        if missing:
            raise NullInRequiredColumnError(field.name, missing)


class TaskFiles:
    """The files that one task writes for one job. Whoever adds rows either finishes or, after any error, discards."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job
        self._open: dict[Partition, _OpenFile] = {}
        self._finished: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows; raise NullInRequiredColumnError or ValueDoesNotFitError for those that the table forbids."""
        if not len(batch):
            return
        _require_values(self._job, batch)
        for partition, rows in split_by_partition(conform(batch, self._job.schema), self._job.partition_by):
            self._add(partition, rows)

    def finish(self) -> list[DataFile]:
        """Return every file, durable and closed."""
        for partition in list(self._open):
            self._finish(partition)
        return self._finished

    def discard(self) -> None:
        """Remove whatever was written; best effort, because the driver sweeps by job id, and VACUUM after that."""
        system, root = self._job.location.filesystem()
        for path in [file.path for file in self._open.values()] + [file.path for file in self._finished]:
            with contextlib.suppress(OSError):
                system.delete_file(f"{root}/{path}")

    def _add(self, partition: Partition, rows: pa.RecordBatch) -> None:
        if partition not in self._open:
            if len(self._open) >= MAX_OPEN_FILES:
                self._finish(next(iter(self._open)))
            self._open[partition] = _OpenFile(self._job, partition)
        file = self._open[partition]
        file.add(rows)
        if sum(each.gathered_bytes for each in self._open.values()) > GATHERED_BYTES:
            max(self._open.values(), key=lambda each: each.gathered_bytes).flush()
        if file.size >= self._job.target_file_bytes:
            self._finish(partition)

    def _finish(self, partition: Partition) -> None:
        # It stays among the open ones until it is done, so that a failure leaves nothing that `discard` cannot see.
        self._finished.append(self._open[partition].finish())
        del self._open[partition]


class _OpenFile:
    """One Parquet file under way. Rows gather in memory until they make a row group of a useful size."""

    def __init__(self, job: WriteJob, partition: Partition) -> None:
        self._job, self._partition = job, partition
        self.path = f"{partition.folder}part-{job.job_id}-{secrets.token_hex(8)}.zstd.parquet"
        system, root = job.location.filesystem()
        self._full_path = f"{root}/{self.path}"
        if not job.location.is_s3:
            Path(self._full_path).parent.mkdir(parents=True, exist_ok=True)
        self._sink = system.open_output_stream(self._full_path, compression=None)
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self.gathered_bytes = 0
        self._floats = FloatBounds(job.file_schema)

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, rows: pa.RecordBatch) -> None:
        self._gathered.append(rows)
        self._rows += len(rows)
        self.gathered_bytes += rows.nbytes
        if self._rows >= ROW_GROUP_ROWS or self.gathered_bytes >= self._job.row_group_bytes:
            self.flush()

    def finish(self) -> DataFile:
        self.flush()
        assert self._writer is not None  # a file is opened for rows
        self._writer.close()
        self._sink.close()
        system, _ = self._job.location.filesystem()
        footer = pq.read_metadata(self._full_path, filesystem=system)
        size = self._make_durable(system)
        statistics = file_statistics(footer, self._job.file_schema, indexed=self._job.indexed, floats=self._floats)
        values = json.dumps(dict(self._partition.values))
        return DataFile(self.path, size, footer.num_rows, values, statistics, int(time.time() * 1000))

    def flush(self) -> None:
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered, schema=self._job.file_schema)
        self._floats.update(table)
        if self._writer is None:
            self._writer = self._opened(table)
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._gathered, self._rows, self.gathered_bytes = [], 0, 0

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        schema = self._job.file_schema
        return pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            store_schema=False,
            use_dictionary=without_distinct(dictionary_columns(schema), first),
            write_statistics=footer_columns(schema),
        )

    def _make_durable(self, system: pafs.FileSystem) -> int:
        if self._job.location.is_s3:
            return int(system.get_file_info(self._full_path).size)
        descriptor = os.open(self._full_path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        folder = Path(self._full_path).parent
        fsync_directory(folder)
        for parent in list(folder.parents)[: len(self._job.partition_by)]:
            fsync_directory(parent)
        return size
