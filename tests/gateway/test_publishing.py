"""`POST /topics/{topic}/records`, from the outside."""

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from dw_platform.bus import HEADER
from dw_platform.gateway.parsing import ARROW, NDJSON
from dw_platform.gateway.settings import TopicRules
from dw_platform.log import PartitionStoppedError, Records
from dw_platform.scaling import PressureLevel
from dw_platform.streaming import BrokerUnavailableError, PublishTimedOutError, StreamRejectedError
from tests.gateway.conftest import MakeWeb
from tests.gateway.doubles import LogPublisher
from tests.gateway.web import Web

URL = "/topics/orders/records"


def values(publisher: LogPublisher, topic: str = "orders") -> list[bytes]:
    """Everything in the topic, partition by partition."""
    found: list[bytes] = []
    for partition, (offset, end) in publisher.offsets(topic).items():
        at = offset
        while at < end:
            batch = publisher.read(topic, partition, at)
            found += [value for part in batch.batches for value in part["value"].to_pylist()]
            at = batch.next_offset
    return found


def arrow(**columns: list[object]) -> bytes:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def test_one_object_is_one_record_and_the_answer_has_its_offset(web: Web, publisher: LogPublisher) -> None:
    answer = web.post(
        URL,
        content=b' {"id": 12345678901234567890123, "price": 1.10} ',
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert answer.status_code == 200
    assert answer.json() == {
        "topic": "orders",
        "records": 1,
        "partitions": [{"partition": 0, "base_offset": 0, "next_offset": 1}],
        "duplicate": False,
        "pressure": "normal",
        "rejected_count": 0,
    }
    # Byte for byte: a number that no 64 bits hold, and the zero at the end.
    assert values(publisher) == [b'{"id": 12345678901234567890123, "price": 1.10}']


def test_an_array_keeps_the_text_of_each_object(web: Web, publisher: LogPublisher) -> None:
    body = b'[{"a": [1, {"b": "x,]}"}]} ,{"c":"\\"}"}, {}]'
    assert web.post(URL, content=body, headers={"Content-Type": "application/json"}).json()["records"] == 3
    assert values(publisher) == [b'{"a": [1, {"b": "x,]}"}]}', b'{"c":"\\"}"}', b"{}"]


def test_lines_are_records_as_they_are(web: Web, publisher: LogPublisher) -> None:
    body = b'{"a": 1}\r\n\n{"a":  2}\n'
    assert web.post(URL, content=body, headers={"Content-Type": NDJSON}).json()["records"] == 2
    assert values(publisher) == [b'{"a": 1}', b'{"a":  2}']


def test_ten_thousand_wrong_records_are_listed_and_the_good_ones_go_in(web: Web, publisher: LogPublisher) -> None:
    lines = [b'{"n": %d}' % number if number % 2 else b'{"half' for number in range(20_000)]
    answer = web.post(URL, content=b"\n".join(lines), headers={"Content-Type": NDJSON})
    assert answer.status_code == 200
    told = answer.json()
    assert (told["records"], told["rejected_count"]) == (10_000, 10_000)
    assert told["rejected"][0]["index"] == 0
    assert "not JSON" in told["rejected"][0]["reason"]
    assert len(told["rejected"]) == 100
    assert told["rejected_ranges"] == [[number, number] for number in range(0, 20_000, 2)]
    assert len(values(publisher)) == 10_000


def test_a_batch_without_one_good_record_is_refused_as_a_whole(web: Web, publisher: LogPublisher) -> None:
    answer = web.post(URL, json=[1, "two", None, [], True])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "nothing_accepted")
    assert [each["reason"] for each in error["rejected"]] == [
        "it is a number, not an object",
        "it is text, not an object",
        "it is null, not an object",
        "it is an array, not an object",
        "it is true or false, not an object",
    ]
    assert values(publisher) == []


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": NaN}', "\n\n"])
def test_a_body_without_records_is_refused(web: Web, content: str) -> None:
    for kind in ("application/json", NDJSON):
        assert web.post(URL, content=content, headers={"Content-Type": kind}).status_code == 400


def test_the_key_field_chooses_the_partition_and_is_kept(web: Web, publisher: LogPublisher) -> None:
    lines = [b'{"id": "a"}', b'{"id": 7}', b'{"id": 1.5}', b'{"id": null}', b'{"other": 1}', b'{"id": 1e300}']
    told = web.post(URL + "?key_field=id", content=b"\n".join(lines), headers={"Content-Type": NDJSON}).json()
    assert told["records"] == 3
    assert [each["index"] for each in told["rejected"]] == [3, 4, 5]
    keys = {
        key
        for number in (0, 1)
        for part in publisher.read("orders", number, 0).batches
        for key in part["key"].to_pylist()
    }
    assert keys == {b"a", b"7", b"1.5"}


def test_the_configured_key_counts_where_the_request_names_none(make_web: MakeWeb, publisher: LogPublisher) -> None:
    web = make_web(topics={"orders": TopicRules(key_field="id")})
    web.post(URL, json={"id": "abc"})
    kept = [part["key"].to_pylist() for number in (0, 1) for part in publisher.read("orders", number, 0).batches]
    assert kept == [[b"abc"]]


def test_arrow_brings_keys_headers_and_times(web: Web) -> None:
    table = pa.table(
        {
            "value": pa.array([b"\xff1", b"2"]),
            "key": ["same", "same"],
            "headers": pa.array([[("h", b"x")], None], pa.map_(pa.string(), pa.binary())),
            "timestamp": pa.array([1_700_000_000_000, 5], pa.timestamp("ms", "UTC")),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = web.post(URL, content=sink.getvalue().to_pybytes(), headers={"Content-Type": ARROW})
    (part,) = answer.json()["partitions"]
    read = web.get(f"/topics/orders/partitions/{part['partition']}/records").json()
    assert [(each["timestamp_ms"], each["key"], each["encoding"], each["headers"]) for each in read["records"]] == [
        (1_700_000_000_000, "same", "base64", {"h": "x"}),
        (5, "same", "utf-8", {}),
    ]
    assert read["records"][0]["value"] == "/zE="


def test_what_is_no_good_arrow_is_refused_in_words(web: Web) -> None:
    compressed = pa.BufferOutputStream()
    table = pa.table({"value": [b"x" * 1000]})
    with pa.ipc.new_stream(compressed, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    bodies = {
        "not an Arrow stream": b"ARROW",
        "one column `value`": arrow(other=[b"1"]),
        "of type int64": arrow(value=[1]),
        "holds no record": arrow(value=pa.array([], pa.binary())),
        "compressed": compressed.getvalue().to_pybytes(),
        "a column 'extra'": arrow(value=[b"1"], extra=[1]),
    }
    for words, body in bodies.items():
        answer = web.post(URL, content=body, headers={"Content-Type": ARROW})
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]


def test_a_null_value_in_arrow_needs_a_key(web: Web) -> None:
    told = web.post(
        URL, content=arrow(value=[None, b"1", None], key=[None, None, "k"]), headers={"Content-Type": ARROW}
    )
    assert (told.json()["records"], told.json()["rejected_ranges"]) == (2, [[0, 0]])


def test_records_above_the_topics_size_are_left_out(make_web: MakeWeb) -> None:
    web = make_web(topics={"orders": TopicRules(max_record_bytes=20)})
    small, large = b'{"a": 1}', b'{"a": "%s"}' % (b"x" * 30)
    told = web.post(URL, content=b"\n".join([small, large]), headers={"Content-Type": NDJSON}).json()
    assert (told["records"], told["rejected_ranges"]) == (1, [[1, 1]])
    assert web.post(URL, content=large, headers={"Content-Type": NDJSON}).status_code == 413
    body = arrow(value=[small, large])
    assert web.post(URL, content=body, headers={"Content-Type": ARROW}).json()["rejected_ranges"] == [[1, 1]]
    assert web.post(URL, content=arrow(value=[large]), headers={"Content-Type": ARROW}).status_code == 413


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content-Type": "text/plain"}, 415, "unsupported_content_type"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415, "unsupported_content_type"),
        ({"X-Producer-Id": "p"}, 400, "invalid_parameter"),
        ({"X-Sequence": "0"}, 400, "invalid_parameter"),
        ({"X-Producer-Id": "a b", "X-Sequence": "0"}, 400, "invalid_parameter"),
        ({"X-Producer-Id": "p", "X-Sequence": "-1"}, 400, "invalid_parameter"),
        ({"Authorization": "Bearer dw.nobody.secret"}, 401, "key_refused"),
        ({"Authorization": "Basic Og=="}, 401, "key_refused"),
    ],
)
def test_wrong_headers_are_told_apart(web: Web, headers: dict[str, str], status: int, code: str) -> None:
    answer = web.post(URL, content=b'{"a": 1}', headers={"Content-Type": "application/json"} | headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_unknown_topics_paths_and_methods_are_told_apart(web: Web) -> None:
    assert web.post("/topics/nowhere/records", json={}).json()["error"]["code"] == "unknown_topic"
    assert web.get("/nowhere").json()["error"]["code"] == "not_found"
    wrong = web.get(URL)
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "POST")


def test_a_body_is_refused_while_it_comes_and_by_its_announced_size(make_web: MakeWeb, publisher: LogPublisher) -> None:
    web = make_web(max_request_bytes=1000)
    assert web.post(URL, json={"a": "x" * 2000}).status_code == 413

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b'{"a": 1}\n'

    answer = web.post(URL, content=pieces(), headers={"Content-Type": NDJSON})  # no length is announced
    assert (answer.status_code, answer.headers["Connection"]) == (413, "close")
    assert values(publisher) == []


def test_a_retry_under_the_same_stamp_writes_nothing_twice(web: Web, publisher: LogPublisher) -> None:
    def send(sequence: int) -> object:
        return web.post(URL, json={"n": 1}, headers={"X-Producer-Id": "p-1", "X-Sequence": str(sequence)}).json()

    first, again = send(0), send(0)
    assert isinstance(first, dict)
    assert isinstance(again, dict)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["partitions"] == again["partitions"]
    assert len(values(publisher)) == 1
    gap = web.post(URL, json={"n": 1}, headers={"X-Producer-Id": "p-1", "X-Sequence": "5"})
    assert (gap.status_code, gap.json()["error"]["expected"]) == (409, 1)


def test_pressure_reaches_the_producer(web: Web, publisher: LogPublisher) -> None:
    publisher.level = PressureLevel.WARNING
    answer = web.post(URL, json={})
    assert (answer.headers[HEADER], answer.json()["pressure"]) == ("warning", "warning")
    publisher.error = StreamRejectedError("orders", 0.97, 1.5)
    answer = web.post(URL, json={})
    assert (answer.status_code, answer.headers["Retry-After"], answer.headers[HEADER]) == (429, "2", "shedding")
    error = answer.json()["error"]
    assert (error["code"], error["retry_after_s"], error["occupancy"]) == ("stream_rejected", 1.5, 0.97)


def test_a_broker_that_is_away_is_a_503_that_gives_nothing_away(web: Web, publisher: LogPublisher) -> None:
    publisher.error = BrokerUnavailableError("kafka", "secret-host:9092", "no route")
    answer = web.post(URL, json={})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json()["error"]["code"] == "broker_unavailable"
    assert "secret-host" not in answer.text
    publisher.error = PartitionStoppedError("/data/orders/0", "I/O error")
    answer = web.post(URL, json={})
    assert (answer.status_code, "/data" in answer.text) == (503, False)


def test_a_fault_of_ours_is_a_500_with_its_traceback_in_the_log_only(
    web: Web, publisher: LogPublisher, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.error = RuntimeError("secret detail")
    answer = web.post(URL, json={"value": "never logged"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text
    assert "never logged" not in caplog.text


def test_time_outs_say_what_they_mean_for_the_records(make_web: MakeWeb, publisher: LogPublisher) -> None:
    web = make_web(request_timeout_s=0.05)
    publisher.error = PublishTimedOutError("orders", 0.05)
    answer = web.post(URL, json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "publish_timed_out")
    assert "Nothing was published" in answer.json()["error"]["message"]
    publisher.hold = asyncio.Event()
    answer = web.post(URL, json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "request_timed_out")
    assert "may or may not" in answer.json()["error"]["message"]


def test_more_bytes_than_the_gateway_holds_are_refused(make_web: MakeWeb) -> None:
    web = make_web(max_buffered_bytes=100)
    answer = web.post(URL, content=b'{"a": "%s"}' % (b"x" * 200), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
    assert web.post(URL, json={}).status_code == 200, "what was refused is no longer counted"


def test_more_requests_than_the_gateway_serves_are_refused_but_probes_work(
    make_web: MakeWeb, publisher: LogPublisher
) -> None:
    web = make_web(max_requests=1)

    async def crowd() -> tuple[int, int, int]:
        publisher.hold = asyncio.Event()
        first = asyncio.ensure_future(web.client.post(URL, json={}))
        await publisher.entered.wait()
        second, health = await web.client.get("/topics"), await web.client.get("/health")
        publisher.hold.set()
        return (await first).status_code, second.status_code, health.status_code

    assert web.run(crowd()) == (200, 503, 200)


def test_records_of_the_double_are_those_of_the_log(publisher: LogPublisher) -> None:
    publisher.publish_sync("orders", Records([b"1", b"2"], keys=[b"k", b"k"]))
    assert values(publisher) == [b"1", b"2"]
