"""The demo as a person sees it: `dw demo`, `dw up`, and a browser on the Dagster UI.

With DW_SCREENSHOTS=folder the pictures are kept; the README shows one of them.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.servers import require_server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(420)]

ROOT = Path(__file__).parents[2]
DW = Path(sys.executable).with_name("dw")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ui") / "home"


@pytest.fixture(scope="module")
def report(home: Path) -> dict[str, Any]:
    """The demo of the repository's own platform.yaml, run once."""
    done = subprocess.run(
        [DW, "demo", "--json"],
        cwd=ROOT,
        env={**os.environ, "DW_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + (home / "logs" / "demo.log").read_text()[-3000:]
    return dict(json.loads(done.stdout))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def gateway() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def ui(home: Path, report: dict[str, Any], gateway: str) -> Iterator[str]:  # noqa: ARG001  it shows the demo's run
    port = free_port()
    with subprocess.Popen(
        [DW, "up", "--port", str(port)],
        cwd=ROOT,
        env={
            **os.environ,
            "DW_HOME": str(home),
            "DW_GATEWAY_PORT": gateway.rpartition(":")[2],
            "PYTHONUNBUFFERED": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert f"http://127.0.0.1:{port}" in said, (home / "logs" / "dagster-webserver.log").read_text()[-3000:]
        assert gateway in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "one Ctrl-C stops everything"


@pytest.fixture(scope="module")
def page(ui: str) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        require_server("Chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        view = browser.new_page(viewport={"width": 1440, "height": 810}, base_url=ui)
        view.set_default_timeout(60_000)
        yield view
        browser.close()


def keep(page: Any, name: str) -> None:
    if folder := os.environ.get("DW_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png")


def test_the_demo_reports_its_tables_and_checks(report: dict[str, Any]) -> None:
    tables = {table["name"]: table for table in report["tables"]}
    assert tables["shop.orders"]["rows"] == 200_000
    assert tables["shop.orders"]["writer"] == "arrow"
    assert {name for name in tables if not name.startswith("web.")} == {
        "crm.customers",
        "ops.health",
        "ops.quality_results",
        "shop.daily_revenue",
        "shop.orders",
    }
    assert (tables["web.clicks"]["rows"], tables["web.clicks_rejected"]["rows"]) == (19_996, 4)
    assert tables["web.popular_pages"]["rows"] == 6
    assert [(stream["stream"], stream["lag"]) for stream in report["streams"]] == [("clicks", 0)]
    assert [check["failed"] for check in report["checks"]] == [[], [], [], []]


def test_the_graph_shows_both_tables_with_their_checks(page: Any) -> None:
    page.goto("/locations/dw_platform/asset-groups/shop")
    page.get_by_text("daily_revenue").first.wait_for()
    page.get_by_text(re.compile(r"\d+ / \d+ Passed")).first.wait_for()
    page.wait_for_function("document.body.innerText.match(/Passed/g)?.length >= 2")
    keep(page, "graph")
    text = page.inner_text("body")
    assert "orders" in text
    assert text.count("Materialized") >= 2


def test_a_table_shows_its_columns_rows_and_writer(page: Any) -> None:
    page.goto("/assets/shop/orders")
    page.get_by_text("customer_id").first.wait_for()
    page.get_by_text("writer_reason").first.wait_for()
    keep(page, "table")
    text = page.inner_text("body")
    assert "200,000" in text or "200000" in text
    assert "arrow" in text


def test_a_table_of_a_database_shows_how_far_it_is_and_whether_its_source_answers(page: Any) -> None:
    page.goto("/assets/crm/customers")
    page.get_by_text("rows_per_second").first.wait_for()
    keep(page, "extract")
    text = page.inner_text("body")
    assert "5,000" in text or "5000" in text
    assert "position" in text
    page.goto("/assets/crm/customers?view=checks")
    page.get_by_text("source_reachable").first.wait_for()
    assert "Failed" not in page.inner_text("body")


def test_the_checks_of_a_table_have_passed_and_can_be_run_alone(page: Any) -> None:
    page.goto("/assets/shop/orders?view=checks")
    page.get_by_text("order_id_values_to_be_unique").first.wait_for()
    keep(page, "checks")
    assert "Failed" not in page.inner_text("body")
    assert page.get_by_role("button", name=re.compile("Execute")).first.is_enabled()


def test_the_run_of_the_demo_is_there_and_succeeded(page: Any) -> None:
    page.goto("/runs")
    page.get_by_text("refresh").first.wait_for()
    page.get_by_text("Success").first.wait_for()
    keep(page, "runs")


def test_an_event_published_over_http_is_in_the_table_soon_after(ui: str, gateway: str, home: Path) -> None:
    assert ui
    body = b'{"visitor": 4711, "page": "/cart", "ms": 12}\n{"visitor": 4711, "page": "/checkout", "ms": 30}\n'
    request = urllib.request.Request(
        f"{gateway}/topics/clicks/records", data=body, headers={"content-type": "application/x-ndjson"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["records"] == 2
    deadline = time.monotonic() + 120
    while (rows := DeltaTable(home / "lake" / "web" / "clicks").to_pyarrow_dataset().count_rows()) < 19_998:
        assert time.monotonic() < deadline, (home / "logs" / "ingest.log").read_text()[-3000:]
        time.sleep(0.2)
    assert rows == 19_998


def test_the_stream_shows_its_offsets_and_what_it_rejected(page: Any) -> None:
    page.goto("/assets/web/clicks")
    page.get_by_text("rows_per_second").first.wait_for()
    page.get_by_text("offsets").first.wait_for()
    keep(page, "stream")
    text = page.inner_text("body")
    assert "19,996" in text or "19996" in text
    page.goto("/locations/dw_platform/sensors/stream_lag")
    page.get_by_text("stream_lag").first.wait_for()
    page.get_by_text(re.compile("Running|Stopped")).first.wait_for()
    keep(page, "sensor")


def test_the_backup_of_a_table_is_an_asset_that_says_how_to_restore_it(report: dict[str, Any], page: Any) -> None:
    assert {each["table"]: each["rows"] for each in report["restored"]}["shop.orders"] == 200_000
    page.goto("/assets/backups/nightly/shop/orders")
    page.get_by_text("dw backup restore shop.orders").first.wait_for()
    keep(page, "backups")


def test_the_gateways_own_page_shows_its_topics(page: Any, gateway: str) -> None:
    page.goto(f"{gateway}/")
    page.get_by_text("clicks").first.wait_for()
    keep(page, "gateway")
    assert "normal" in page.inner_text("body")
