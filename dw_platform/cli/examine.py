"""One finding for each part of a platform; looking changes nothing but making its empty folders."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from dw_platform.cli.examine_streams import examine_streams
from dw_platform.cli.findings import Finding, Health, dialled, tried
from dw_platform.cli.up import PortInUseError, require_free_port
from dw_platform.foundation import PlatformError, format_bytes
from dw_platform.lake.jars import DELTA_JARS, S3_JARS, jars_present
from dw_platform.lake.java import find_java
from dw_platform.lake.location import TableLocation
from dw_platform.pipelines import Platform

# A Spark job spills about as much as it shuffles; below this, the first full disk is near.
_LOW_DISK_BYTES = 2 * 1024**3


def examine(platform: Platform) -> Iterator[Finding]:
    """Yield a finding for every part of the platform."""
    yield Finding("python", Health.OK, sys.version.split()[0])
    yield from _spark(platform)
    yield tried("home", lambda: str(platform.home))
    yield _disk(platform.config.home)
    yield _lake(platform)
    yield tried("store", lambda: _store(platform))
    yield from examine_streams(platform)
    yield from _databases(platform)
    yield _ui_port(platform)


def _spark(platform: Platform) -> Iterator[Finding]:
    if remote := platform.config.spark.remote:
        yield dialled("spark", remote.get_secret_value(), f"Spark Connect at {remote}")
        return
    yield tried("java", lambda: f"Java {(java := find_java()).major} from {java.origin}")
    coordinates = DELTA_JARS + S3_JARS if platform.config.lake_settings.is_s3 else DELTA_JARS
    if folder := jars_present(coordinates):
        yield Finding("spark jars", Health.OK, f"in {folder}")
    else:
        yield Finding("spark jars", Health.WARNING, "not fetched yet; the first Spark session does it")


def _disk(home: Path) -> Finding:
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    health = Health.OK if free >= _LOW_DISK_BYTES else Health.WARNING
    return Finding("disk", health, f"{format_bytes(free)} free at {existing}")


def _lake(platform: Platform) -> Finding:
    settings = platform.config.lake_settings
    if settings.is_s3:
        endpoint = platform.config.lake.s3.endpoint
        aws = f"https://s3.{settings.s3.region}.amazonaws.com"
        return dialled(
            "lake", endpoint.get_secret_value() if endpoint else aws, f"{settings.root} at {endpoint or aws}"
        )

    def writable() -> str:
        TableLocation(settings.root, settings.s3).prepare()
        return settings.root

    return tried("lake", writable)


def _store(platform: Platform) -> str:
    platform.store.get("dw://internal/doctor")
    return str(platform.config.store.address(platform.home))


def _databases(platform: Platform) -> Iterator[Finding]:
    # Here, because SQLAlchemy comes with it, which the other commands should not wait for.
    from dw_platform.pipelines.health import ask_databases

    addresses = {database.name: database.url for database in platform.config.databases}
    for result in ask_databases(platform):
        health = Health.OK if result.healthy else Health.FAILED
        yield Finding(f"database {result.database}", health, f"{addresses[result.database]} {result.told}")


def _ui_port(platform: Platform) -> Finding:
    host, port = platform.config.dagster.host, platform.config.dagster.port
    try:
        require_free_port(host, port)
    except PortInUseError:
        return Finding("dagster ui", Health.WARNING, f"port {port} is in use: `dw up` runs, or choose another")
    except PlatformError as error:
        return Finding("dagster ui", Health.FAILED, str(error))
    return Finding("dagster ui", Health.OK, f"port {port} on {host} is free")
