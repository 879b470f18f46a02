"""`dw publish` while a gateway runs: records go through it, once each, however often a batch has to be sent."""

import contextlib
import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dw_platform.gateway.address import announce, gateway_address
from dw_platform.log import Log
from dw_platform.pipelines import Platform
from tests.cli.conftest import Dw, MakeFile, Outcome
from tests.cli.processes import started

STREAM = """
streams: [{name: clicks, table: web.clicks, partitions: 2, key: user}]
bus: {topics: [{name: audit}]}
"""

Publish = Callable[..., Outcome]
Answer = tuple[int, dict[str, Any], dict[str, str]] | None
"""Status, body and headers; None breaks the connection."""


class FakeGateway(ThreadingHTTPServer):
    """Answers as it is told, one answer after the other, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, dict[str, str], list[bytes]]] = []
        self.offset = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeGateway

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        values = pa.ipc.open_stream(body).read_all()["value"].to_pylist()
        gateway = self.server
        gateway.asked.append((self.path, {name.lower(): text for name, text in self.headers.items()}, values))
        answer = gateway.answers.pop(0) if gateway.answers else _taken(gateway, len(values))
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, told, headers = answer
        text = json.dumps(told).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None: ...


def _taken(gateway: FakeGateway, records: int) -> Answer:
    base, gateway.offset = gateway.offset, gateway.offset + records
    part = {"partition": 0, "base_offset": base, "next_offset": gateway.offset}
    return 200, {"topic": "clicks", "records": records, "partitions": [part]}, {}


@pytest.fixture
def gateway(make_file: MakeFile) -> Iterator[FakeGateway]:
    """A gateway of this process, so that its address counts as alive."""
    file = make_file(STREAM)
    with FakeGateway() as server, Platform.open(file, environ={}) as platform:
        announce(platform.store, server.url, at=datetime.now(UTC))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def publish(dw: Dw, monkeypatch: pytest.MonkeyPatch) -> Publish:
    def call(text: bytes, *arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        return dw("publish", *arguments)

    return call


LINES = b'{"user":"a"}\n{"user":"b"}\n{"user":"c"}\n'


def busy(status: int, wait_s: float) -> Answer:
    return status, {"error": {"message": "full for now", "retry_after_s": wait_s}}, {"Retry-After": "1"}


def sequences(gateway: FakeGateway) -> list[str]:
    return [headers["x-sequence"] for _, headers, _ in gateway.asked]


def test_records_go_through_the_gateway_with_a_rising_sequence(publish: Publish, gateway: FakeGateway) -> None:
    outcome = publish(LINES, "clicks", "--batch", "2", "--json", "--api-key", "sesame")
    assert outcome.code == 0
    answer = json.loads(outcome.out)
    assert (answer["accepted"], answer["through"]) == (3, f"the gateway at {gateway.url}")
    assert answer["partitions"] == [{"partition": 0, "base_offset": 0, "next_offset": 3}]
    assert sequences(gateway) == ["0", "1"]
    assert len({headers["x-producer-id"] for _, headers, _ in gateway.asked}) == 1
    assert {headers["authorization"] for _, headers, _ in gateway.asked} == {"Bearer sesame"}
    assert gateway.asked[0][0] == "/topics/clicks/records"
    assert [value for *_, values in gateway.asked for value in values] == LINES.split()


@pytest.mark.parametrize("refusal", [busy(429, 0.01), busy(503, 0.01), busy(504, 0.01), None])
def test_a_batch_that_was_not_taken_or_whose_answer_was_lost_is_sent_again_under_the_same_number(
    publish: Publish, gateway: FakeGateway, refusal: Answer
) -> None:
    gateway.answers = [refusal, refusal]
    assert publish(LINES, "clicks").code == 0
    assert sequences(gateway) == ["0", "0", "0"]
    assert gateway.offset == 3


def test_patience_ends_and_what_was_not_acknowledged_is_said(publish: Publish, gateway: FakeGateway) -> None:
    gateway.answers = [_taken(gateway, 2), busy(429, 60.0)]
    outcome = publish(LINES, "clicks", "--batch", "2", "--wait", "5")
    assert outcome.code == 1
    assert "2 records acknowledged" in outcome.out
    assert "did not take the records: full for now" in outcome.err
    assert "Lines 3 were sent and not acknowledged" in outcome.err


def test_a_gateway_that_wants_a_key_says_how_to_get_one(publish: Publish, gateway: FakeGateway) -> None:
    gateway.answers = [(401, {"error": {"message": "There is no such key."}}, {})]
    outcome = publish(LINES, "clicks", "--api-key", "wrong-sesame")
    assert outcome.code == 2
    assert "Set $DW_API_KEY or pass --api-key; `dw keys create` makes one." in outcome.err
    assert "wrong-sesame" not in outcome.err


def test_a_refusal_for_good_is_told_in_the_gateways_words(publish: Publish, gateway: FakeGateway) -> None:
    gateway.answers = [(413, {"error": {"message": "The request has more than 8 MiB."}}, {})]
    outcome = publish(LINES, "clicks")
    assert (outcome.code, "refused the records (413): The request has more than 8 MiB." in outcome.err) == (1, True)
    gateway.answers = [(502, {}, {})]
    assert "(502): it answered 502" in publish(LINES, "clicks").err


def test_a_topic_of_the_bus_is_not_sent_twice_because_it_could_not_tell(publish: Publish, gateway: FakeGateway) -> None:
    assert publish(b'{"a":1}\n', "audit").code == 0
    assert "x-producer-id" not in gateway.asked[0][1]
    gateway.answers = [None]
    outcome = publish(b'{"a":1}\n', "audit")
    assert (outcome.code, len(gateway.asked)) == (1, 2)
    assert "it may or may not have arrived" in outcome.err


def test_an_address_that_a_killed_gateway_left_is_not_used(publish: Publish, make_file: MakeFile) -> None:
    file = make_file(STREAM)
    with Platform.open(file, environ={}) as platform:
        entry = announce(platform.store, "http://127.0.0.1:1", at=datetime.now(UTC))
        told = json.loads(entry.value) | {"pid": 2**22 - 3}
        platform.store.put(entry.key, json.dumps(told).encode())
    assert "acknowledged by the embedded broker" in publish(LINES, "clicks").out


@pytest.mark.server
def test_a_real_gateway_takes_what_this_process_cannot_write(
    dw: Dw, publish: Publish, make_file: MakeFile, tmp_path: Path
) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    file = make_file(f"{STREAM}\ngateway: {{port: {port}}}")
    assert dw("topics", "create", "clicks").code == 0
    with Platform.open(file, environ={}) as platform, started("gateway", "--config", file, folder=tmp_path) as running:
        running.wait_for(lambda: gateway_address(platform.store) is not None)
        outcome = publish(LINES + b"nope\n", "clicks", "--json")
        assert (outcome.code, json.loads(outcome.out)["accepted"]) == (1, 3)
        assert json.loads(outcome.out)["through"] == f"the gateway at http://127.0.0.1:{port}"
        assert publish(b"raw\n", "clicks", "--format", "raw-lines").code == 0
        assert "publishes to it" in dw("topics", "delete", "clicks", "--yes").err
        running.process.terminate()
        running.end()
    log = Log(tmp_path / "home" / "log")
    ends = [log.reader("clicks", partition).end_offset() for partition in range(2)]
    assert sum(ends) == 4
