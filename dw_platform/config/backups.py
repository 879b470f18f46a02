"""Section `backups`: where backups go, which tables are backed up, and what is kept."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from dw_platform.config.section import Section
from dw_platform.config.storage import S3Section
from dw_platform.config.values import (
    Cron,
    Duration,
    File,
    Location,
    Name,
    Password,
    Positive,
    Share,
    Size,
    Switch,
    TablePattern,
    duration,
)


class KeepSection(Section):
    """How many backups stay; the newest restorable one always does, and pinned ones do."""

    last: Positive = 30
    """How many backups of a table stay at most."""

    age: Duration = Field(default=timedelta(days=90), alias="for")
    """How long a backup stays."""

    max_size: Size = 100 * 1000**3
    """How much the backups of a table may hold together."""


class BackupPolicySection(Section):
    """Which tables are backed up, how often and for how long."""

    name: Name
    """Name of the policy, for commands such as dw backup run NAME."""

    tables: tuple[TablePattern, ...] = Field(min_length=1)
    """Tables that something here produces, or patterns such as shop.*."""

    schedule: Cron | None = None
    """When to back up, in UTC; only on demand when not set."""

    full_every: Duration = timedelta(days=7)
    """How often a full backup starts a new chain; what lies between is incremental."""

    max_chain: Positive = 100
    """Backups of one chain; the next one is full."""

    full_share: Share = 0.5
    """Share of a table's bytes from which a change is copied as a full backup."""

    history: Switch = False
    """Whether older versions that the table still has are backed up too, for time travel after a restore."""

    keep: KeepSection = KeepSection()
    """Which backups stay."""


class BackupEncryptionSection(Section):
    """How a new repository is encrypted (AES-256-GCM). Whoever loses the key loses the backups."""

    key: Password | None = None
    """Any text of 12 characters or more; write it as ${NAME}. `dw backup key` makes a good one."""

    key_file: File | None = None
    """File with the key. Exactly one of `key` and `key_file` is needed."""


class BackupVerifySection(Section):
    """When stored backups are read again and compared with their hashes."""

    schedule: Cron
    """When to verify, in UTC."""

    share: Share = 0.1
    """Share of the objects that is read each time, besides all that are new since the last time."""


class BackupsSection(Section):
    """Where backups go, and what is backed up."""

    repository: Location | None = None
    """A folder, or s3://BUCKET/PREFIX; HOME/backups when not set, which a broken disk takes along."""

    s3: S3Section | None = None
    """How to reach S3, for a repository that is there; as the lake when not set."""

    encryption: BackupEncryptionSection | None = None
    """How what is stored is encrypted; not at all when not set."""

    compress: Switch = True
    """Whether files that shrink by it (not Parquet, as a rule) are stored with zstd."""

    follow: Literal["utilisation", "latency"] = "utilisation"
    """What the number of concurrent copies follows: below 60 % of disk time one more, above 80 % one less; or, for
    disks that do several things at once, the time that a request takes."""

    prune: Cron | None = None
    """When to remove what `keep` lets go, in UTC; only on demand when not set."""

    grace: Annotated[timedelta, duration(timedelta(hours=1))] = timedelta(days=1)
    """How long an object that no backup names stays; longer than any backup takes, at least 1h."""

    verify: BackupVerifySection | None = None
    """When stored backups are verified; only on demand when not set."""

    policies: tuple[BackupPolicySection, ...] = ()
    """What is backed up."""
