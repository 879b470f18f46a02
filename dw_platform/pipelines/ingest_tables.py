"""The tables that a stream fills: their columns, and how they are made."""

import pyarrow as pa

from dw_platform.config import StreamSection
from dw_platform.lake.opening import TableMissingError
from dw_platform.lake.staging import PreparedWrite
from dw_platform.lake.table import LakeTable
from dw_platform.log.contract import HEADERS
from dw_platform.pipelines.ingest_types import json_schema
from dw_platform.pipelines.platform import Platform

_INSTANT = pa.timestamp("us", "UTC")
_RECORD = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", _INSTANT, nullable=False),
]
RAW = pa.schema([*_RECORD, pa.field("ingested_at", _INSTANT, nullable=False)])
REJECTED = pa.schema(
    [*_RECORD, pa.field("reason", pa.string(), nullable=False), pa.field("rejected_at", _INSTANT, nullable=False)]
)
_POSITION = [
    pa.field("_partition", pa.int32(), nullable=False),
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_timestamp", _INSTANT, nullable=False),
]
TOPIC_PROPERTY = "dw.topic"
# A commit a second makes 86,400 log files a day. A week of them is as long as removed data files stay.
_PROPERTIES = {"delta.logRetentionDuration": "interval 7 days"}


def stream_schema(stream: StreamSection) -> pa.Schema:
    """Return the columns of the stream's table."""
    return RAW if stream.format == "raw" else pa.schema([*json_schema(stream.columns), *_POSITION])


def prepare_table(platform: Platform, stream: StreamSection) -> PreparedWrite:
    """Make the stream's table ready for rows; the first time, make it.

    Raise SchemaMismatchError where somebody has altered it so that the rows no longer fit.
    """
    table, schema = platform.lake.table(stream.table), stream_schema(stream)
    described = stream.description or f"Messages of the topic {stream.topic_name}, each exactly once."
    return _prepared(table, schema, described, stream.topic_name)


def prepare_rejected(platform: Platform, stream: StreamSection) -> PreparedWrite:
    """Make the table of unreadable records ready; the first time, make it."""
    described = f"Messages of the topic {stream.topic_name} that do not fit {stream.table}, and why."
    return _prepared(platform.lake.table(stream.rejected_table), REJECTED, described, stream.topic_name)


def _prepared(table: LakeTable, schema: pa.Schema, description: str, topic: str) -> PreparedWrite:
    try:
        return table.prepare(schema)
    except TableMissingError:
        properties = {**_PROPERTIES, TOPIC_PROPERTY: topic}
        table.create(schema, properties=properties, description=description)
        return table.prepare(schema)
