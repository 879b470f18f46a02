"""`dw up`: the Dagster UI and its daemon, started together, stopped together by one Ctrl-C."""

import contextlib
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dw_platform.cli.dagster_home import dagster_environment, dagster_program, workspace_file
from dw_platform.cli.output import ConfigOption, progress, say
from dw_platform.foundation import PermanentError, UserError
from dw_platform.pipelines import Platform

START_LIMIT_S = 120.0
STOP_LIMIT_S = 20.0
_POLL_S = 0.25


class PortInUseError(UserError):
    """Something else listens where the UI should."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        super().__init__(
            f"Port {port} on {host} is in use, so the Dagster UI cannot start there. Stop what uses it, set "
            f"`dagster.port` in platform.yaml, or pass --port."
        )


class ServiceDiedError(PermanentError):
    """One of the started programs ended by itself."""

    def __init__(self, name: str, code: int | None, log: Path, tail: str) -> None:
        self.name, self.code, self.log = name, code, log
        super().__init__(f"{name} ended with code {code}; its log is {log}. The end of it:\n{tail}")


def up(
    config: ConfigOption = None,
    port: Annotated[int | None, typer.Option(help="Port of the UI; `dagster.port` of the file by default.")] = None,
) -> None:
    """Start the Dagster UI and the daemon that runs schedules and sensors; Ctrl-C stops both."""
    with Platform.open(config) as platform:
        host, chosen = platform.config.dagster.host, port or platform.config.dagster.port
        require_free_port(host, chosen)
        _ = platform.store  # a store that is down is said now, not by the first sensor
        environment, workspace = dagster_environment(platform), str(workspace_file(platform))
        logs = platform.home / "logs"
        logs.mkdir(exist_ok=True)
        folder = platform.config.source.parent
    commands = {
        "dagster-webserver": ["dagster-webserver", "-w", workspace, "-h", host, "-p", str(chosen)],
        "dagster-daemon": ["dagster-daemon", "run", "-w", workspace],
    }
    stop = threading.Event()
    with _signals(stop), _services(commands, environment, logs, folder) as services:
        progress(f"starting the Dagster UI and daemon; logs in {logs}")
        wait_until_up(f"http://{host}:{chosen}/server_info", services, stop)
        if not stop.is_set():
            say(f"Dagster UI: http://{host}:{chosen}   (Ctrl-C stops everything)")
        while not stop.wait(_POLL_S):
            _require_alive(services)
        progress("stopping")


def require_free_port(host: str, port: int) -> None:
    """Raise if something listens on the port already."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortInUseError(host, port) from error


class Service:
    """A started program with its log."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path
    ) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            # A session of its own: the terminal's Ctrl-C reaches only `dw`, which then stops everything in order.
            self.process = subprocess.Popen(
                [dagster_program(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


@contextlib.contextmanager
def _services(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], logs: Path, folder: Path
) -> Iterator[list[Service]]:
    started: list[Service] = []
    try:
        for name, command in commands.items():
            started.append(Service(name, command, environment, logs / f"{name}.log", folder))
        yield started
    finally:
        for service in started:
            service.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + STOP_LIMIT_S
        for service in started:
            try:
                service.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                service.process.kill()
                service.process.wait()


def wait_until_up(url: str, services: Sequence[Service], stop: threading.Event) -> None:
    """Wait until `url` answers, a service dies or `stop` is set."""
    deadline = time.monotonic() + START_LIMIT_S
    while not stop.wait(_POLL_S):
        _require_alive(services)
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5):  # noqa: S310  our own loopback address
            return
        if time.monotonic() > deadline:
            slow = services[0]
            raise ServiceDiedError(slow.name, None, slow.log, slow.tail())


def _require_alive(services: Sequence[Service]) -> None:
    for service in services:
        if service.process.poll() is not None:
            raise ServiceDiedError(service.name, service.process.returncode, service.log, service.tail())


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Turn Ctrl-C and a polite kill into a set event while the services run."""
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
