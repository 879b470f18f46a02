"""The partition log beside its peers: durable appends, group commit, reading as Arrow, recovery, kill -9.

Every peer syncs before it acknowledges: rocksdict with WriteOptions.sync, lmdb with its default sync at commit,
SQLite in WAL mode with synchronous=FULL. "bare" is one write of the very bytes that the log writes and fdatasync.
"""

import contextlib
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.harness import Measure, Options, measure
from dw_platform.log import FsyncPolicy, LogPolicy, PartitionLog, PartitionReader, Records
from dw_platform.log.columns import Columns
from dw_platform.log.frame import encode_frame

NAME = "log"
DESCRIPTION = "Durable appends, group commit, reading as Arrow and recovery, beside rocksdict, lmdb and SQLite."

_BATCH, _RECORD, _PUBLISHERS = 1000, 100, 32
_PEERS = ("rocksdict", "lmdb", "google-crc32c", "numpy")
Append = Callable[[Sequence[bytes]], Any]


def run(options: Options) -> dict[str, Any]:
    """Run all measures; the folder decides which disk is measured."""
    folder = options.directory or Path(tempfile.mkdtemp())
    repeats = options.repeats or (1 if options.quick else 5)
    batches = 20 if options.quick else 300
    singles = 20 if options.quick else 100
    rows = 100_000 if options.quick else options.rows or 5_000_000
    gigabyte = 1 << (24 if options.quick else 30)
    with contextlib.ExitStack() as stack:
        measures = _batches(stack, folder, batches, repeats)
        measures += _singles(stack, folder, singles, repeats)
        measures += _reading(folder, rows, repeats)
        measures += _recovery(folder, gigabyte, repeats)
    return {
        "measures": measures,
        "checks": {
            "durability": "one fdatasync or the peer's own sync before every acknowledgement; a virtual disk, so "
            "this says nothing about power loss",
            "versions": ", ".join(f"{name} {metadata.version(name)}" for name in _PEERS)
            + f", SQLite {sqlite3.sqlite_version}",
            "killed writers": _kill_rounds(folder, 3 if options.quick else 100),
            "load after": ", ".join(f"{value:.2f}" for value in os.getloadavg()),
        },
    }


def _batches(stack: contextlib.ExitStack, folder: Path, batches: int, repeats: int) -> list[dict[str, Any]]:
    """Append batches of 1000 records of 100 bytes, each with its fsync."""
    values = [bytes([number % 256]) * _RECORD for number in range(_BATCH)]
    writers: dict[str, Append] = {
        "log": _log(stack, folder / "batch", FsyncPolicy.always()),
        "bare write and fdatasync": _bare(stack, folder / "bare", values),
        "rocksdict": _rocksdict(stack, folder / "batch.rocks"),
        "lmdb": _lmdb(stack, folder / "batch.lmdb"),
        "SQLite": _sqlite(stack, folder / "batch.sqlite"),
    }

    def append(write: Append) -> Callable[[], None]:
        return lambda: [write(values) for _ in range(batches)] and None

    found = measure(
        [
            Measure(name=name, run=append(write), peer=None if name == "log" else "log")
            for name, write in writers.items()
        ],
        repeats=repeats,
        units=batches * _BATCH,
        unit="records/s, batches of 1000 x 100 B, fsync each",
    )
    return _against_peers(found)


def _singles(stack: contextlib.ExitStack, folder: Path, each: int, repeats: int) -> list[dict[str, Any]]:
    """Let 32 threads publish single messages, each waiting for its acknowledgement."""
    writers: dict[str, Append] = {
        "log, 32 publishers": _log(stack, folder / "single", FsyncPolicy.always()),
        "rocksdict, 32 publishers": _rocksdict(stack, folder / "single.rocks"),
        "SQLite, 32 publishers": _sqlite(stack, folder / "single.sqlite"),
    }

    def publish(write: Append) -> Callable[[], None]:
        return lambda: _together(lambda: [write([b"x" * _RECORD]) for _ in range(each)])

    first = next(iter(writers))
    found = measure(
        [
            Measure(name=name, run=publish(write), peer=None if name == first else first)
            for name, write in writers.items()
        ],
        repeats=repeats,
        units=each * _PUBLISHERS,
        unit="messages/s, one message and one acknowledgement each",
    )
    return _against_peers(found)


def _against_peers(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turn each peer's ratio to the log round: how many times the peer the log is."""
    for row in found[1:]:
        row["ratios"] = [round(own / other, 2) for own, other in zip(found[0]["runs"], row["runs"], strict=True)]
        row["ratio"] = sorted(row["ratios"])[len(row["ratios"]) // 2]
        row["peer"] = f"{found[0]['name']} / this"
    return found


def _together(work: Callable[[], Any]) -> None:
    threads = [threading.Thread(target=work) for _ in range(_PUBLISHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _reading(folder: Path, rows: int, repeats: int) -> list[dict[str, Any]]:
    """Read a log as Arrow batches, every checksum verified; the file is in the page cache."""
    directory = folder / "read"
    _fill(directory, rows, segment_bytes=64 << 20)

    def read() -> None:
        count = offset = 0
        with PartitionReader(directory) as reader:
            while offset < rows:
                batch = reader.read(offset, max_bytes=1 << 20)
                count += len(batch)
                offset = batch.next_offset
        assert count == rows

    return measure([Measure(name="read as Arrow", run=read)], repeats=repeats, units=rows, unit="records/s, verified")


def _recovery(folder: Path, size: int, repeats: int) -> list[dict[str, Any]]:
    """Open a log after an unclean stop, beside reading its files."""
    directory = folder / "recover"
    _fill(directory, size // (_RECORD + 4), segment_bytes=64 << 20)
    clean = directory / "clean"
    files = sorted(directory.glob("*.segment"))
    total = sum(path.stat().st_size for path in files)

    def recover() -> None:
        clean.unlink(missing_ok=True)
        log = PartitionLog.open(directory)
        assert log.recovery.checked_bytes == total
        log.close()

    def read() -> None:
        for path in files:
            with path.open("rb", buffering=0) as file:
                while file.read(4 << 20):
                    pass

    return measure(
        [Measure(name="recovery", run=recover, peer="reading the files"), Measure(name="reading the files", run=read)],
        repeats=min(repeats, 3),
        units=total / 2**20,
        unit=f"MiB/s, {total / 2**20:.0f} MiB, in the page cache",
    )


def _fill(directory: Path, rows: int, segment_bytes: int) -> None:
    policy = LogPolicy(fsync=FsyncPolicy.never(), segment_bytes=segment_bytes)
    values = [bytes([number % 256]) * _RECORD for number in range(_BATCH)]
    with PartitionLog.open(directory, policy) as log:
        for start in range(0, rows, _BATCH):
            log.append(Records(values[: rows - start]))


def _log(stack: contextlib.ExitStack, directory: Path, fsync: FsyncPolicy) -> Append:
    log = stack.enter_context(PartitionLog.open(directory, LogPolicy(fsync=fsync)))
    return lambda values: log.append(Records(values))


def _bare(stack: contextlib.ExitStack, path: Path, values: Sequence[bytes]) -> Append:
    pieces, _ = encode_frame(Columns.of(Records(values)), base_offset=0, durable_offset=0, appended_ms=0, salt=0)
    frame = b"".join(bytes(piece) for piece in pieces)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    stack.callback(os.close, descriptor)

    def write(_values: Sequence[bytes]) -> None:
        os.write(descriptor, frame)
        os.fdatasync(descriptor)

    return write


def _rocksdict(stack: contextlib.ExitStack, path: Path) -> Append:
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    store = rocksdict.Rdict(str(path), options=options)
    stack.callback(store.close)
    synced = rocksdict.WriteOptions()
    synced.sync = True
    store.set_write_options(synced)
    numbers = _Numbers()

    def write(values: Sequence[bytes]) -> None:
        if len(values) == 1:
            store[numbers.take(1).to_bytes(8, "big")] = values[0]
            return
        batch = rocksdict.WriteBatch(raw_mode=True)
        for number, value in enumerate(values, numbers.take(len(values))):
            batch.put(number.to_bytes(8, "big"), value)
        store.write(batch, synced)

    return write


def _lmdb(stack: contextlib.ExitStack, path: Path) -> Append:
    import lmdb

    store = lmdb.open(str(path), map_size=1 << 33)
    stack.callback(store.close)
    numbers = _Numbers()

    def write(values: Sequence[bytes]) -> None:
        with store.begin(write=True) as transaction:
            for number, value in enumerate(values, numbers.take(len(values))):
                transaction.put(number.to_bytes(8, "big"), value, append=True)

    return write


def _sqlite(stack: contextlib.ExitStack, path: Path) -> Append:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    stack.callback(connection.close)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, value BLOB)")
    lock = threading.Lock()

    def write(values: Sequence[bytes]) -> None:
        with lock:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO records (value) VALUES (?)", ((value,) for value in values))
            connection.execute("COMMIT")

    return write


class _Numbers:
    """Rising numbers for all threads."""

    def __init__(self) -> None:
        self._next, self._lock = 0, threading.Lock()

    def take(self, count: int) -> int:
        with self._lock:
            first, self._next = self._next, self._next + count
            return first


def _kill_rounds(folder: Path, rounds: int) -> str:
    """Kill a writer again and again, and count what it had acknowledged and what was found."""
    import multiprocessing

    directory, processes, promised = folder / "kill", multiprocessing.get_context("forkserver"), 0
    processes.set_forkserver_preload(["dw_platform.log", "pandas"])
    for number in range(rounds):
        receive, send = processes.Pipe(duplex=False)
        writer = processes.Process(target=_append_forever, args=(str(directory), send))
        writer.start()
        send.close()
        for _ in range(1 + number % 17):
            promised = max(promised, receive.recv())
        time.sleep(number % 7 / 2000)  # any moment inside an append
        writer.kill()
        writer.join()
        with contextlib.suppress(EOFError):
            while True:
                promised = max(promised, receive.recv())
        with PartitionLog.open(directory) as log:
            if log.recovery.end_offset < promised or log.recovery.lost:
                return f"round {number}: {promised} acknowledged, {log.recovery.end_offset} found"
    return f"{rounds} rounds of kill -9, {promised} records acknowledged, none lost"


def _append_forever(directory: str, acknowledged: Any) -> None:
    log = PartitionLog.open(directory, LogPolicy(segment_bytes=200_000))
    while True:
        acknowledged.send(log.append(Records([b"x" * _RECORD] * 7)).next_offset)
