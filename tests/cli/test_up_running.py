"""`dw up` with real Dagster programs: started together, stopped together."""

import contextlib
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import Dw, MakeFile
from tests.cli.processes import Running, started, survivors

pytestmark = [pytest.mark.server, pytest.mark.crash]


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture
def running(make_file: MakeFile, tmp_path: Path, port: int) -> Iterator[Running]:
    make_file()
    with started("up", "--port", str(port), folder=tmp_path) as up:
        yield up


def _service(running: Running, name: str) -> psutil.Process | None:
    """Return the started program; by its command line, because the kernel cuts names after 15 letters."""
    for child in psutil.Process(running.process.pid).children():
        with contextlib.suppress(psutil.Error):  # one that prepared something has just ended
            if any(part.endswith(f"/{name}") for part in child.cmdline()):
                return child
    return None


def test_the_ui_answers_until_a_polite_kill_stops_everything(running: Running, dw: Dw, port: int) -> None:
    running.wait_for(lambda: f"Dagster UI: http://127.0.0.1:{port}" in running.said)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=10) as answer:
        assert b"dagster_version" in answer.read()
    second = dw("up", "--port", str(port))
    assert second.code == 1
    assert f"runs already as process {running.process.pid}" in second.err
    family = running.family()
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 0
    assert survivors(family) == []


@pytest.mark.parametrize("victim", ["dagster-daemon", "dagster-webserver"])
def test_when_one_program_dies_the_other_is_stopped(running: Running, tmp_path: Path, victim: str) -> None:
    running.wait_for(lambda: _service(running, "dagster-daemon") is not None)  # the second of the two
    log = tmp_path / "home" / "logs" / f"{victim}.log"
    running.wait_for(lambda: log.exists() and log.read_text().strip() != "")
    family = running.family()
    service = _service(running, victim)
    assert service is not None
    service.kill()
    assert running.end() == 1
    assert survivors(family) == []
    assert f"error: {victim} was killed by signal 9; everything was stopped. Its log is {log}" in running.said
    assert log.read_text().splitlines()[0] in running.said
    assert "Traceback" not in running.said


def test_ctrl_c_while_it_starts_is_an_interruption(running: Running) -> None:
    running.wait_for(lambda: "starting dagster-webserver" in running.said and len(running.family()) >= 2)
    family = running.family()
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    assert survivors(family) == []
