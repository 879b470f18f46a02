"""Sections `broker`, `streams` and `databases`: where data comes from."""

from datetime import timedelta
from typing import Literal

from pydantic import Field

from dw_platform.config.secrets import Options
from dw_platform.config.section import Section
from dw_platform.config.values import (
    BrokerAddress,
    Column,
    ColumnType,
    Cron,
    DatabaseUrl,
    Duration,
    Name,
    Password,
    Positive,
    Size,
    Switch,
    TableName,
    Text,
)


class BrokerSection(Section):
    """What keeps messages between producers and tables."""

    kind: Literal["embedded", "kafka", "pulsar", "nats", "rabbitmq"] = "embedded"
    """`embedded` is the platform's own log in HOME and needs no server."""

    address: BrokerAddress | None = None
    """HOST:PORT of the servers, separated by commas, or the broker's URL; needed for all but `embedded`."""

    username: Text | None = None
    """Who signs in."""

    password: Password | None = None
    """Password of `username`; write it as ${NAME}."""

    options: Options = Options()
    """Further settings by the client library's own names."""


class RetentionSection(Section):
    """How long messages stay in the embedded log; whichever limit is reached first counts."""

    age: Duration = Field(default=timedelta(hours=24), alias="for")
    """How long a message stays."""

    max_size: Size = 1024**3
    """How much one partition holds."""


class FsyncSection(Section):
    """When a published message counts as durable; a publish is acknowledged no earlier."""

    mode: Literal["always", "batched", "timed"] = "always"
    """`always`: with every publish. `batched`: every `records`. `timed`: every `interval`."""

    records: Positive = 1000
    """For `batched`: how many records share one fsync."""

    interval: Duration = timedelta(milliseconds=100)
    """For `timed`: how long a publish waits at most for its fsync."""


class StreamSection(Section):
    """Messages of one topic that end up in one table, each exactly once."""

    name: Name
    """Name of the stream, for commands and checkpoints."""

    table: TableName
    """The table it fills, as schema.table."""

    topic: Text | None = None
    """Topic at the broker; the stream's name when not set."""

    broker: BrokerSection | None = None
    """A broker of its own; the platform's when not set."""

    partitions: Positive | None = None
    """Partitions of the topic; by the number of its subscribers when not set."""

    key: Column | None = None
    """Field whose value chooses the partition, so that its messages stay in order; spread evenly when not set."""

    format: Literal["raw", "json"] = "raw"
    """`raw`: key, value and headers as bytes. `json`: one typed column for each entry of `columns`."""

    columns: dict[Column, ColumnType] = Field(default_factory=dict)
    """For `json`: the fields of a message and their types, such as order_id: bigint."""

    durable: Switch = True
    """Whether an acknowledged message may never be lost."""

    retention: RetentionSection = RetentionSection()
    """How long messages stay in the embedded log."""

    fsync: FsyncSection = FsyncSection()
    """When a publish counts as durable in the embedded log."""

    backpressure: Literal["block", "drop_oldest", "shed_load", "degrade", "adaptive"] = "block"
    """What happens when messages arrive faster than they leave. A durable stream cannot use `drop_oldest`."""

    checkpoint_every: Duration = timedelta(seconds=5)
    """How often consumers store how far they have read."""

    schedule: Cron | None = None
    """When to ingest, in UTC; whenever messages are waiting when not set."""

    @property
    def topic_name(self) -> str:
        """The topic it reads."""
        return self.topic or self.name


class ExtractSection(Section):
    """One table of a database that is copied into one table of the lake."""

    source: Text
    """The table in the database, with its schema if it needs one, such as public.customers."""

    table: TableName
    """The table it fills, as schema.table."""

    key: tuple[Column, ...] = ()
    """Columns that identify a row, for paging and merging; the primary key when not set."""

    mode: Literal["full", "incremental"] = "full"
    """`full` copies everything each time, `incremental` what `cursor` says is newer."""

    cursor: Column | None = None
    """For `incremental`: a column that grows with every change, such as updated_at."""

    page_size: Positive = 50_000
    """Rows fetched at once; a page is also what a broken extract repeats."""

    schedule: Cron | None = None
    """When to extract, in UTC; only on demand when not set."""


class DatabaseSection(Section):
    """An operational database."""

    name: Name
    """Name of the database, for commands such as dw extract NAME.TABLE."""

    url: DatabaseUrl
    """SQLAlchemy's address; write its password as ${NAME}."""

    chunk_size: Size = 64 * 1024
    """Piece in which a large value is read."""

    buffer_size: Size = 64 * 1024 * 1024
    """How much of large values is held in memory at once."""

    tables: tuple[ExtractSection, ...] = ()
    """The tables to copy."""
