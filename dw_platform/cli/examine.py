"""One finding for each part of a platform; looking changes nothing but making its empty folders."""

import importlib.util
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from dw_platform.cli.up import PortInUseError, require_free_port
from dw_platform.config import BrokerSection, DatabaseSection
from dw_platform.foundation import PlatformError, format_bytes
from dw_platform.lake.jars import DELTA_JARS, S3_JARS, jars_present
from dw_platform.lake.java import find_java
from dw_platform.lake.location import TableLocation
from dw_platform.pipelines import Platform

# A Spark job spills about as much as it shuffles; below this, the first full disk is near.
_LOW_DISK_BYTES = 2 * 1024**3
_DIAL_LIMIT_S = 3.0
_BROKER_CLIENTS = {"kafka": "confluent_kafka", "pulsar": "pulsar", "nats": "nats", "rabbitmq": "pika"}
_PORTS = {
    "http": 80,
    "https": 443,
    "postgresql": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "mssql": 1433,
    "oracle": 1521,
    "kafka": 9092,
    "pulsar": 6650,
    "nats": 4222,
    "amqp": 5672,
    "rabbitmq": 5672,
    "sc": 15002,
}


class Health(StrEnum):
    """How one part of the machine is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One part, how it is, and what to do if it is not well."""

    part: str
    health: Health
    finding: str


def examine(platform: Platform) -> Iterator[Finding]:
    """Yield a finding for every part of the platform."""
    yield Finding("python", Health.OK, sys.version.split()[0])
    yield from _spark(platform)
    yield _tried("home", lambda: str(platform.home))
    yield _disk(platform.config.home)
    yield _lake(platform)
    yield _tried("store", lambda: _store(platform))
    yield _broker(platform.config.broker)
    yield from map(_database, platform.config.databases)
    yield _ui_port(platform)


def _tried(part: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(part, Health.OK, attempt())
    except PlatformError as error:
        return Finding(part, Health.FAILED, str(error))


def _spark(platform: Platform) -> Iterator[Finding]:
    if remote := platform.config.spark.remote:
        yield _dialled("spark", remote.get_secret_value(), f"Spark Connect at {remote}")
        return
    yield _tried("java", lambda: f"Java {(java := find_java()).major} from {java.origin}")
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
        return _dialled(
            "lake", endpoint.get_secret_value() if endpoint else aws, f"{settings.root} at {endpoint or aws}"
        )

    def writable() -> str:
        TableLocation(settings.root, settings.s3).prepare()
        return settings.root

    return _tried("lake", writable)


def _store(platform: Platform) -> str:
    platform.store.get("dw://internal/doctor")
    return str(platform.config.store.address(platform.home))


def _broker(broker: BrokerSection) -> Finding:
    client = _BROKER_CLIENTS.get(broker.kind)
    if client is None:
        return Finding("broker", Health.OK, "embedded")
    if importlib.util.find_spec(client) is None:
        return Finding("broker", Health.FAILED, f"{broker.kind} needs: pip install 'dw-platform[{broker.kind}]'")
    # The first of several servers is asked; its client finds the others.
    first = (broker.address.get_secret_value() if broker.address else "").split(",")[0]
    address = first if "://" in first else f"{broker.kind}://{first}"
    return _dialled("broker", address, f"{broker.kind} at {broker.address}")


def _database(database: DatabaseSection) -> Finding:
    part, url = f"database {database.name}", database.url.get_secret_value()
    if not url.startswith("sqlite"):
        return _dialled(part, url, str(database.url))
    path = Path(url.partition(":///")[2].partition("?")[0])
    if path.exists():
        return Finding(part, Health.OK, str(path))
    return Finding(part, Health.FAILED, f"{path} does not exist; correct its `url` in platform.yaml")


def _ui_port(platform: Platform) -> Finding:
    host, port = platform.config.dagster.host, platform.config.dagster.port
    try:
        require_free_port(host, port)
    except PortInUseError:
        return Finding("dagster ui", Health.WARNING, f"port {port} is in use: `dw up` runs, or choose another")
    except PlatformError as error:
        return Finding("dagster ui", Health.FAILED, str(error))
    return Finding("dagster ui", Health.OK, f"port {port} on {host} is free")


def _dialled(part: str, address: str, shown: str) -> Finding:
    """Open a connection and close it; whether the other side speaks the protocol is its client's business."""
    try:
        parts = urlsplit(address)
        port = parts.port or _PORTS.get(parts.scheme.partition("+")[0], 0)
    except ValueError:  # its text quotes the address
        return Finding(part, Health.FAILED, f"{shown} is no address; write special characters in it as %XX")
    return _connected(part, parts, port, shown)


def _connected(part: str, parts: SplitResult, port: int, shown: str) -> Finding:
    try:
        with socket.create_connection((parts.hostname or "localhost", port), timeout=_DIAL_LIMIT_S):
            return Finding(part, Health.OK, shown)
    except UnicodeError:  # a name that is none, such as one with two dots in a row
        return Finding(part, Health.FAILED, f"{shown} has no usable host name")
    except OSError as error:
        told = error.strerror or str(error)
        return Finding(part, Health.FAILED, f"{shown} does not answer: {told}; check that it runs there")
