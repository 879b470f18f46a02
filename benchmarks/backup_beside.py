"""An ingest in a process of its own, alone and beside a backup that never ends: what it keeps of its speed.

The ingest brings the same records from the embedded log into a new table again and again, with a warm Spark session of
its own. Beside it this process copies the big table at Low priority, each time into a repository with nothing in it.
"""

import contextlib
import multiprocessing
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from benchmarks.backup_ours import Ours
from dw_platform.config import parse_config
from dw_platform.log import Records
from dw_platform.pipelines import Platform
from dw_platform.pipelines.brokers import open_stream_broker, topic_settings
from dw_platform.pipelines.ingest import StreamIngest, find_stream

PLATFORM = """
name: beside
home: home
streams:
  - {name: events, table: bench.events, partitions: 4}
"""
ALONE, BESIDE = "ingest alone", "ingest beside a backup at Low priority"
COPYING = "the backup beside it"
_PARTITIONS, _RECORD_BYTES, _BATCH = 4, 100, 5_000
_PROCESSES = multiprocessing.get_context("spawn")


def measure_beside(ours: Ours, size: float, folder: Path, *, records: int, passes: int, repeats: int) -> list[Any]:
    """Take turns, alone and beside, after one round that does not count; `size` is that of the table in MB."""
    rates: dict[str, list[float]] = {ALONE: [], BESIDE: [], COPYING: []}
    with _ingesting(folder, records) as asked:
        for turn in range(repeats + 1):
            alone = asked(passes)
            with _Copying(ours) as copying:
                beside = asked(passes)
            if turn:
                rates[ALONE].append(alone)
                rates[BESIDE].append(beside)
                rates[COPYING].append(size * copying.done / copying.seconds)
    ratios = [mine / peer for mine, peer in zip(rates[BESIDE], rates[ALONE], strict=True)]
    measures = [_row(ALONE, "records/s", rates), _row(BESIDE, "records/s", rates), _row(COPYING, "MB/s", rates)]
    measures[1] |= {"peer": ALONE, "ratio": round(statistics.median(ratios), 2)}
    measures[1]["ratios"] = [round(ratio, 2) for ratio in ratios]
    return measures


def _row(name: str, unit: str, rates: dict[str, list[float]]) -> dict[str, Any]:
    runs = [round(rate, 1) for rate in rates[name]]
    return {"name": name, "unit": unit, "runs": runs, "median": round(statistics.median(runs), 1)}


class _Copying:
    """Backups of one table, one after the other, from the first byte that is copied to the end of the block."""

    def __init__(self, ours: Ours) -> None:
        self._ours, self._aside = ours, ours.platform.home / "aside"
        self._begun, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="copying")
        self._error: BaseException | None = None
        self.done, self.seconds = 0, 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        shutil.rmtree(self._aside, ignore_errors=True)
        os.sync()  # what is still to be written must not slow down the ingest that runs alone next
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        started = time.monotonic()
        try:
            while not self._stop.is_set():
                self._next_repository()
                self._ours.back_up(on_progress=lambda _: self._begun.set())
                self.done += 1
        except BaseException as error:  # noqa: BLE001  raised by whoever waits for the end
            self._error = error
        finally:
            self.seconds = time.monotonic() - started
            self._begun.set()

    def _next_repository(self) -> None:
        # Removing a repository is no part of a backup, so that waits until the turn is over.
        self._aside.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._ours.kept.rename(self._aside / f"{self.done}")
        self._ours.empty()


@contextlib.contextmanager
def _ingesting(folder: Path, records: int) -> Iterator[Any]:
    """Start the other process; give what makes it ingest so many times and returns its records a second."""
    here, there = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_ingest, args=(folder, records, there))
    process.start()
    there.close()  # so that an answer that never comes is an end of the pipe

    def asked(passes: int) -> float:
        here.send(passes)
        return float(here.recv())

    try:
        here.recv()
        yield asked
        here.send(0)
    finally:
        here.close()
        process.join(60)
        process.kill()


def _ingest(folder: Path, records: int, pipe: Connection) -> None:
    folder.mkdir(parents=True)
    with Platform(parse_config(PLATFORM, source=folder / "platform.yaml", environ={})) as platform:
        _publish(platform, records)
        _ingest_once(platform, records)  # opens the session, if there is enough to do for one
        pipe.send(True)
        while passes := pipe.recv():
            pipe.send(passes * records / sum(_ingest_once(platform, records) for _ in range(passes)))


def _publish(platform: Platform, records: int) -> None:
    section = find_stream(platform, "events")
    random = np.random.default_rng(7)
    with open_stream_broker(platform, section) as broker:
        broker.ensure_topic(section.topic_name, topic_settings(section))
        for number, first in enumerate(range(0, records, _BATCH)):
            values = _values(random, min(_BATCH, records - first))
            broker.publish(section.topic_name, number % _PARTITIONS, Records(values))


def _values(random: np.random.Generator, count: int) -> pa.Array:
    text = random.integers(97, 123, count * _RECORD_BYTES, dtype=np.uint8)
    ends = np.arange(0, count * _RECORD_BYTES + 1, _RECORD_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _ingest_once(platform: Platform, records: int) -> float:
    """Bring everything into a new table and return the seconds that took."""
    shutil.rmtree(platform.lake.location("bench.events").uri, ignore_errors=True)
    with StreamIngest(platform, find_stream(platform, "events")) as ingest:
        report = ingest.catch_up()
    assert (report.rows, report.lag) == (records, 0)
    return report.duration_s
