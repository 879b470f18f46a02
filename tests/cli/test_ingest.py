"""`dw ingest`: what it says and how it exits; what ingesting itself promises is tested with the pipelines."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pytest

from dw_platform.cli.dagster_home import program
from dw_platform.pipelines import Platform
from tests.cli.conftest import Dw, MakeFile
from tests.pipelines.streams import numbered, offsets_of, publish

STREAMS = """
streams:
  - {name: clicks, table: web.clicks, partitions: 1}
  - name: orders
    table: shop.orders
    partitions: 1
    format: json
    columns: {id: bigint}
    max_rejected: 60%
"""


@pytest.fixture
def file(make_file: MakeFile) -> Path:
    path = make_file(STREAMS)
    with Platform.open(path) as platform:
        publish(platform, numbered(0, 10))
        publish(platform, [b'{"id": 1}', b"bad"], stream="orders")
    return path


def test_one_stream_is_told_in_a_line(dw: Dw, file: Path) -> None:
    code, out, _ = dw("ingest", "clicks", "-c", file)
    assert code == 0
    assert out.startswith("clicks: 10 rows into web.clicks in 1 commit, ")
    assert dw("ingest", "clicks", "-c", file).out == "clicks: nothing new for web.clicks.\n"


def test_json_is_one_document(dw: Dw, file: Path) -> None:
    code, out, _ = dw("ingest", "clicks", "--json", "--limit", "4", "-c", file)
    report = json.loads(out)
    assert code == 0
    assert (report["rows"], report["lag"], report["positions"]) == (4, 6, {"0": 4})
    _, out, _ = dw("ingest", "clicks", "orders", "--json", "-c", file)
    assert [(each["stream"], each["rows"], each["rejected"]) for each in json.loads(out)] == [
        ("clicks", 6, 0),
        ("orders", 1, 1),
    ]


def test_rejected_and_remaining_records_are_told(dw: Dw, file: Path) -> None:
    assert "; 1 record went to shop.orders_rejected." in dw("ingest", "orders", "-c", file).out
    assert "; 9 records still waiting." in dw("ingest", "clicks", "--limit", "1", "-c", file).out


def test_a_stream_that_fails_does_not_keep_the_others_back(dw: Dw, file: Path) -> None:
    with Platform.open(file) as platform:
        platform.lake.table("shop.orders").create(pa.schema([("id", pa.string())]))
    code, out, err = dw("ingest", "orders", "clicks", "-c", file)
    assert code == 1
    assert out.startswith("clicks: 10 rows")
    assert "column id is int64, the table has string" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Name the streams to ingest"),
        (["nothing"], "There is no stream nothing. Streams of this platform: clicks, orders"),
        (["clicks", "--follow", "--limit", "3"], "--follow goes on for ever"),
        (["clicks", "orders", "--from", "earliest"], "--from moves one stream"),
        (["clicks", "--from", "noon"], "from cannot be 'noon': earliest, latest"),
        (["clicks", "--from", "0:99", "--yes"], "the broker has 0 to 10 of partition 0, not 99"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(dw: Dw, file: Path, arguments: list[str], told: str) -> None:
    code, out, err = dw("ingest", *arguments, "-c", file)
    assert (code, out) == (2, "")
    assert told in err


def test_moving_a_stream_says_what_it_means_and_wants_a_yes(dw: Dw, file: Path) -> None:
    code, _, err = dw("ingest", "clicks", "--from", "0:7", "-c", file)
    assert code == 2
    assert "Up to 7 records will never reach web.clicks: partition 0, offsets 0 to 6. Nothing was changed" in err
    code, out, _ = dw("ingest", "clicks", "--from", "0:7", "--yes", "-c", file)
    assert code == 0
    assert out.startswith("clicks: 3 rows")
    with Platform.open(file) as platform:
        assert offsets_of(platform) == [(0, 7), (0, 8), (0, 9)]


def test_following_commits_until_it_is_asked_to_stop(file: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as sink:
        # Without a Java, so that nothing is started beside it; what is small needs none.
        environment = {**os.environ, "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
        command = [program("dw"), "ingest", "--follow", "--config", str(file)]
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
        try:
            with Platform.open(file) as platform:
                deadline = time.monotonic() + 60
                while not platform.lake.table("web.clicks").exists() or len(offsets_of(platform)) < 10:
                    assert time.monotonic() < deadline, output.read_text()
                    time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, output.read_text()
        finally:
            process.kill()
            process.wait()
    told = output.read_text()
    assert "Following all streams" in told
    assert "Stopped after" in told
