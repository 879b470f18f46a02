"""`dw publish`: good lines go in whole, bad ones are told by number, and nothing counts before it is durable."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.cli.publish_lines import LineReader, line_ranges, parse_lines
from dw_platform.foundation import fnv1a_64
from dw_platform.gateway.settings import TopicRules
from dw_platform.log import Log
from tests.cli.conftest import Dw, MakeFile, Outcome
from tests.cli.processes import DW

STREAM = "streams: [{name: clicks, table: web.clicks, partitions: 2, key: user, max_record: 1KiB}]"

Publish = Callable[..., Outcome]


@pytest.fixture
def file(make_file: MakeFile) -> Path:
    return make_file(STREAM)


@pytest.fixture
def log(file: Path) -> Log:
    return Log(file.parent / "home" / "log")


@pytest.fixture
def publish(dw: Dw, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Run `dw publish` with a text as its standard input."""

    def call(text: bytes, *arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        return dw("publish", *arguments)

    return call


def content(log: Log, topic: str) -> dict[int, list[tuple[bytes | None, bytes]]]:
    found = {}
    for partition in range(log.describe(topic).partitions):
        with log.reader(topic, partition) as reader:
            table = reader.read(0).to_table()
        found[partition] = list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    return found


def test_lines_become_records_byte_for_byte_in_the_partition_of_their_key(publish: Publish, log: Log) -> None:
    outcome = publish(b'{"user": "a",  "n": 1.50}\n{"user":7}\r\n\n{"user":"a"}', "clicks", "--json")
    assert (outcome.code, "error" in outcome.err) == (0, False)
    answer = json.loads(outcome.out)
    assert (answer["accepted"], answer["rejected"], answer["through"]) == (3, 0, "the embedded broker")
    a, seven = fnv1a_64(b"a") % 2, fnv1a_64(b"7") % 2
    expected: dict[int, list[tuple[bytes, bytes]]] = {0: [], 1: []}
    expected[a].append((b"a", b'{"user": "a",  "n": 1.50}'))
    expected[seven].append((b"7", b'{"user":7}'))
    expected[a].append((b"a", b'{"user":"a"}'))
    assert content(log, "clicks") == expected
    assert sum(part["next_offset"] - part["base_offset"] for part in answer["partitions"]) == 3


def test_bad_lines_are_listed_by_number_and_the_good_ones_go_in(publish: Publish, log: Log) -> None:
    lines = [b'{"user":"a"}', b"half {", b"", b"[1]", b'{"n":1}', b'{"user":"' + b"x" * 2000 + b'"}', b'{"user":"b"}']
    outcome = publish(b"\n".join(lines), "clicks")
    assert outcome.code == 1
    assert outcome.out.startswith("clicks: 2 records acknowledged by the embedded broker.\n")
    assert "line 2: it is not JSON: unexpected character, expected a JSON value at character 1\n" in outcome.err
    assert "line 4: it is an array, not an object" in outcome.err
    assert "line 5: it has no field user, which is its key" in outcome.err
    assert "line 6: it has more than 1,024 bytes" in outcome.err
    assert "4 lines not published: 2, 4-6\n" in outcome.err
    assert sum(map(len, content(log, "clicks").values())) == 2


def test_ten_thousand_bad_lines_are_told_in_a_few(publish: Publish, log: Log) -> None:
    outcome = publish(b"nope\n" * 10_000 + b'{"user":"a"}\n', "clicks", "--batch", "300")
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 21
    assert "10,000 lines not published: 1-10000\n" in outcome.err
    assert sum(map(len, content(log, "clicks").values())) == 1


def test_strict_stops_before_the_batch_of_the_first_bad_line(publish: Publish, log: Log) -> None:
    good = b'{"user":"a"}\n'
    outcome = publish(good * 4 + b"bad\n" + good * 4, "clicks", "--strict", "--batch", "2")
    assert outcome.code == 1
    assert "4 records acknowledged" in outcome.out
    assert "line 5: it is not JSON" in outcome.err
    assert sum(map(len, content(log, "clicks").values())) == 4


def test_raw_lines_are_taken_as_they_are(publish: Publish, log: Log) -> None:
    assert publish(b"plain\n\xff\xfe\n", "clicks", "--format", "raw-lines").code == 0
    [records] = [part for part in content(log, "clicks").values() if part]
    assert records == [(None, b"plain"), (None, b"\xff\xfe")]
    both = publish(b"x\n", "clicks", "--format", "raw-lines", "--key-field", "user")
    assert (both.code, "raw lines do not have" in both.err) == (2, True)


def test_another_key_field_and_a_topic_of_ones_own(publish: Publish, dw: Dw, log: Log) -> None:
    missing = publish(b'{"id":"a"}\n', "mine")
    assert (missing.code, missing.out) == (2, "")
    assert "Make it by `dw topics create mine --partitions N`" in missing.err
    assert dw("topics", "create", "mine", "--partitions", "3").code == 0
    assert publish(b'{"id":"a"}\n{"id":"b"}\n', "mine", "--key-field", "id").code == 0
    found = content(log, "mine")
    assert found[fnv1a_64(b"a") % 3][0] == (b"a", b'{"id":"a"}')
    assert sum(map(len, found.values())) == 2


@pytest.mark.usefixtures("file")
def test_nothing_to_publish_is_nothing_wrong(publish: Publish) -> None:
    outcome = publish(b"\n\n", "clicks")
    assert (outcome.code, outcome.out) == (0, "clicks: 0 records acknowledged by the embedded broker.\n")


def test_a_file_is_read_instead_of_standard_input(dw: Dw, file: Path, log: Log) -> None:
    lines = file.with_name("events.ndjson")
    lines.write_bytes(b'{"user":"a"}\n' * 1000)
    assert "1,000 records acknowledged" in dw("publish", "clicks", "--file", lines, "--batch", "64").out
    assert sum(map(len, content(log, "clicks").values())) == 1000
    missing = dw("publish", "clicks", "--file", "nowhere.ndjson")
    assert (missing.code, "No such file or directory. Nothing was published." in missing.err) == (2, True)


def test_a_topic_that_another_process_writes_is_waited_for_and_then_named(publish: Publish, log: Log, dw: Dw) -> None:
    dw("topics", "create", "clicks")
    writer = log.writer("clicks", 1)
    outcome = publish(b'{"user":"a"}\n', "clicks", "--wait", "0.2")
    assert (outcome.code, outcome.out) == (1, "")
    assert f"clicks is being written by process {os.getpid()}" in outcome.err
    threading.Timer(0.3, writer.close).start()
    assert publish(b'{"user":"a"}\n', "clicks", "--wait", "30").code == 0


def test_a_topic_of_the_bus_needs_the_gateway(publish: Publish, make_file: MakeFile) -> None:
    make_file("bus: {topics: [{name: audit, durable: true}]}")
    outcome = publish(b'{"a":1}\n', "audit")
    assert (outcome.code, "no gateway runs. Start it by `dw gateway`" in outcome.err) == (1, True)


def test_ctrl_c_keeps_what_was_acknowledged_and_leaves_half_a_line(file: Path, log: Log) -> None:
    with subprocess.Popen(
        [DW, "publish", "clicks", "--json"],
        cwd=file.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"user":"a"}\n' * 3 + b'{"user":')
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not _arrived(log, 3):
            assert process.poll() is None
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(out)["accepted"] == 3
    assert err.endswith(b"error: interrupted\n")
    assert sum(map(len, content(log, "clicks").values())) == 3


def _arrived(log: Log, count: int) -> bool:
    if "clicks" not in [topic.name for topic in log.topics()]:
        return False
    return sum(map(len, content(log, "clicks").values())) == count


class Chunks:
    """A source that gives its bytes in pieces of any size."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def read1(self, _size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def read(pieces: list[bytes], *, lines: int, max_line: int = 1 << 20) -> tuple[list[tuple[int, bytes]], list[int]]:
    source = Chunks(pieces)
    batches = list(LineReader(source, stop=threading.Event(), max_line=max_line).batches(lines, 1 << 30))
    assert all(len(batch.numbers) <= lines for batch in batches)
    found = [pair for batch in batches for pair in zip(batch.numbers, batch.texts, strict=True)]
    return found, [number for batch in batches for number in batch.too_long]


some_lines = st.lists(st.binary(max_size=6) | st.sampled_from([b"\n", b"\r\n", b'{"a":1}', b"\n\n"]), max_size=20)


@given(some_lines, st.integers(1, 5))
def test_lines_are_the_same_however_they_arrive(pieces: list[bytes], lines: int) -> None:
    whole = b"".join(pieces)
    expected = [
        (number, line.removesuffix(b"\r"))
        for number, line in enumerate(whole.split(b"\n"), 1)
        if line.removesuffix(b"\r")
    ]
    assert read(pieces, lines=lines) == (expected, [])


@given(some_lines, st.integers(0, 4))
def test_a_line_that_is_too_long_is_counted_and_not_kept(pieces: list[bytes], longest: int) -> None:
    texts = [line.removesuffix(b"\r") for line in b"".join(pieces).split(b"\n")]
    found, too_long = read(pieces, lines=3, max_line=longest)
    assert found == [(number, line) for number, line in enumerate(texts, 1) if line and len(line) <= longest]
    assert too_long == [number for number, line in enumerate(texts, 1) if len(line) > longest]


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b'{"k":"a"}', b"{}", b'{"k":[1]}']), max_size=8))
def test_any_line_is_a_record_or_is_told_by_its_number(texts: list[bytes]) -> None:
    source = Chunks([b"\n".join(text.replace(b"\n", b"") for text in texts)])
    for batch in LineReader(source, stop=threading.Event(), max_line=1000).batches(100, 1 << 20):
        parsed = parse_lines(batch, TopicRules("k"), raw=False)
        assert parsed.count + len(parsed.bad) == len(batch.numbers)
        assert {line for line, _ in parsed.bad} <= set(batch.numbers)


def test_numbers_are_written_as_ranges() -> None:
    assert line_ranges([1, 2, 3, 7]) == "1-3, 7"


def test_a_batch_ends_when_nothing_more_comes() -> None:
    receive, send = os.pipe()
    got: list[Any] = []
    with os.fdopen(receive, "rb") as source, os.fdopen(send, "wb", buffering=0) as sender:
        batches = LineReader(source, stop=threading.Event(), max_line=100).batches(1000, 1 << 20)
        sender.write(b"one\ntw")
        got.append(next(batches).texts)
        sender.write(b"o\n")
        got.append(next(batches).texts)
    assert got == [[b"one"], [b"two"]]
