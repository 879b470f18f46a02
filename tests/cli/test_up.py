"""`dw up` before anything is started: ports, addresses, and one a home."""

import http.server
import socket
import threading
from pathlib import Path

import pytest

from dw_platform.cli import up
from dw_platform.cli.dagster_home import dagster_environment, note_storage, storage_is_ready
from dw_platform.cli.up import (
    AddressUnusableError,
    PortInUseError,
    reachable_url,
    require_free_port,
    services,
    wait_until_up,
)
from dw_platform.pipelines import Platform
from dw_platform.store.file_lock import file_lock
from tests.cli.conftest import Dw, MakeFile


def test_a_port_in_use_is_a_users_mistake_with_three_ways_out(dw: Dw, make_file: MakeFile) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        make_file(f"dagster: {{port: {port}}}")
        code, out, err = dw("up")
        assert (code, out) == (2, "")
        assert f"Port {port} on 127.0.0.1 is in use" in err
        assert "set `dagster.port` in platform.yaml, or pass --port" in err
        assert dw("up", "--port", str(port)).code == 2


def test_an_address_of_another_machine_is_no_busy_port() -> None:
    with pytest.raises(AddressUnusableError) as caught:
        require_free_port("203.0.113.7", 3000)
    assert (caught.value.host, caught.value.port) == ("203.0.113.7", 3000)


def test_a_host_that_has_no_address_is_explained() -> None:
    with pytest.raises(AddressUnusableError, match="an address of this machine"):
        require_free_port("no-such-host.invalid", 3000)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_free_port_is_free_and_stays_so(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        with pytest.raises(PortInUseError):
            require_free_port(host, port)
    require_free_port(host, port)
    require_free_port(host, port)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:3000"),
        ("0.0.0.0", "http://127.0.0.1:3000"),
        ("::", "http://[::1]:3000"),
        ("[::1]", "http://[::1]:3000"),
        ("box.example", "http://box.example:3000"),
    ],
)
def test_the_address_shown_is_one_that_a_browser_can_open(host: str, url: str) -> None:
    assert reachable_url(host, 3000) == url


def test_one_ui_a_home_at_a_time(dw: Dw, make_file: MakeFile, tmp_path: Path) -> None:
    make_file()
    (tmp_path / "home").mkdir()
    with file_lock(tmp_path / "home" / "up.lock", shared=False, timeout_s=0):
        code, _, err = dw("up")
    assert code == 1
    assert "`dw up` runs already on" in err


def test_waiting_asks_directly_whatever_proxy_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        server.RequestHandlerClass = _Answers
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert wait_until_up(f"http://127.0.0.1:{server.server_port}/", [], threading.Event())
        server.shutdown()


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_an_interruption_while_it_starts_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "_POLL_S", 0.01)
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        wait_until_up("http://127.0.0.1:1", [], stop)


def names(file: Path, *, ingest: bool = True) -> list[str]:
    with Platform.open(file, environ={}) as platform:
        return [service.name for service in services(platform, 3000, ingest=ingest)]


def test_a_platform_without_streams_is_the_ui_and_its_daemon(make_file: MakeFile) -> None:
    assert names(make_file()) == ["dagster-webserver", "dagster-daemon"]


def test_streams_are_ingested_all_the_time_unless_told_otherwise(make_file: MakeFile) -> None:
    file = make_file("streams: [{name: clicks, table: web.clicks}]")
    assert names(file) == ["dagster-webserver", "dagster-daemon", "ingest"]
    assert names(file, ingest=False) == ["dagster-webserver", "dagster-daemon"]


def test_the_gateway_starts_where_the_file_says_so_and_its_port_is_checked_first(dw: Dw, make_file: MakeFile) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        file = make_file(f"gateway: {{enabled: true, port: {port}}}")
        assert names(file) == ["dagster-webserver", "dagster-daemon", "gateway"]
        with socket.create_server(("127.0.0.1", 0)) as probe:
            free = probe.getsockname()[1]
        code, _, err = dw("up", "--port", str(free))
    assert code == 2
    assert f"Port {port} on 127.0.0.1 is in use, so the gateway cannot start there" in err
    assert "set `gateway.port` in platform.yaml." in err


def test_dagsters_storage_is_prepared_once_for_each_version(make_file: MakeFile) -> None:
    with Platform.open(make_file(), environ={}) as platform:
        assert not storage_is_ready(platform)
        dagster_environment(platform)
        note_storage(platform)
        assert storage_is_ready(platform)
        (platform.home / "dagster" / "dw-storage-version").write_text("0.1")
        assert not storage_is_ready(platform), "after an upgrade its tables may have to change"
