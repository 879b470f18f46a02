"""`dw up`: the Dagster UI and its daemon, started together, stopped together by one Ctrl-C."""

import contextlib
import errno
import socket
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dw_platform.cli.children import Child, stop_signals, stopping
from dw_platform.cli.dagster_home import dagster_environment, dagster_program, workspace_file
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, progress, say
from dw_platform.cli.single import only_one
from dw_platform.foundation import PermanentError, UserError
from dw_platform.pipelines import Platform

START_LIMIT_S = 120.0
_POLL_S = 0.25
# While a program of Dagster waits for its code server to start, the first request is lost.
_ASK_AGAIN_S = 5.0
# Loopback needs no proxy, whatever the environment says.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class PortInUseError(UserError):
    """Something else listens where the UI should."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        super().__init__(
            f"Port {port} on {host} is in use, so the Dagster UI cannot start there. Stop what uses it, set "
            "`dagster.port` in platform.yaml, or pass --port."
        )


class AddressUnusableError(UserError):
    """The UI cannot listen at the address at all."""

    def __init__(self, host: str, port: int, cause: str) -> None:
        self.host, self.port, self.cause = host, port, cause
        super().__init__(
            f"The Dagster UI cannot listen at {host}, port {port}: {cause}. Set `dagster.host` and `dagster.port` in "
            "platform.yaml to an address of this machine and a port above 1023."
        )


class StartTooSlowError(PermanentError):
    """The UI runs but does not answer."""

    def __init__(self, url: str, limit_s: float, log: Path, tail: str) -> None:
        self.url, self.limit_s, self.log = url, limit_s, log
        super().__init__(
            f"The Dagster UI did not answer at {url} within {limit_s:g} s; everything was stopped. Its log is {log}, "
            f"and ends with:\n{tail}"
        )


def up(
    config: ConfigOption = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the UI; `dagster.port` of the file by default."),
    ] = None,
) -> None:
    """Start the Dagster UI and the daemon that runs schedules and sensors; Ctrl-C stops both."""
    with open_platform(config) as platform, only_one("up", platform.home):
        host, chosen = platform.config.dagster.host, port or platform.config.dagster.port
        require_free_port(host, chosen)
        _ = platform.store  # a store that is down is said now, not by the first sensor
        _serve(platform, host, chosen)


def _serve(platform: Platform, host: str, port: int) -> None:
    logs = platform.home / "logs"
    logs.mkdir(exist_ok=True)
    workspace = str(workspace_file(platform))
    environment, folder = dagster_environment(platform), platform.config.source.parent
    commands = {
        "dagster-webserver": ["-w", workspace, "-h", host, "-p", str(port)],
        "dagster-daemon": ["run", "-w", workspace],
    }
    children: list[Child] = []
    with stop_signals() as stop, stopping(children, again_s=_ASK_AGAIN_S):
        progress(f"starting the Dagster UI and daemon; logs in {logs}")
        for name, options in commands.items():
            command = [dagster_program(name), *options]
            children.append(Child(name, command, environment=environment, folder=folder, log=logs / f"{name}.log"))
        url = reachable_url(host, port)
        wait_until_up(url, children, stop)
        say(f"Dagster UI: {url}   (Ctrl-C stops everything)")
        while not stop.wait(_POLL_S):
            _require_alive(children)
        progress("stopping the Dagster UI and daemon")


def require_free_port(host: str, port: int) -> None:
    """Raise if something listens on the port already, or nothing can."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(host, port) from error
        raise AddressUnusableError(host, port, error.strerror or str(error)) from error


def reachable_url(host: str, port: int) -> str:
    """Return the address for this machine's browser; a server that listens everywhere also does on loopback."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))  # noqa: S104  compared, not bound
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def wait_until_up(url: str, children: Sequence[Child], stop: threading.Event) -> None:
    """Wait until the UI answers; raise if a program ends before that, time runs out or `stop` is set."""
    deadline = time.monotonic() + START_LIMIT_S
    while not stop.wait(_POLL_S):
        _require_alive(children)
        with contextlib.suppress(OSError), _DIRECT.open(f"{url}/server_info", timeout=5):
            return
        if time.monotonic() > deadline:
            raise StartTooSlowError(url, START_LIMIT_S, children[0].log, children[0].tail())
    raise KeyboardInterrupt


def _require_alive(children: Sequence[Child]) -> None:
    for child in children:
        child.require_alive()
