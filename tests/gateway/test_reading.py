"""`GET /topics…`, from the outside."""

import pyarrow as pa
import pytest

from dw_platform.bus import BusLimits, LogStorage, ScalableMessageBus, TopicOptions
from dw_platform.gateway.bus_topics import BusPublisher
from dw_platform.gateway.parsing import ARROW
from dw_platform.log import Records, RecordsExpiredError
from dw_platform.store import MemoryStore
from tests.gateway.conftest import MakeWeb
from tests.gateway.doubles import LogPublisher
from tests.gateway.web import Web


def test_topics_are_listed_and_described(web: Web, publisher: LogPublisher) -> None:
    publisher.publish_sync("orders", Records([b"1", b"2"]))
    listed = [{"name": name, "kind": "stream", "partitions": 2} for name in ("clicks", "orders")]
    assert web.get("/topics").json() == {"topics": listed}
    assert web.get("/topics/orders").json() == {
        "name": "orders",
        "kind": "stream",
        "partitions": 2,
        "version": 1,
        "offsets": [
            {"partition": 0, "start_offset": 0, "end_offset": 2},
            {"partition": 1, "start_offset": 0, "end_offset": 0},
        ],
    }
    assert web.get("/topics/nowhere").status_code == 404


def test_records_are_read_page_by_page(web: Web, publisher: LogPublisher) -> None:
    publisher.publish_sync("orders", Records([b"%d" % number for number in range(5)]))
    url = "/topics/orders/partitions/0/records"
    first = web.get(url, params={"limit": 2}).json()
    rest = web.get(url, params={"offset": first["next_offset"], "max_bytes": 1_000}).json()
    assert [each["value"] for each in first["records"] + rest["records"]] == ["0", "1", "2", "3", "4"]
    assert web.get(url, params={"offset": 5}).json()["records"] == []


def test_arrow_is_given_to_those_who_accept_it(web: Web, publisher: LogPublisher) -> None:
    publisher.publish_sync("orders", Records([b"1", b"2"], keys=[b"k", b"k"]))
    partition = next(number for number, (_, end) in publisher.offsets("orders").items() if end)
    answer = web.get(f"/topics/orders/partitions/{partition}/records", headers={"Accept": ARROW})
    assert answer.headers["X-Next-Offset"] == "2"
    assert pa.ipc.open_stream(answer.content).read_all().column("value").to_pylist() == [b"1", b"2"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("partitions/9/records", 404, "unknown_partition"),
        ("partitions/x/records", 400, "invalid_parameter"),
        ("partitions/0/records?offset=7", 400, "offset_out_of_range"),
        ("partitions/0/records?offset=-1", 400, "invalid_parameter"),
        ("partitions/0/records?limit=0", 400, "invalid_parameter"),
        ("partitions/0/records?max_bytes=999999999", 400, "invalid_parameter"),
        ("messages?group=g", 405, "method_not_allowed"),
    ],
)
def test_what_cannot_be_read_is_told_apart(web: Web, path: str, status: int, code: str) -> None:
    answer = web.get(f"/topics/orders/{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_expired_records_are_gone_and_the_oldest_is_named(
    web: Web, publisher: LogPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(*_: object, **__: object) -> None:
        raise RecordsExpiredError("orders/0", 0, 100)

    monkeypatch.setattr(publisher, "read", expired)
    answer = web.get("/topics/orders/partitions/0/records?offset=0")
    assert (answer.status_code, answer.json()["error"]["earliest"]) == (410, 100)


def bus_of(publisher: LogPublisher, store: MemoryStore) -> BusPublisher:
    topics = {"ticks": TopicOptions(partitions=1), "alarms": TopicOptions(partitions=1, durable=True)}
    storage = LogStorage(publisher.directory / "bus", store)
    return BusPublisher(ScalableMessageBus(limits=BusLimits(), topics=topics, storage=storage), topics)


@pytest.mark.parametrize("topic", ["ticks", "alarms"])
def test_messages_of_the_bus_are_taken_once_by_each_group(
    make_web: MakeWeb, publisher: LogPublisher, store: MemoryStore, topic: str
) -> None:
    web = make_web(bus=bus_of(publisher, store))
    for group in ("a", "b"):
        assert web.post(f"/topics/{topic}/messages?group={group}").json()["messages"] == []
    told = web.post(f"/topics/{topic}/records?key_field=k", json=[{"k": "x", "n": 1}, {"k": "x", "n": 2}])
    assert (told.status_code, told.json()["partitions"]) == (200, [])
    first = web.post(f"/topics/{topic}/messages?group=a&limit=1").json()["messages"]
    second = web.post(f"/topics/{topic}/messages?group=a").json()["messages"]
    assert [(each["key"], each["value"]) for each in first + second] == [
        ("x", '{"k":"x","n":1}'),
        ("x", '{"k":"x","n":2}'),
    ]
    assert web.post(f"/topics/{topic}/messages?group=a").json()["messages"] == []
    assert len(web.post(f"/topics/{topic}/messages?group=b").json()["messages"]) == 2


def test_the_bus_refuses_what_it_cannot_do(make_web: MakeWeb, publisher: LogPublisher, store: MemoryStore) -> None:
    web = make_web(bus=bus_of(publisher, store))
    stamped = web.post("/topics/ticks/records", json={}, headers={"X-Producer-Id": "p", "X-Sequence": "0"})
    assert (stamped.status_code, stamped.json()["error"]["code"]) == (400, "invalid_parameter")
    assert web.get("/topics/ticks/partitions/0/records?offset=0").status_code == 400
    assert web.post("/topics/ticks/messages").status_code == 400
    assert web.post("/topics/ticks/messages?group=a/b").status_code == 400
    assert web.post("/topics/undeclared/messages?group=a").status_code == 404
    crossing = web.post("/topics/ticks/messages?group=a", headers={"Sec-Fetch-Site": "cross-site"})
    assert (crossing.status_code, crossing.json()["error"]["code"]) == (403, "cross_site")
    assert web.run(web.client.head("/topics/ticks")).status_code == 405
    assert {"name": "ticks", "kind": "bus", "partitions": 1} in web.get("/topics").json()["topics"]
    assert web.get("/topics/ticks").json()["offsets"] == []
