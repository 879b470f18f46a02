"""The whole platform file as one frozen value."""

from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr

from dw_platform.config.backups import BackupsSection
from dw_platform.config.checks import QualitySection
from dw_platform.config.operations import (
    BusSection,
    DagsterSection,
    FabricSection,
    GatewaySection,
    ScalingSection,
)
from dw_platform.config.section import Section
from dw_platform.config.sources import BrokerSection, DatabaseSection, StreamSection
from dw_platform.config.storage import LakeSection, SparkSection, StoreSection
from dw_platform.config.values import Folder, Name
from dw_platform.lake.settings import LakeSettings, SparkSettings


class PlatformConfig(Section):
    """A data platform: what it ingests, extracts, makes, checks and backs up. Built by `load_config`."""

    name: Name
    """Name of the platform, shown in Dagster and in Spark."""

    home: Folder = Field(default=Path(".dw"), validate_default=True)
    """Folder for everything the platform keeps itself: state, logs, and by default the lake and backups."""

    lake: LakeSection = LakeSection()
    """Where tables live, and the tables that the platform itself makes."""

    store: StoreSection = StoreSection()
    """Where state lasts: limits, checkpoints, tokens, decisions."""

    spark: SparkSection = SparkSection()
    """What the work runs on."""

    broker: BrokerSection = BrokerSection()
    """What keeps messages between producers and tables."""

    streams: tuple[StreamSection, ...] = ()
    """Messages that end up in tables."""

    databases: tuple[DatabaseSection, ...] = ()
    """Operational databases that are copied into tables."""

    backups: BackupsSection = BackupsSection()
    """Where backups go, and what is backed up."""

    quality: tuple[QualitySection, ...] = ()
    """What should be true of tables."""

    scaling: ScalingSection = ScalingSection()
    """How the platform reacts to load."""

    gateway: GatewaySection = GatewaySection()
    """The HTTP front door for publishing events."""

    bus: BusSection = BusSection()
    """The message bus inside the gateway's process."""

    dagster: DagsterSection = DagsterSection()
    """Dagster's web interface."""

    fabric: FabricSection = FabricSection()
    """The machines that work together."""

    _source: Path = PrivateAttr(default=Path("platform.yaml"))

    @property
    def source(self) -> Path:
        """The file it was read from."""
        return self._source

    @property
    def spark_settings(self) -> SparkSettings:
        """What the Spark session needs."""
        return self.spark.settings(self.home, self.name)

    @property
    def lake_settings(self) -> LakeSettings:
        """Where tables are."""
        return self.lake.settings(self.home)

    @property
    def store_url(self) -> str:
        """Address of the control store, with its password: for opening it, not for showing it."""
        return self.store.address(self.home).get_secret_value()

    @property
    def backup_repository(self) -> str:
        """Where backups go."""
        return self.backups.repository or str(self.home / "backups")

    @property
    def log_directory(self) -> Path:
        """Folder of the embedded log."""
        return self.home / "log"

    def stream(self, name: str) -> StreamSection | None:
        """Return the stream of that name, if there is one."""
        return next((entry for entry in self.streams if entry.name == name), None)

    def database(self, name: str) -> DatabaseSection | None:
        """Return the database of that name, if there is one."""
        return next((entry for entry in self.databases if entry.name == name), None)

    def broker_of(self, stream: StreamSection) -> BrokerSection:
        """Return the broker that keeps the stream's topic."""
        return stream.broker or self.broker

    def quality_of(self, table: str) -> QualitySection | None:
        """Return the checks of `table`, if it has any."""
        return next((entry for entry in self.quality if entry.table == table), None)

    def describe(self) -> dict[str, Any]:
        """Return the platform with every default filled in and every secret masked, for people and for JSON."""
        shown = self.model_dump(mode="json", exclude_none=True)
        shown["lake"]["root"] = self.lake_settings.root
        shown["store"]["url"] = str(self.store.address(self.home))
        shown["backups"]["repository"] = self.backup_repository
        return shown
