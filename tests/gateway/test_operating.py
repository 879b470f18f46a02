"""What operators see: probes, numbers, the page, the document, the settings that are refused."""

import base64
import re
import threading
from pathlib import Path

import pytest

from dw_platform.bus import BusLimits, ScalableMessageBus
from dw_platform.config import parse_config
from dw_platform.foundation import FakeClock, SystemClock
from dw_platform.gateway.address import ADDRESS, announce, gateway_address, url_of, withdraw
from dw_platform.gateway.keys import create_key
from dw_platform.gateway.maintenance import Maintenance
from dw_platform.gateway.settings import CertificateUnusableError, GatewaySettings, OpenToOthersError, TopicRules
from dw_platform.log import MaintenanceFailedError
from dw_platform.store import MemoryStore, StoreUnavailableError
from dw_platform.streaming import BrokerUnavailableError
from tests.gateway.conftest import MakeWeb
from tests.gateway.doubles import LogPublisher
from tests.gateway.web import Web


def test_health_says_that_the_process_lives(web: Web, publisher: LogPublisher) -> None:
    publisher.error = BrokerUnavailableError("kafka", "x", "y")
    assert web.get("/health").json() == {"status": "ok"}


def test_ready_names_what_does_not_answer(
    web: Web, publisher: LogPublisher, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert web.get("/ready").json() == {"status": "ready"}

    def broker_away(_: str) -> None:
        raise BrokerUnavailableError("kafka", "hidden-host", "y")

    def store_away(_: object) -> None:
        raise StoreUnavailableError("hidden-url", "y")

    monkeypatch.setattr(publisher, "offsets", broker_away)
    monkeypatch.setattr(store, "versions_of", store_away)
    answer = web.get("/ready")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json()["error"]["reasons"] == ["topics: BrokerUnavailable", "store: StoreUnavailable"]
    assert "hidden" not in answer.text


def test_metrics_are_in_the_format_of_prometheus(make_web: MakeWeb) -> None:
    web = make_web(subsystems=(ScalableMessageBus(limits=BusLimits()),))
    web.post("/topics/orders/records", json=[{"a": 1}, {"a": 2}, 3])
    web.post("/topics/made-up/records", json={})
    text = web.get("/metrics").text
    sample = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? (\+Inf|[0-9.e+-]+)')
    names = set()
    for line in text.splitlines():
        if not line.startswith("#"):
            assert sample.fullmatch(line), line
            names.add(line.partition("{")[0].partition(" ")[0])
    assert 'dw_gateway_records_total{topic="orders"} 2' in text
    assert 'dw_gateway_record_bytes_total{topic="orders"} 14' in text
    assert 'dw_gateway_rejected_records_total{topic="orders"} 1' in text
    assert 'dw_gateway_refused_total{code="unknown_topic"} 1' in text
    assert 'dw_gateway_requests_total{method="POST",route="/topics/{topic}/records",status="200"} 1' in text
    assert 'dw_pressure_level{subsystem="bus"} 0' in text
    assert 'dw_occupancy_ratio{subsystem="bus"} 0' in text
    assert 'dw_gateway_request_seconds_bucket{route="/topics/{topic}/records",le="+Inf"} 2' in text
    assert "made-up" not in text, "labels are never a caller's words"
    typed = set(re.findall(r"# TYPE (\S+)", text))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} <= typed


def test_the_page_shows_topics_and_pressure_and_needs_nothing_from_elsewhere(make_web: MakeWeb) -> None:
    web = make_web(subsystems=(ScalableMessageBus(limits=BusLimits()),))
    web.post("/topics/orders/records", json=[{}] * 1234)
    page = web.get("/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "1,234" in page.text
    assert "bus" in page.text
    assert 'http-equiv="refresh"' in page.text
    assert "prefers-color-scheme: dark" in page.text
    assert not re.search(r"https?://|<script|<link|<img", page.text)


def test_a_browser_is_asked_for_a_key_which_only_the_page_takes_as_a_password(
    make_web: MakeWeb, store: MemoryStore, clock: FakeClock
) -> None:
    _, key = create_key(store, "me", clock=clock, rights=["read"])
    web = make_web(require_keys=True)
    asked = web.get("/")
    assert (asked.status_code, asked.headers["WWW-Authenticate"].partition(" ")[0]) == (401, "Basic")
    headers = {"Authorization": "Basic " + base64.b64encode(f"anybody:{key}".encode()).decode()}
    assert web.get("/", headers=headers).status_code == 200
    assert web.get("/topics", headers=headers).status_code == 401
    for wrong in ("Basic !!!", "Basic " + base64.b64encode(b"\xff:x").decode()):
        assert web.get("/", headers={"Authorization": wrong}).status_code == 401


def test_refusals_are_warned_about_once_a_second(web: Web, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        web.get("/topics", headers={"X-Api-Key": "dw.shop.secret-text"})
    lines = [record for record in caplog.records if "refused" in record.message]
    assert len(lines) == 1
    clock.advance(1)
    web.get("/topics", headers={"X-Api-Key": "dw.shop.secret-text"})
    assert "49 more" in caplog.text
    assert "secret-text" not in caplog.text


def test_others_are_not_let_in_without_keys(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"):
        GatewaySettings(host=host).check()
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(OpenToOthersError, match="require_keys"):
            GatewaySettings(host=host).check()
        GatewaySettings(host=host, require_keys=True).check()
    missing = GatewaySettings(certificate=tmp_path / "a.pem", private_key=tmp_path / "b.pem")
    with pytest.raises(CertificateUnusableError, match="No such file"):
        missing.check()


def test_settings_come_from_the_file() -> None:
    text = """
name: x
gateway: {host: 0.0.0.0, port: 9000, require_keys: true, max_request: 1MiB, request_timeout: 5s,
          tls: {certificate: c.pem, key: k.pem}}
streams: [{name: orders, topic: orders.v1, table: shop.orders, key: order_id, max_record: 2KiB}]
"""
    settings = GatewaySettings.of(parse_config(text, source=Path("platform.yaml"), environ={}), port=0)
    assert (settings.host, settings.port, settings.require_keys, settings.scheme) == ("0.0.0.0", 0, True, "https")
    assert (settings.max_request_bytes, settings.request_timeout_s) == (1024**2, 5.0)
    assert settings.rules("orders.v1") == TopicRules("order_id", 2048)
    assert settings.rules("other") == TopicRules()


def test_the_address_is_that_of_a_process_that_lives(store: MemoryStore, clock: FakeClock) -> None:
    assert gateway_address(store) is None
    announced = announce(store, "http://127.0.0.1:1", at=clock.now())
    assert gateway_address(store) == "http://127.0.0.1:1"
    other = announce(store, "http://127.0.0.1:2", at=clock.now())
    withdraw(store, announced)
    assert gateway_address(store) == "http://127.0.0.1:2", "another one has taken over"
    withdraw(store, other)
    assert gateway_address(store) is None
    here = announce(store, "http://127.0.0.1:3", at=clock.now()).value
    store.put(ADDRESS, re.sub(rb'"pid": \d+', b'"pid": 4194305', here))  # above every pid that Linux gives
    assert gateway_address(store) is None
    store.put(ADDRESS, re.sub(rb'"node": "[^"]*"', b'"node": "elsewhere"', here))
    assert gateway_address(store) == "http://127.0.0.1:3"
    store.put(ADDRESS, b"{}")
    assert gateway_address(store) is None


def test_an_address_can_be_used_on_this_machine() -> None:
    assert url_of("http", "0.0.0.0", 1) == "http://127.0.0.1:1"
    assert url_of("https", "::", 1) == "https://[::1]:1"
    assert url_of("http", "gateway.local", 1) == "http://gateway.local:1"


def test_a_task_that_fails_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    def fails() -> None:
        raise MaintenanceFailedError("orders/0", "retention", "no space")

    def breaks() -> None:
        raise ZeroDivisionError

    tasks = {"a": fails, "b": breaks, "c": lambda: ran.append("c")}
    Maintenance(lambda: tasks, clock=FakeClock()).run_once()
    assert ran == ["c"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_maintenance_runs_again_and_again_and_stops_at_once() -> None:
    twice = threading.Event()
    runs: list[int] = []

    def task() -> None:
        runs.append(1)
        if len(runs) == 2:
            twice.set()

    with Maintenance(lambda: {"task": task}, clock=SystemClock(), every_s=0.001):
        assert twice.wait(30)
    with Maintenance(lambda: {"task": task}, clock=SystemClock(), every_s=3600) as idle:
        idle.close()  # does not wait for the hour
