"""The gateway in a process of its own, clients in another, over loopback with keep-alive connections.

Batches: one client sends batches of records one after the other on two connections, so that while one batch is written
the next is on its way. Singles: 64 connections post one record at a time. Everything is fsynced before it is answered.

Peers in the same run show where time goes: the same gateway that parses but publishes nowhere, and a bare endpoint on
the same server that reads the body and answers `ok`, which is the ceiling for any Python gateway here.
"""

import asyncio
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from benchmarks.harness import Measure, Options, measure

NAME = "gateway"
DESCRIPTION = "records over HTTP, fsynced: batches a second, and the latency of 64 concurrent single posts"

RECORDS, QUICK_RECORDS = 1_000_000, 20_000
ROUNDS, QUICK_ROUNDS = 5, 1
POSTS, QUICK_POSTS = 20_000, 500
CONNECTIONS = 64
BATCH_CONNECTIONS = 2
NDJSON, ARROW, JSON = "application/x-ndjson", "application/vnd.apache.arrow.stream", "application/json"
PROCESSES = multiprocessing.get_context("spawn")

AIM_RECORDS_PER_S = 300_000
AIM_P95_MS = 50.0


def run(options: Options) -> dict[str, Any]:
    """Measure batches by throughput and single posts by latency."""
    count = options.rows or (QUICK_RECORDS if options.quick else RECORDS)
    repeats = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    posts = QUICK_POSTS if options.quick else POSTS
    assert options.directory is not None
    with _servers(options.directory) as urls, _client() as client:
        measures = measure(_batches(client, urls, count), repeats=repeats, units=count, unit="records/s")
        singles = _singles(client, urls, posts, repeats)
    best = max(each["median"] for each in measures if each["name"].startswith("gateway"))
    p95 = next(each["median"] for each in singles if each["name"].startswith("gateway"))
    checks = {
        f"batches: at least {AIM_RECORDS_PER_S:,} records/s": best >= AIM_RECORDS_PER_S,
        f"single posts: p95 at most {AIM_P95_MS:g} ms": p95 <= AIM_P95_MS,
    }
    return {
        "records": count,
        "record_bytes": len(_record(0)),
        "durability": "each answer after an fsync of its records",
        "measures": measures + singles,
        "checks": checks,
    }


def _record(number: int) -> bytes:
    content = {"order_id": f"{number:012d}", "customer": number % 1000, "amount": 12.5, "currency": "EUR"}
    return orjson.dumps(content | {"note": "x" * (16 + number % 3)})


def _ndjson(size: int) -> bytes:
    return b"\n".join(_record(number) for number in range(size))


def _arrow(size: int, *, keys: bool = False) -> bytes:
    columns = {"value": [_record(number) for number in range(size)]}
    if keys:
        columns["key"] = [b"%d" % (number % 1000) for number in range(size)]
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _batches(client: "Client", urls: dict[str, int], count: int) -> list[Measure]:
    def send(port: int, path: str, kind: str, body: bytes, size: int) -> Callable[[], Any]:
        return partial(
            client.send, port, path, kind, body, requests=max(1, count // size), connections=BATCH_CONNECTIONS
        )

    path, keyed = "/topics/orders/records", "/topics/orders/records?key_field=order_id"
    ceiling = "bare endpoint, NDJSON by 10,000"
    parsed = "gateway without publishing, NDJSON by 10,000"
    gateway = urls["gateway"]
    return [
        Measure(name=ceiling, run=send(urls["bare"], path, NDJSON, _ndjson(10_000), 10_000)),
        Measure(name=parsed, run=send(urls["parsing"], path, NDJSON, _ndjson(10_000), 10_000), peer=ceiling),
        Measure(name="gateway, NDJSON by 1,000", run=send(gateway, path, NDJSON, _ndjson(1_000), 1_000), peer=ceiling),
        Measure(
            name="gateway, NDJSON by 10,000", run=send(gateway, path, NDJSON, _ndjson(10_000), 10_000), peer=ceiling
        ),
        Measure(
            name="gateway, NDJSON by 10,000, keyed",
            run=send(gateway, keyed, NDJSON, _ndjson(10_000), 10_000),
            peer=ceiling,
        ),
        Measure(name="gateway, Arrow by 1,000", run=send(gateway, path, ARROW, _arrow(1_000), 1_000), peer=ceiling),
        Measure(name="gateway, Arrow by 10,000", run=send(gateway, path, ARROW, _arrow(10_000), 10_000), peer=ceiling),
        Measure(
            name="gateway, Arrow by 10,000, keyed",
            run=send(gateway, path, ARROW, _arrow(10_000, keys=True), 10_000),
            peer=ceiling,
        ),
    ]


def _singles(client: "Client", urls: dict[str, int], posts: int, repeats: int) -> list[dict[str, Any]]:
    """Return percentiles of the latency, taken over each round; rounds take turns as in `measure`."""
    names = {"bare endpoint": "bare", "gateway without publishing": "parsing", "gateway": "gateway"}
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    for turn in range(repeats + 1):
        for name, server in names.items():
            taken = client.send(
                urls[server], "/topics/orders/records", JSON, _record(turn), requests=posts, connections=CONNECTIONS
            )
            if turn:
                found[name].append(sorted(taken))
    rows = []
    for name, rounds in found.items():
        for share in (50, 95, 99):
            runs = [round(each[min(len(each) * share // 100, len(each) - 1)] * 1000, 2) for each in rounds]
            label = f"{name}, 64 single posts at once, p{share}"
            rows.append({"name": label, "unit": "ms", "runs": runs, "median": statistics.median(runs)})
    # The one that is judged comes first among the gateway's.
    return sorted(rows, key=lambda row: (row["name"].partition(",")[0], "p95" not in row["name"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The same request again and again, on so many connections at once."""

    port: int
    path: str
    kind: str
    body: bytes
    requests: int
    connections: int


class ClientFailedError(Exception):
    """A request was not answered with 200."""


class Client:
    """Another process that sends requests when told to, and answers with how long each took."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def send(self, port: int, path: str, kind: str, body: bytes, *, requests: int, connections: int) -> list[float]:
        self._pipe.send(Load(port=port, path=path, kind=kind, body=body, requests=requests, connections=connections))
        failure, taken = self._pipe.recv()
        if failure:
            raise ClientFailedError(failure)
        return list(taken)


@contextmanager
def _client() -> Iterator[Client]:
    mine, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=_send_when_told, args=(theirs,))
    process.start()
    try:
        yield Client(mine)
    finally:
        process.kill()
        process.join()


def _send_when_told(pipe: Connection) -> None:
    import uvloop

    while True:
        load = pipe.recv()
        try:
            pipe.send(("", uvloop.run(_send_all(load))))
        except Exception as error:  # noqa: BLE001 - told to the process that asked
            pipe.send((f"{type(error).__name__}: {error}", []))


class _Connection(asyncio.Protocol):
    """One keep-alive connection that sends the same request again as soon as it is answered.

    A few lines instead of a client library, because those take longer for a request than the gateway does.
    """

    def __init__(self, request: bytes, left: Iterator[int], taken: list[float], done: "asyncio.Future[None]") -> None:
        self._request, self._left, self._taken, self._done = request, left, taken, done
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if next(self._left, None) is None:
            if not self._done.done():
                self._done.set_result(None)
            self._transport.close()
            return
        self._started = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, mark, rest = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self._fail(f"answered {self._buffer[:400]!r}")
            return
        self._taken.append(time.perf_counter() - self._started)
        self._buffer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._fail(f"lost the connection ({error})")

    def _fail(self, reason: str) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(reason))


async def _send_all(load: Load) -> list[float]:
    lines = (f"POST {load.path} HTTP/1.1", "host: localhost", f"content-type: {load.kind}")
    request = "\r\n".join((*lines, f"content-length: {len(load.body)}", "", "")).encode() + load.body
    loop, left, taken = asyncio.get_running_loop(), iter(range(load.requests)), list[float]()
    futures = []
    for _ in range(min(load.connections, load.requests)):
        done = loop.create_future()
        futures.append(done)
        await loop.create_connection(partial(_Connection, request, left, taken, done), "127.0.0.1", load.port)
    await asyncio.gather(*futures)
    assert len(taken) == load.requests
    return taken


@contextmanager
def _servers(directory: Path) -> Iterator[dict[str, int]]:
    """Run the three servers and yield the port of each."""
    started = []
    urls = {}
    try:
        for kind in ("gateway", "parsing", "bare"):
            mine, theirs = PROCESSES.Pipe()
            process = PROCESSES.Process(target=_serve, args=(kind, str(directory / kind), theirs))
            process.start()
            started.append(process)
            if not mine.poll(60):
                raise RuntimeError(f"the server {kind} does not start")
            urls[kind] = mine.recv()
        yield urls
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join(30)


def _serve(kind: str, directory: str, ready: Connection) -> None:
    """Run one server until it is terminated, or its parent is gone."""
    _end_with(os.getppid())
    from dw_platform.gateway.server import listen, serve
    from dw_platform.gateway.settings import GatewaySettings

    settings = GatewaySettings(port=0, max_request_bytes=64 << 20)
    with listen(settings) as listener:
        port = listener.getsockname()[1]
        if kind == "bare":
            serve(_bare, listener, settings, on_started=lambda: ready.send(port))
        else:
            with _application(kind, Path(directory), settings) as app:
                serve(app, listener, settings, on_started=lambda: ready.send(port))


def _end_with(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _application(kind: str, directory: Path, settings: Any) -> Iterator[Any]:
    from dw_platform.foundation import SystemClock
    from dw_platform.gateway.app import create_app
    from dw_platform.gateway.keyring import KeyRing
    from dw_platform.log import Log, LogPolicy
    from dw_platform.store import MemoryStore
    from dw_platform.streaming import StreamDefinition, StreamingScalingManager, TopicSettings
    from dw_platform.streaming.brokers.embedded import EmbeddedBroker

    store = MemoryStore()
    policy = LogPolicy(segment_bytes=256 << 20)
    with EmbeddedBroker(Log(directory), store) as broker:
        definition = StreamDefinition(
            topic="orders", broker=broker, settings=TopicSettings(partitions=4, policy=policy), capacity=1_000_000_000
        )
        with StreamingScalingManager([definition], store=store) as manager:
            publisher: Any = _Nowhere(manager) if kind == "parsing" else manager
            yield create_app(publisher, settings=settings, keys=KeyRing.open_to_all(), clock=SystemClock())


class _Nowhere:
    """A publisher that takes everything and keeps nothing."""

    def __init__(self, manager: Any) -> None:
        self.topics = manager.topics

    async def publish(self, topic: str, records: Any, **_: Any) -> Any:
        from dw_platform.streaming.publishing import PartitionReceipt, PublishReceipt

        return PublishReceipt(topic, len(records), (PartitionReceipt(0, 0, len(records)),))


async def _bare(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Read the body, answer `ok`."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    parts = []
    while True:
        message = await receive()
        parts.append(message["body"])
        if not message["more_body"]:
            break
    del parts
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
