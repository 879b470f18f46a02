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
    Owner,
    Password,
    Positive,
    Share,
    Size,
    Switch,
    TableName,
    Text,
)
from dw_platform.log.policy import FsyncPolicy, LogPolicy, Retention


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

    when_read: Switch = False
    """Whether messages go as soon as every group has read them, without waiting for age or size."""

    keep_unread: Switch = True
    """Whether messages that some group has not read stay, however old and however many."""

    def policy(self) -> Retention:
        """Return what the log needs."""
        return Retention(
            max_age=self.age, max_bytes=self.max_size, when_read=self.when_read, keep_unread=self.keep_unread
        )


class FsyncSection(Section):
    """When a published message is forced to disk; what an acknowledgement then means is in docs/log.md."""

    mode: Literal["always", "messages", "interval", "never"] = "always"
    """`always`: before every acknowledgement. `interval`: too, but once in `interval` for all who wait. `messages`:
    with every so many `messages`, and `never`: the machine's own pace; both may lose the last ones with the machine."""

    messages: Positive = 1000
    """For `messages`: how many messages share one fsync."""

    interval: Duration = timedelta(milliseconds=100)
    """For `interval`: how long a publish waits at most for its fsync."""

    def policy(self) -> FsyncPolicy:
        """Return what the log needs."""
        match self.mode:
            case "messages":
                return FsyncPolicy.every_messages(self.messages)
            case "interval":
                return FsyncPolicy.every_interval(self.interval)
            case "never":
                return FsyncPolicy.never()
            case _:
                return FsyncPolicy.always()


class CommitSection(Section):
    """How much one commit of a stream's table holds; whichever limit is reached first counts."""

    rows: Positive = 2_000_000
    """Most messages of one commit."""

    size: Size = 512 * 1024**2
    """About how many bytes of messages, by the average size of those before."""

    every: Duration = timedelta(seconds=1)
    """How often `dw ingest --follow` commits while messages arrive."""


class ScalabilitySection(Section):
    """When a stream grows and how far."""

    max_partitions: Positive = 64
    """Most partitions of its topic."""

    max_consumers: Positive = 16
    """Most consumers of one group."""

    scale_up_threshold: Share = 0.8
    """Share of the target throughput at which partitions are added."""

    target_throughput_per_partition: Positive = 50_000
    """Messages a second that one partition should carry."""

    max_lag: Duration = timedelta(seconds=30)
    """Age of the oldest unread message at which consumers are added."""


class StreamSection(Section):
    """Messages of one topic that end up in one table, each exactly once."""

    name: Name
    """Name of the stream, for commands and checkpoints."""

    table: TableName
    """The table it fills, as schema.table."""

    description: Text = ""
    """What one message is; shown in Dagster."""

    owners: tuple[Owner, ...] = ()
    """Who answers questions about it: e-mail addresses, or teams as team:NAME."""

    topic: Text | None = None
    """Topic at the broker; the stream's name when not set."""

    broker: BrokerSection | None = None
    """A broker of its own; the platform's when not set."""

    partitions: Positive | None = None
    """Partitions of the topic when it is made; 4 when not set. Growing them later is `dw topics grow`."""

    key: Column | None = None
    """Field whose value chooses the partition, so that its messages stay in order; spread evenly when not set."""

    format: Literal["raw", "json"] = "raw"
    """`raw`: key, value and headers as bytes. `json`: one typed column for each entry of `columns`."""

    columns: dict[Column, ColumnType] = Field(default_factory=dict)
    """For `json`: the fields of a message and their types, such as order_id: bigint."""

    max_rejected: Share = 0.1
    """For `json`: share of a commit's messages that may be unreadable; above it the run fails and nothing moves."""

    durable: Switch = True
    """Whether an acknowledged message may never be lost."""

    critical: Switch = False
    """Whether its messages are never refused under pressure; their producers wait instead."""

    capacity: Positive = 10_000_000
    """Messages waiting to be ingested at which the stream counts as full; its pressure is measured against this."""

    max_record: Size = 8 * 1024**2
    """Largest message, with key and headers."""

    compacted: Switch = False
    """Whether the embedded log keeps only the newest message of each key."""

    retention: RetentionSection = RetentionSection()
    """How long messages stay in the embedded log."""

    fsync: FsyncSection = FsyncSection()
    """When a publish counts as durable in the embedded log."""

    backpressure: Literal["block", "drop_oldest", "shed_load", "degrade", "adaptive"] = "block"
    """What happens when messages arrive faster than they leave. A durable stream cannot use `drop_oldest`."""

    commit: CommitSection = CommitSection()
    """How much one commit of its table holds."""

    scalability: ScalabilitySection = ScalabilitySection()
    """When it grows and how far."""

    checkpoint_every: Duration = timedelta(seconds=5)
    """How often consumers store how far they have read."""

    freshness: Duration | None = None
    """Age of the table's newest commit at which Dagster shows it as stale; never when not set."""

    schedule: Cron | None = None
    """When to ingest, in UTC; whenever messages are waiting when not set."""

    @property
    def topic_name(self) -> str:
        """The topic it reads."""
        return self.topic or self.name

    @property
    def rejected_table(self) -> str:
        """Where unreadable messages go."""
        return f"{self.table}_rejected"

    def log_policy(self) -> LogPolicy:
        """Return how the embedded log keeps its topic; one that is not durable is not fsynced."""
        return LogPolicy(
            fsync=self.fsync.policy() if self.durable else FsyncPolicy.never(),
            retention=self.retention.policy(),
            max_record_bytes=self.max_record,
            compacted=self.compacted,
        )


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
