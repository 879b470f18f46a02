"""The gateway as a process: its address, keys that change while it runs, TLS, and a stop that loses nothing."""

import contextlib
import http.client
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dw_platform.cli.app import run
from dw_platform.foundation import SystemClock
from dw_platform.gateway.address import gateway_address
from dw_platform.gateway.app import create_app
from dw_platform.gateway.keyring import KeyRing
from dw_platform.gateway.keys import create_key, revoke_key
from dw_platform.gateway.protocol import MAX_HEAD_BYTES
from dw_platform.gateway.settings import GatewaySettings
from dw_platform.pipelines import Platform
from tests.gateway.doubles import LogPublisher
from tests.gateway.processes import STREAMS, Gateway, running_gateway, values_in, write_platform
from tests.gateway.serving import in_thread

pytestmark = pytest.mark.server
RECORDS = "/topics/orders/records"


def head_of(kind: str, length: int) -> bytes:
    lines = (f"POST {RECORDS} HTTP/1.1", "Host: x", f"Content-Type: {kind}", f"Content-Length: {length}", "", "")
    return "\r\n".join(lines).encode()


def test_it_tells_its_address_while_it_runs_and_stops_when_asked(tmp_path: Path) -> None:
    file = write_platform(tmp_path)
    with running_gateway(file) as gateway, Platform.open(file, environ={}) as platform:
        assert gateway.request("POST", RECORDS, b'{"n": 1}\n{"n": 2}')[0] == 200
        assert gateway.request("GET", "/ready") == (200, {"status": "ready"})
        _until(lambda: len(platform.store.list("dw://internal/metrics/gateway@")) == 2)
        assert gateway.stop() == 0
        assert gateway_address(platform.store) is None
        assert platform.store.list("dw://internal/metrics/gateway@") == []
    assert sorted(values_in(file)) == [b'{"n": 1}', b'{"n": 2}']


def test_keys_count_and_end_while_it_runs(tmp_path: Path) -> None:
    file = write_platform(tmp_path, STREAMS + "gateway: {require_keys: true}\n")
    with running_gateway(file) as gateway, Platform.open(file, environ={}) as platform:
        assert gateway.request("POST", RECORDS, b"{}")[0] == 401
        _, key = create_key(platform.store, "shop", clock=SystemClock())
        headers = {"Authorization": f"Bearer {key}"}
        _until(lambda: gateway.request("POST", RECORDS, b"{}", headers)[0] == 200)
        revoke_key(platform.store, "shop")
        _until(lambda: gateway.request("POST", RECORDS, b"{}", headers)[0] == 401)


def _until(condition: Callable[[], bool], limit_s: float = 30) -> None:
    stop = threading.Event()
    timer = threading.Timer(limit_s, stop.set)
    timer.start()
    try:
        while not condition():
            assert not stop.wait(0.02), "it did not come about in time"
    finally:
        timer.cancel()


def test_tls_is_spoken_where_a_certificate_is_given(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "c.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "k.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    file = write_platform(tmp_path, STREAMS + "gateway: {tls: {certificate: c.pem, key: k.pem}}\n")
    with running_gateway(file) as gateway:
        assert gateway.url.startswith("https://")
        assert gateway.request("POST", RECORDS, b"{}")[0] == 200
        with pytest.raises((http.client.HTTPException, OSError)):
            Gateway(gateway.process, gateway.url.replace("https", "http")).request("POST", RECORDS, b"{}")


def test_a_stop_under_load_answers_what_was_accepted_and_loses_nothing(tmp_path: Path) -> None:
    file = write_platform(tmp_path)
    acknowledged: list[bytes] = []
    statuses: set[int] = set()
    enough = threading.Event()

    def send(gateway: Gateway, sender: int) -> None:
        with contextlib.closing(gateway.connection()) as connection:
            for number in range(100_000):
                value = b'{"sender": %d, "number": %d}' % (sender, number)
                try:
                    connection.request("POST", RECORDS, value, {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    response.read()
                except (OSError, http.client.HTTPException):
                    return  # it has stopped accepting, and had not begun with this one
                statuses.add(response.status)
                if response.status != 200:
                    return
                acknowledged.append(value)
                if len(acknowledged) > 200:
                    enough.set()
                if response.getheader("Connection") == "close":
                    return

    with running_gateway(file) as gateway:
        senders = [threading.Thread(target=send, args=(gateway, sender)) for sender in range(8)]
        for sender in senders:
            sender.start()
        assert enough.wait(60)
        assert gateway.stop() == 0
        for sender in senders:
            sender.join(60)
    assert statuses == {200}
    kept = values_in(file)
    assert set(acknowledged) <= set(kept)
    assert len(kept) == len(set(kept))


def test_a_client_that_breaks_off_in_the_middle_has_published_nothing(tmp_path: Path) -> None:
    file = write_platform(tmp_path)
    with running_gateway(file) as gateway:
        host, _, port = gateway.url.rpartition("/")[2].partition(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(head_of("application/x-ndjson", 1000) + b'{"n": 1}\n{"n": 2}\n')
        assert gateway.request("POST", RECORDS, b'{"n": 3}')[0] == 200
        assert gateway.stop() == 0
    assert values_in(file) == [b'{"n": 3}']


def test_settings_that_cannot_work_are_refused_before_anything_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = str(write_platform(tmp_path))
    assert run(["gateway", "--config", file, "--host", "0.0.0.0"]) == 2
    assert "gateway.require_keys" in capfd.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["gateway", "--config", file, "--port", str(taken.getsockname()[1])]) == 2
    assert "it is in use" in capfd.readouterr().err
    with running_gateway(Path(file)):
        assert run(["gateway", "--config", file, "--port", "0"]) == 1
        assert "runs already" in capfd.readouterr().err


@pytest.fixture
def app(tmp_path: Path) -> Iterator[object]:
    publisher = LogPublisher(tmp_path / "log")
    settings = GatewaySettings(request_timeout_s=0.2)
    yield create_app(publisher, settings=settings, keys=KeyRing.open_to_all(), clock=SystemClock())
    publisher.close()


def talk(port: int, *pieces: bytes) -> bytes:
    """Send the pieces and return everything that comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        received = b""
        with contextlib.suppress(ConnectionError):
            while got := connection.recv(65536):
                received += got
        return received


def test_a_head_that_does_not_come_or_does_not_end_is_not_waited_for(app: object) -> None:
    with in_thread(app, head_timeout_s=0.2) as port:
        assert talk(port) == b""
        assert talk(port, b"GET /health HTTP/1.1\r\nHost:") == b""
        endless = [b"X-Filler: " + b"x" * 1000 + b"\r\n"] * (MAX_HEAD_BYTES // 1000 + 2)
        assert b"400" in talk(port, b"GET /health HTTP/1.1\r\n", *endless)
        assert b" 200 " in talk(port, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")


def test_a_body_that_does_not_come_is_a_408(app: object) -> None:
    with in_thread(app) as port:
        answer = talk(port, head_of("application/json", 9), b"{")
    assert b" 408 " in answer.partition(b"\r\n")[0]
    assert b"body_too_slow" in answer
