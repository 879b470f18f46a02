"""Everything at a glance, for people and for programs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dw_platform.log import Records
from dw_platform.pipelines import Platform
from dw_platform.pipelines.streams import open_streams
from tests.cli.conftest import Dw, MakeFile


def test_status_shows_places_tables_and_what_is_missing(dw: Dw, with_tables: Path) -> None:
    code, out, err = dw("status", "-c", with_tables)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    home = with_tables.parent / "home"
    assert lines[:3] == ["tested", f"  home   {home}", f"  lake   {home / 'lake'}"]
    assert any(line.startswith("shop.orders ") and line.endswith("-") for line in lines)
    assert lines[-1].startswith("Not built yet: shop.revenue.")


def test_status_for_programs_is_one_document(dw: Dw, with_tables: Path) -> None:
    told = json.loads(dw("status", "--json", "-c", with_tables).out)
    assert [entry["name"] for entry in told["tables"]] == ["shop.orders", "shop.other"]
    assert (told["platform"], told["unbuilt"], told["checks"]) == ("tested", ["shop.revenue"], [])


def test_watching_and_json_exclude_each_other(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    code, out, err = dw("status", "--watch", "--json")
    assert (code, out) == (2, "")
    assert "use one of them" in err


@pytest.mark.parametrize("command", ["status", "demo", "up"])
def test_a_store_that_is_down_is_said_in_one_paragraph(dw: Dw, make_file: MakeFile, command: str) -> None:
    make_file("store: {url: 'postgresql://user:sekret-word@127.0.0.1:1/x'}\ndagster: {port: 39371}")
    code, out, err = dw(command)
    assert (code, out) == (1, "")
    assert "The control store postgresql://user:***@127.0.0.1:1/x is not available" in err
    assert "Traceback" not in err


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_quietly_when_it_is_told_to(with_tables: Path, number: signal.Signals) -> None:
    program = "from dw_platform.cli import main; main()"
    command = [sys.executable, "-c", program, "status", "--watch", "-c", str(with_tables)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        seen = 0
        while seen < 2:  # the second time proves that it repeats
            seen += process.stdout.readline().startswith("tested")
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")


def test_streams_are_shown_with_what_waits_for_their_tables(dw: Dw, make_file: MakeFile) -> None:
    file = make_file("streams: [{name: clicks, table: web.clicks, partitions: 1}]")
    with Platform.open(file, environ={}) as platform, open_streams(platform) as streams:
        streams.publish_sync("clicks", Records([b"1", b"2"]))
    code, out, _ = dw("status")
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("clicks ")]
    assert line.split()[1:3] == ["web.clicks", "2"]
    assert line.endswith("by runs of Dagster")
    (stream,) = json.loads(dw("status", "--json").out)["streams"]
    assert (stream["lag"], stream["live"], stream["partitions"]["0"]["end"]) == (2, False, 2)


def test_a_stream_whose_broker_is_down_is_told_beside_the_others(dw: Dw, make_file: MakeFile) -> None:
    make_file(
        "streams:\n"
        "  - name: far\n"
        "    table: web.far\n"
        "    broker: {kind: kafka, address: '127.0.0.1:1', options: {socket.timeout.ms: 1000}}\n"
        "  - {name: near, table: web.near}\n"
    )
    code, out, _ = dw("status")
    assert code == 0
    assert "The kafka broker at 127.0.0.1:1 is not available" in out
    assert "near" in out
