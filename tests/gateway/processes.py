"""`dw gateway` as a process of its own, forked from a server that has imported everything; and a client for it."""

import http.client
import json
import multiprocessing
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from dw_platform.gateway.address import gateway_address
from dw_platform.pipelines import Platform

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["pytest", "pandas", "uvloop", "dw_platform.cli.app", "dw_platform.gateway.app", "dw_platform.pipelines.streams"]
)
STREAMS = """
name: tested
home: home
streams:
  - {name: orders, table: shop.orders, partitions: 2}
"""


class Gateway:
    """A gateway that runs, and where."""

    def __init__(self, process: BaseProcess, url: str) -> None:
        self.process, self.url = process, url

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send one request on a connection of its own; return the status and the body as JSON."""
        connection = self.connection()
        try:
            connection.request(method, path, body, {"Content-Type": "application/x-ndjson", **(headers or {})})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPConnection:
        scheme, _, place = self.url.partition("://")
        if scheme == "http":
            return http.client.HTTPConnection(place, timeout=60)
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(place, timeout=60, context=trusting)

    def stop(self) -> int | None:
        """Ask it to stop, and return its exit code."""
        self.process.terminate()
        self.process.join(60)
        return self.process.exitcode


def run_gateway(arguments: tuple[str, ...]) -> None:
    """Do what `dw gateway` does, and end with its exit code."""
    from dw_platform.cli.app import run

    raise SystemExit(run(["gateway", *arguments]))


@contextmanager
def running_gateway(file: Path, *arguments: str) -> Iterator[Gateway]:
    """Start a gateway on any free port and yield it once it has told its address; at the end it is killed."""
    process = PROCESSES.Process(target=run_gateway, args=(("--config", str(file), "--port", "0", *arguments),))
    process.start()
    try:
        yield Gateway(process, _address(file, process))
    finally:
        process.kill()
        process.join()


def _address(file: Path, process: BaseProcess) -> str:
    deadline = time.monotonic() + 60
    with Platform.open(file, environ={}) as platform:
        while (url := gateway_address(platform.store)) is None:
            assert process.exitcode is None, f"it ended with {process.exitcode}"
            assert time.monotonic() < deadline, "it has not told its address"
            time.sleep(0.02)
    return url


def values_in(file: Path, topic: str = "orders") -> list[bytes]:
    """Return every value of the topic, read from the log on disk by this process."""
    from dw_platform.pipelines.streams import open_streams

    values: list[bytes] = []
    with Platform.open(file, environ={}) as platform, open_streams(platform) as streams:
        for partition, (start, end) in streams.offsets(topic).items():
            at = start
            while at < end:
                batch = streams.read(topic, partition, at)
                values += [value for part in batch.batches for value in part["value"].to_pylist()]
                at = batch.next_offset
    return values


def write_platform(folder: Path, text: str = STREAMS) -> Path:
    file = folder / "platform.yaml"
    file.write_text(text)
    return file
