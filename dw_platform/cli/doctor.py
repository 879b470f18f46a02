"""`dw doctor`: what works on this machine, what does not, and what to do about it."""

import importlib.util
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import typer
from rich.text import Text

from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table
from dw_platform.cli.up import PortInUseError, require_free_port
from dw_platform.foundation import PlatformError, format_bytes
from dw_platform.lake.jars import DELTA_JARS, S3_JARS, jars_present
from dw_platform.lake.java import find_java
from dw_platform.pipelines import Platform

# A Spark job spills about as much as it shuffles; below this, the first full disk is near.
_LOW_DISK_BYTES = 2 * 1024**3
_DIAL_LIMIT_S = 3.0
_BROKER_CLIENTS = {"kafka": "confluent_kafka", "pulsar": "pulsar", "nats": "nats", "rabbitmq": "pika"}


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


_COLOURS = {Health.OK: "green", Health.WARNING: "yellow", Health.FAILED: "red"}


def doctor(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Check Java, jars, disk, store, brokers, databases and ports; exit code 1 when something cannot work."""
    with Platform.open(config) as platform:
        findings = list(examine(platform))
    if json:
        emit_json([asdict(finding) for finding in findings])
    else:
        rows = [(finding.part, Text(finding.health, _COLOURS[finding.health]), finding.finding) for finding in findings]
        emit_table("", ["part", "state", "finding"], rows)
    if any(finding.health is Health.FAILED for finding in findings):
        raise typer.Exit(1)


def examine(platform: Platform) -> Iterator[Finding]:
    """Yield a finding for every part of the platform."""
    yield Finding("python", Health.OK, sys.version.split()[0])
    yield _tried("java", lambda: f"Java {(java := find_java()).major} from {java.origin}")
    yield _jars(platform)
    yield _tried("home", lambda: str(platform.home))
    yield _disk(platform)
    yield _lake(platform)
    yield _tried("store", lambda: _store(platform))
    yield _broker(platform)
    yield from (_database(database.name, database.url.get_secret_value()) for database in platform.config.databases)
    yield _ui_port(platform)


def _tried(part: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(part, Health.OK, attempt())
    except PlatformError as error:
        return Finding(part, Health.FAILED, str(error))


def _jars(platform: Platform) -> Finding:
    coordinates = DELTA_JARS + S3_JARS if platform.config.lake_settings.is_s3 else DELTA_JARS
    if folder := jars_present(coordinates):
        return Finding("spark jars", Health.OK, f"in {folder}")
    return Finding("spark jars", Health.WARNING, "not fetched yet; the first Spark session fetches them (13 MB)")


def _disk(platform: Platform) -> Finding:
    root = platform.config.home
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    health = Health.OK if free >= _LOW_DISK_BYTES else Health.WARNING
    return Finding("disk", health, f"{format_bytes(free)} free at {existing}")


def _lake(platform: Platform) -> Finding:
    settings = platform.config.lake_settings
    if settings.is_s3:
        address = settings.s3.endpoint or f"https://s3.{settings.s3.region}.amazonaws.com"
        return _dialled("lake", address, f"{settings.root} through {address}")

    def writable() -> str:
        platform.lake.location("probe").prepare()
        Path(platform.lake.location("probe").uri).rmdir()
        return settings.root

    return _tried("lake", writable)


def _store(platform: Platform) -> str:
    platform.store.get("dw://internal/doctor")
    return str(platform.config.store.address(platform.home))


def _broker(platform: Platform) -> Finding:
    broker = platform.config.broker
    client = _BROKER_CLIENTS.get(broker.kind)
    if client is None:
        return Finding("broker", Health.OK, "embedded")
    if importlib.util.find_spec(client) is None:
        return Finding("broker", Health.FAILED, f"{broker.kind} needs pip install 'dw-platform[{broker.kind}]'")
    address = broker.address.get_secret_value() if broker.address else ""
    # The first of several servers is asked; its client finds the others.
    return _dialled("broker", address.split(",")[0], f"{broker.kind} at {broker.address}")


def _database(name: str, url: str) -> Finding:
    part = f"database {name}"
    parts = urlsplit(url)
    if parts.scheme.startswith("sqlite"):
        path = Path(parts.path.removeprefix("/"))
        health = Health.OK if path.exists() else Health.FAILED
        return Finding(part, health, f"{path}" if path.exists() else f"{path} does not exist")
    port = parts.port or {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}.get(parts.scheme.split("+")[0], 0)
    return _dialled(part, f"tcp://{parts.hostname}:{port}", f"{parts.scheme}://{parts.hostname}:{port}")


def _ui_port(platform: Platform) -> Finding:
    host, port = platform.config.dagster.host, platform.config.dagster.port
    try:
        require_free_port(host, port)
    except PortInUseError:
        return Finding("dagster ui", Health.WARNING, f"port {port} is in use: it runs already, or choose another")
    return Finding("dagster ui", Health.OK, f"port {port} on {host} is free")


def _dialled(part: str, address: str, shown: str) -> Finding:
    """Open a connection and close it; whether the other side speaks the protocol is its client's business."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_DIAL_LIMIT_S):
            return Finding(part, Health.OK, shown)
    except OSError as error:
        return Finding(part, Health.FAILED, f"{shown} does not answer: {error.strerror or error}")
