"""Sections `broker`, `streams` and `databases`: where data comes from."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

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
    Overlap,
    Owner,
    Password,
    Positive,
    Share,
    ShareOrZero,
    Size,
    Switch,
    TableName,
    Text,
    TopicName,
    duration,
    size,
)
from dw_platform.config.written import whole

if TYPE_CHECKING:  # at run time it is imported when needed: the log needs pyarrow, reading a file does not
    from dw_platform.log.policy import FsyncPolicy, LogPolicy, Retention

# What the log itself allows; tests hold these to it.
Partitions = Annotated[int, whole(1, 10_000)]
RecordSize = Annotated[int, size(1, 512 * 1024**2)]


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
    """When the embedded log drops messages: as soon as one of the limits is reached."""

    age: Duration = Field(default=timedelta(hours=24), alias="for")
    """How long a message stays."""

    max_size: Size = 1024**3
    """How much one partition holds."""

    when_read: Switch = False
    """Whether messages go as soon as every group has read them, before age or size ask for it."""

    keep_unread: Switch = True
    """Whether messages that some group has not read stay, whatever their age and size."""

    def policy(self) -> "Retention":
        """Return what the log needs."""
        from dw_platform.log.policy import Retention  # noqa: PLC0415  see above

        return Retention(
            max_age=self.age, max_bytes=self.max_size, when_read=self.when_read, keep_unread=self.keep_unread
        )


class FsyncSection(Section):
    """When the embedded log forces messages to disk; docs/log.md says what an acknowledgement then means."""

    mode: Literal["always", "messages", "interval", "never"] = "always"
    """`always`: before every acknowledgement. `interval`: likewise, but publishers wait for one fsync together.
    `messages`: once for so many messages. `never`: when the system does it. With the last two, a crash of the machine
    can take acknowledged messages."""

    messages: Positive = 1000
    """For `messages`: how many share one fsync, which is also how many a crash of the machine can take."""

    interval: Annotated[timedelta, duration(high=timedelta(minutes=1))] = timedelta(milliseconds=100)
    """For `interval`: how long a publish waits for its fsync at most, up to 1m."""

    def policy(self) -> "FsyncPolicy":
        """Return what the log needs."""
        from dw_platform.log.policy import FsyncPolicy  # noqa: PLC0415  see above

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
    """How much one commit of a stream's table holds: as much as the first limit that is reached allows."""

    rows: Positive = 2_000_000
    """Most messages of one commit."""

    size: Size = 512 * 1024**2
    """Most bytes of messages in one commit, estimated from those before."""

    every: Duration = timedelta(seconds=1)
    """How often `dw ingest --follow` commits while messages arrive."""


class ScalabilitySection(Section):
    """When a stream grows and how far."""

    max_partitions: Partitions = 64
    """Most partitions of its topic."""

    max_consumers: Positive = 16
    """Most consumers of one group."""

    scale_up_threshold: Share = 0.8
    """Share of the target throughput at which partitions are added."""

    target_throughput_per_partition: Positive = 50_000
    """Messages a second that one partition should carry."""

    max_lag: Duration = timedelta(seconds=30)
    """Age of the oldest message that a group has not read, at which consumers are added."""


class MadeUpSection(Section):
    """Messages that the platform makes up."""

    kind: Literal["clicks"]
    """What to make up: `clicks` of a shop's visitors as JSON, one in five thousand of them cut off."""

    rows: Positive = 20_000
    """How many messages each `dw demo` publishes."""

    seed: Annotated[int, whole(0)] = 7
    """The same seed makes the same messages."""


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

    topic: TopicName | None = None
    """Topic at the broker; the stream's name when not set."""

    broker: BrokerSection | None = None
    """A broker of its own; the platform's when not set."""

    partitions: Partitions | None = None
    """Partitions with which the topic is made; 4 when not set. `dw topics grow` adds more later."""

    key: Column | None = None
    """Field whose value chooses the partition, so that its messages stay in order; spread evenly when not set."""

    format: Literal["raw", "json"] = "raw"
    """`raw`: key, value and headers as bytes. `json`: one typed column for each entry of `columns`."""

    columns: dict[Column, ColumnType] = Field(default_factory=dict)
    """For `json`: the fields of a message and their types, such as order_id: bigint."""

    max_rejected: ShareOrZero = 0.1
    """For `json`: share of a commit's messages that may be unreadable; beyond it the run fails and commits nothing."""

    durable: Switch = True
    """Whether acknowledged messages must survive a crash; if not, `fsync` has no effect."""

    critical: Switch = False
    """Whether its messages are never refused under pressure; producers wait instead."""

    capacity: Positive = 10_000_000
    """Messages waiting for ingest at which the stream counts as full; its pressure is measured against this."""

    max_record: RecordSize = 8 * 1024**2
    """Largest message, key and headers included; at most 512MiB."""

    compacted: Switch = False
    """Whether the embedded log keeps only the newest message of each key."""

    retention: RetentionSection = RetentionSection()
    """When the embedded log drops messages."""

    fsync: FsyncSection = FsyncSection()
    """When the embedded log forces messages to disk."""

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

    generate: MadeUpSection | None = None
    """Messages that `dw demo` makes up and publishes; producers publish to the stream all the same."""

    @property
    def topic_name(self) -> str:
        """The topic it reads."""
        return self.topic or self.name

    @property
    def rejected_table(self) -> str:
        """Where unreadable messages go."""
        return f"{self.table}_rejected"

    def log_policy(self) -> "LogPolicy":
        """Return how the embedded log keeps its topic; one that is not durable is not fsynced."""
        from dw_platform.log.policy import FsyncPolicy, LogPolicy  # noqa: PLC0415  see above

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

    description: Text = ""
    """What one row is; shown in Dagster."""

    owners: tuple[Owner, ...] = ()
    """Who answers questions about it: e-mail addresses, or teams as team:NAME."""

    key: tuple[Column, ...] = ()
    """Columns that identify a row, for paging and merging; the primary key when not set."""

    columns: tuple[Column, ...] = ()
    """The columns to copy; all when not set."""

    exclude: tuple[Column, ...] = ()
    """Columns to leave out."""

    types: dict[Column, ColumnType] = Field(default_factory=dict)
    """Other types than those that the columns would get, such as amount: string; string is the database's own text."""

    files: dict[Column, Size] = Field(default_factory=dict)
    """Columns whose values go to files beside the table when they are larger than this, such as photo: 1MiB; the
    column photo_file then names the file."""

    mode: Literal["full", "incremental"] = "full"
    """`full` copies everything each time, `incremental` what `cursor` says is newer."""

    cursor: Column | None = None
    """For `incremental`: a column that grows with every change, such as updated_at."""

    overlap: Overlap = timedelta(minutes=10)
    """For `incremental`: how far before the last cursor each run begins again, for transactions that commit late: a
    duration for times, a number such as 10000 for numbers."""

    page_size: Positive = 50_000
    """Rows fetched at once at most; fewer where rows are wide."""

    commit_rows: Positive = 400_000
    """Rows after which the position is committed; a broken extract repeats at most so many."""

    schedule: Cron | None = None
    """When to extract, in UTC; only on demand when not set."""

    reconcile: Cron | None = None
    """For `incremental`: when to look for rows that were deleted in the database, in UTC."""

    freshness: Duration | None = None
    """Age of the table's newest commit at which Dagster shows it as stale; never when not set."""


class MadeUpDatabaseSection(Section):
    """A database that the platform makes up."""

    kind: Literal["customers"]
    """What to make up: `customers` of a shop in SQLite; each `dw demo` adds, changes and deletes a few."""

    rows: Positive = 5_000
    """How many rows it begins with."""

    seed: Annotated[int, whole(0)] = 7
    """The same seed makes the same rows."""


class DatabaseSection(Section):
    """An operational database."""

    name: Name
    """Name of the database, for commands such as dw extract NAME.TABLE."""

    url: DatabaseUrl
    """SQLAlchemy's address; write its password as ${NAME}."""

    max_connections: Positive = 4
    """Most connections that one extract has open at once; fewer when the database has fewer free."""

    connect_timeout: Duration = timedelta(seconds=5)
    """How long a connection may take."""

    statement_timeout: Duration = timedelta(minutes=5)
    """How long one page may take."""

    chunk_size: Size = 64 * 1024
    """Piece in which a large value is read."""

    buffer_size: Size = 64 * 1024 * 1024
    """How much of large values is held in memory at once."""

    tables: tuple[ExtractSection, ...] = ()
    """The tables to copy."""

    generate: MadeUpDatabaseSection | None = None
    """Rows that `dw demo` makes up, in a file of SQLite that it makes."""
