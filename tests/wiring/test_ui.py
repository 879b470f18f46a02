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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(scope="module")
def ui(home: Path, report: dict[str, Any]) -> Iterator[str]:  # noqa: ARG001  the UI shows the run of the demo
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(
        [DW, "up", "--port", str(port)],
        cwd=ROOT,
        env={**os.environ, "DW_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert f"http://127.0.0.1:{port}" in said, (home / "logs" / "dagster-webserver.log").read_text()[-3000:]
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
    assert set(tables) == {"ops.quality_results", "shop.daily_revenue", "shop.orders"}
    assert [check["failed"] for check in report["checks"]] == [[], []]


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
