"""`dw up`: the Dagster UI and its daemon, the gateway and the live ingest: started and stopped together."""

import contextlib
import errno
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dw_platform.cli.children import Child, stop_signals, stopping
from dw_platform.cli.dagster_home import (
    dagster_environment,
    note_storage,
    program,
    storage_is_ready,
    workspace_file,
)
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, progress, say
from dw_platform.cli.single import only_one
from dw_platform.config import PlatformConfig
from dw_platform.foundation import PermanentError, UserError
from dw_platform.pipelines import Platform

START_LIMIT_S = 120.0
_POLL_S = 0.25
# While a program of Dagster waits for its code server to start, the first request is lost.
_ASK_AGAIN_S = 5.0
# Loopback needs no proxy, whatever the environment says; and a certificate is for whoever calls by its name.
_TRUSTING = ssl.create_default_context()
_TRUSTING.check_hostname = False
_TRUSTING.verify_mode = ssl.CERT_NONE
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_TRUSTING))


class PortInUseError(UserError):
    """Something else listens where a server should."""

    def __init__(self, host: str, port: int, server: str = "dagster") -> None:
        self.host, self.port, self.server = host, port, server
        advice = f"set `{server}.port` in platform.yaml" + (", or pass --port" if server == "dagster" else "")
        super().__init__(
            f"Port {port} on {host} is in use, so {_SERVERS[server]} cannot start there. Stop what uses it, {advice}."
        )


class AddressUnusableError(UserError):
    """A server cannot listen at the address at all."""

    def __init__(self, host: str, port: int, cause: str, server: str = "dagster") -> None:
        self.host, self.port, self.cause, self.server = host, port, cause, server
        super().__init__(
            f"{_SERVERS[server][0].upper()}{_SERVERS[server][1:]} cannot listen at {host}, port {port}: {cause}. Set "
            f"`{server}.host` and `{server}.port` in platform.yaml to an address of this machine and a port above 1023."
        )


class StartTooSlowError(PermanentError):
    """A server runs but does not answer."""

    def __init__(self, server: str, url: str, limit_s: float, log: Path, tail: str) -> None:
        self.server, self.url, self.limit_s, self.log = server, url, limit_s, log
        super().__init__(
            f"{server} did not answer at {url} within {limit_s:g} s; everything was stopped. Its log is {log}, "
            f"and ends with:\n{tail}"
        )


_SERVERS = {"dagster": "the Dagster UI", "gateway": "the gateway"}


@dataclass(frozen=True, slots=True)
class Service:
    """One program of a running platform."""

    name: str
    command: tuple[str, ...]
    answers_at: str | None = None
    """The address that answers once it is up; None: it has none."""

    shown: str = ""
    """What people are told when it is up."""


def up(
    config: ConfigOption = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the UI; `dagster.port` of the file by default."),
    ] = None,
    *,
    ingest: Annotated[
        bool,
        typer.Option("--ingest/--no-ingest", help="Whether streams are ingested all the time, in a JVM of its own."),
    ] = True,
) -> None:
    """Start the Dagster UI and daemon, the gateway and the live ingest; Ctrl-C stops all of them."""
    with open_platform(config) as platform, only_one("up", platform.home):
        section = platform.config.dagster
        require_free_port(section.host, port or section.port)
        if platform.config.gateway.enabled:
            require_free_port(platform.config.gateway.host, platform.config.gateway.port, "gateway")
        _ = platform.store  # a store that is down is said now, not by the first sensor
        _serve(platform, services(platform, port or section.port, ingest=ingest))


def services(platform: Platform, port: int, *, ingest: bool) -> list[Service]:
    """Return the programs that the platform's file asks for."""
    config, workspace = platform.config, str(workspace_file(platform))
    url = reachable_url(config.dagster.host, port)
    webserver = (program("dagster-webserver"), "-w", workspace, "-h", config.dagster.host, "-p", str(port))
    found = [
        Service("dagster-webserver", webserver, f"{url}/server_info", f"Dagster UI: {url}"),
        Service("dagster-daemon", (program("dagster-daemon"), "run", "-w", workspace)),
    ]
    if config.gateway.enabled:
        found.append(_gateway(config))
    if config.streams and ingest:
        found.append(Service("ingest", (program("dw"), "ingest", "--follow", "--config", str(config.source))))
    return found


def _gateway(config: PlatformConfig) -> Service:
    url = reachable_url(config.gateway.host, config.gateway.port, secure=config.gateway.tls is not None)
    command = (program("dw"), "gateway", "--config", str(config.source))
    return Service("gateway", command, f"{url}/health", f"Gateway:    {url}")


def _serve(platform: Platform, wanted: Sequence[Service]) -> None:
    logs = platform.home / "logs"
    logs.mkdir(exist_ok=True)
    environment, folder = dagster_environment(platform), platform.config.source.parent
    children: list[Child] = []
    with stop_signals() as stop, stopping(children, again_s=_ASK_AGAIN_S):
        _prepare_storage(platform, children, stop)
        progress(f"starting {', '.join(service.name for service in wanted)}; logs in {logs}")
        for service in wanted:
            log = logs / f"{service.name}.log"
            children.append(Child(service.name, service.command, environment=environment, folder=folder, log=log))
        for service, child in zip(wanted, children, strict=True):
            if service.answers_at:
                if not wait_until_up(service.answers_at, children, stop):
                    raise StartTooSlowError(child.name, service.answers_at, START_LIMIT_S, child.log, child.tail())
                say(service.shown)
        say("Ctrl-C stops everything.")
        while not stop.wait(_POLL_S):
            _require_alive(children)
        progress("stopping everything")


def _prepare_storage(platform: Platform, children: list[Child], stop: threading.Event) -> None:
    """Let one program make or upgrade Dagster's tables: two that start at once on a new home would both try."""
    environment, folder = dagster_environment(platform), platform.config.source.parent
    if storage_is_ready(platform):
        return
    progress("preparing Dagster's storage")
    log = platform.home / "logs" / "dagster-storage.log"
    command = [program("dagster"), "instance", "migrate"]
    child = Child("dagster instance migrate", command, environment=environment, folder=folder, log=log)
    children.append(child)
    while child.process.poll() is None:
        if stop.wait(_POLL_S):
            raise KeyboardInterrupt
    if child.process.returncode != 0:
        child.require_alive()
    children.remove(child)
    note_storage(platform)


def require_free_port(host: str, port: int, server: str = "dagster") -> None:
    """Raise if something listens on the port already, or nothing can."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(host, port, server) from error
        raise AddressUnusableError(host, port, error.strerror or str(error), server) from error


def reachable_url(host: str, port: int, *, secure: bool = False) -> str:
    """Return the address for this machine's browser; a server that listens everywhere also does on loopback."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))  # noqa: S104  compared, not bound
    scheme = "https" if secure else "http"
    return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"


def wait_until_up(url: str, children: Sequence[Child], stop: threading.Event) -> bool:
    """Return whether the address answers before time runs out; raise if a program ends first or `stop` is set."""
    deadline = time.monotonic() + START_LIMIT_S
    while not stop.wait(_POLL_S):
        _require_alive(children)
        with contextlib.suppress(OSError), _DIRECT.open(url, timeout=5):
            return True
        if time.monotonic() > deadline:
            return False
    raise KeyboardInterrupt


def _require_alive(children: Sequence[Child]) -> None:
    for child in children:
        child.require_alive()
