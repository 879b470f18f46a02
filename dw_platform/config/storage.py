"""Sections `lake`, `store` and `spark`: where data and state live and what the work runs on."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from dw_platform.config.secrets import Options, SecretUrl
from dw_platform.config.section import Section
from dw_platform.config.values import (
    Column,
    ConnectUrl,
    Cron,
    Group,
    HttpUrl,
    Location,
    Owner,
    Password,
    Positive,
    StoreUrl,
    Switch,
    TableName,
    Text,
    duration,
    size,
    store_address,
)
from dw_platform.config.written import whole
from dw_platform.lake.references import table_references
from dw_platform.lake.settings import LakeSettings, MaintenancePolicy, S3Settings, SparkSettings


class GenerateSection(Section):
    """Demo data that the platform makes up."""

    kind: Literal["orders"]
    """What to make up: `orders` of a shop, with customers, countries, amounts and times."""

    rows: Positive = 10_000
    """How many rows."""

    days: Positive = 30
    """Over how many days, up to today, the rows are spread."""

    seed: Annotated[int, whole(0)] = 7
    """The same seed makes the same rows."""


class TableSection(Section):
    """A table that the platform itself makes, either generated or derived from other tables."""

    name: TableName
    """The table, as schema.table."""

    description: Text = ""
    """What one row is and what the table is for; shown in Dagster."""

    owners: tuple[Owner, ...] = ()
    """Who answers questions about it: e-mail addresses, or teams as team:NAME."""

    group: Group | None = None
    """Group in Dagster's graph; the table's schema when not set."""

    schedule: Cron | None = None
    """When to make it anew, in UTC; only on demand and after its inputs when not set."""

    partition_by: tuple[Column, ...] = ()
    """Columns whose values become folders; few values each, such as a date."""

    generate: GenerateSection | None = None
    """Make the rows up. Exactly one of `generate` and `sql` is needed."""

    sql: Text | None = None
    """Spark SQL that makes the rows; inputs are written in braces: SELECT ... FROM {shop.orders}."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tables it is derived from."""
        return tuple(table_references(self.sql or ""))

    @property
    def group_name(self) -> str:
        """The group it is shown in."""
        return self.group or self.name.partition(".")[0]


class S3Section(Section):
    """How to reach an S3 server; what is not set comes from the environment, as AWS tools have it."""

    endpoint: HttpUrl | None = None
    """Address of the server; AWS when not set."""

    region: Text = "us-east-1"
    """Region the bucket is in."""

    access_key: Password | None = None
    """Access key; write it as ${NAME}."""

    secret_key: Password | None = None
    """Secret key; write it as ${NAME}."""

    path_style: Switch = True
    """Whether the bucket is part of the path, as servers other than AWS expect."""

    def settings(self) -> S3Settings:
        """Return what the lake needs."""
        return S3Settings(
            endpoint=_plain(self.endpoint),
            region=self.region,
            access_key=self.access_key.get_secret_value() if self.access_key else None,
            secret_key=self.secret_key.get_secret_value() if self.secret_key else None,
            path_style=self.path_style,
        )


class MaintenanceSection(Section):
    """How tables are kept small and fast."""

    schedule: Cron | None = None
    """When to join small files and remove expired ones, in UTC; only on demand when not set."""

    target_file_size: Annotated[int, size(1024**2)] = 128 * 1024**2
    """Files well below this size are joined; at least 1MiB."""

    retention: Annotated[timedelta, duration(timedelta(hours=1))] = timedelta(days=7)
    """How long removed files stay for readers of older versions; at least 1h."""

    def policy(self) -> MaintenancePolicy:
        """Return what the lake needs."""
        return MaintenancePolicy(target_file_bytes=self.target_file_size, retention=self.retention)


class LakeSection(Section):
    """Where tables live, and the tables that the platform itself makes."""

    root: Location | None = None
    """A folder, or s3://BUCKET/PREFIX; HOME/lake when not set. shop.orders is at ROOT/shop/orders."""

    s3: S3Section = S3Section()
    """How to reach S3, for a root that is there."""

    maintenance: MaintenanceSection = MaintenanceSection()
    """How tables are kept small and fast."""

    tables: tuple[TableSection, ...] = ()
    """Tables that the platform itself makes."""

    def settings(self, home: Path) -> LakeSettings:
        """Return what the lake needs, with the default root below `home`."""
        return LakeSettings(root=self.root or str(home / "lake"), s3=self.s3.settings())


class StoreSection(Section):
    """Where state lasts: limits, checkpoints, tokens, decisions."""

    url: StoreUrl | None = None
    """memory://, file://FOLDER, sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/DATABASE; a SQLite file in
    HOME when not set. Several machines need PostgreSQL."""

    def address(self, home: Path) -> SecretUrl:
        """Return the address, with the default file below `home`."""
        return self.url or store_address(f"sqlite:///{home / 'control.db'}", home)


class SparkSection(Section):
    """What the work runs on."""

    master: Text = "local[*]"
    """local[*] for this machine, or the cluster's address such as spark://HOST:7077."""

    remote: ConnectUrl | None = None
    """Address of a Spark Connect server, such as sc://HOST:15002; wins over master."""

    driver_memory: Annotated[int, size(512 * 1024**2)] = 1024**3
    """Heap of the driver's JVM, at least 512MiB. Rows stay outside it, so a gigabyte serves large tables."""

    conf: Options = Options()
    """Further Spark settings by Spark's own names; they win over the platform's."""

    def settings(self, home: Path, app_name: str = "dw_platform") -> SparkSettings:
        """Return what the lake needs, with Spark's own files below `home`."""
        return SparkSettings(
            app_name=app_name,
            master=self.master,
            remote=_plain(self.remote),
            driver_memory_mib=self.driver_memory // (1024 * 1024),
            scratch=home / "spark",
            conf=dict(self.conf),
        )


def _plain(secret: SecretUrl | None) -> str | None:
    return secret.get_secret_value() if secret else None
