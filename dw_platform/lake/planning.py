"""What a write settles before it begins: what its tasks must know, and who replaces a table's rows."""

import pyarrow as pa

from dw_platform.lake.features import Engine, WriterChoice, opaque_columns
from dw_platform.lake.parquet import WriteJob, new_job_id
from dw_platform.lake.schema import needed_features
from dw_platform.lake.snapshot import Snapshot
from dw_platform.lake.statistics import indexed_columns


def new_job(base: Snapshot, schema: pa.Schema) -> WriteJob:
    """Return a job that writes rows of `schema` into the table of `base`, with the bounds that the table wants."""
    in_files = pa.schema([field for field in schema if field.name not in base.partition_by])
    opaque = opaque_columns(base.facts)
    return WriteJob(
        location=base.location,
        job_id=new_job_id(),
        schema=schema,
        partition_by=base.partition_by,
        indexed=frozenset(path for path in indexed_columns(in_files, base.configuration) if path[0] not in opaque),
    )


def overwrite_choice(base: Snapshot, incoming: pa.Schema, partition_by: tuple[str, ...]) -> WriterChoice:
    """Return who replaces all rows of the table by rows of `incoming`, and why."""
    if base.writer.engine is Engine.SPARK:
        return base.writer
    if partition_by != base.partition_by:
        return WriterChoice(Engine.SPARK, "the table's partitioning changes")
    if opaque_columns(base.facts):
        return WriterChoice(Engine.SPARK, "the table has variant columns")
    if missing := [name for name in needed_features(incoming) if name not in base.facts.writer_features]:
        return WriterChoice(Engine.SPARK, f"the new columns need {', '.join(missing)}")
    return base.writer
