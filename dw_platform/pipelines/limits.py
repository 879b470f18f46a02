"""The limits that `platform.yaml` gives to the subsystems; changes in the control store come on top of them."""

from typing import TypeVar

from dw_platform.bus import BusLimits
from dw_platform.config import PlatformConfig
from dw_platform.extract.limits import DatabaseLimits
from dw_platform.fileio.limits import IoLimits
from dw_platform.pipelines.backup_limits import BackupLimits
from dw_platform.pipelines.ingest_limits import IngestLimits
from dw_platform.pipelines.platform import Platform
from dw_platform.scaling import LimitCatalogue, LimitControl
from dw_platform.streaming.limits import StreamingLimits

L = TypeVar("L")


def bus_limits(config: PlatformConfig) -> BusLimits:
    """Return the limits with which the bus starts."""
    return BusLimits(
        max_subscribers_per_topic=config.bus.max_subscribers,
        max_message_queue_size=config.bus.max_queued,
        max_topics=config.bus.max_topics,
        partitions=config.bus.partitions,
        ring_size=config.bus.ring_size,
        thresholds=config.scaling.pressure(),
    )


def streaming_limits(config: PlatformConfig) -> StreamingLimits:
    """Return the limits with which a process that publishes and reads streams starts."""
    return StreamingLimits(thresholds=config.scaling.pressure())


def ingest_limits(config: PlatformConfig) -> IngestLimits:
    """Return the limits with which a process that follows streams starts."""
    return IngestLimits(thresholds=config.scaling.pressure())


def database_limits(config: PlatformConfig) -> DatabaseLimits:
    """Return the limits with which a process that asks databases starts."""
    return DatabaseLimits(thresholds=config.scaling.pressure())


def backup_limits(config: PlatformConfig) -> BackupLimits:
    """Return the limits with which backups start."""
    return BackupLimits(thresholds=config.scaling.pressure())


def io_limits(config: PlatformConfig) -> IoLimits:
    """Return the limits with which the file I/O of a process starts."""
    return IoLimits(thresholds=config.scaling.pressure())


def limit_catalogue(config: PlatformConfig) -> LimitCatalogue:
    """Return every subsystem that has limits, by the name that it has in every process."""
    return LimitCatalogue(
        {
            "backup": backup_limits(config),
            "bus": bus_limits(config),
            "database": database_limits(config),
            "fileio": io_limits(config),
            "ingest": ingest_limits(config),
            "streaming": streaming_limits(config),
        }
    )


def limit_control(platform: Platform) -> LimitControl:
    """Return what watches and steers the subsystems, wherever they run."""
    return LimitControl(platform.store, limit_catalogue(platform.config), clock=platform.clock)


def effective_database_limits(platform: Platform) -> DatabaseLimits:
    """Return the limits of databases that are in force now, changes of operators among them."""
    return _effective(platform, "database", DatabaseLimits)


def effective_backup_limits(platform: Platform) -> BackupLimits:
    """Return the limits of backups that are in force now."""
    return _effective(platform, "backup", BackupLimits)


def effective_io_limits(platform: Platform) -> IoLimits:
    """Return the limits of file I/O that are in force now."""
    return _effective(platform, "fileio", IoLimits)


def _effective(platform: Platform, subsystem: str, kind: type[L]) -> L:
    limits = limit_control(platform).effective(subsystem)
    assert isinstance(limits, kind)
    return limits
