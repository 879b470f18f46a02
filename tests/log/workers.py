"""What other processes do to a log in tests; forked from a server that has imported everything."""

import multiprocessing
from multiprocessing.connection import Connection

from dw_platform.log import FileDisk, FsyncPolicy, LogPolicy, PartitionLog, PartitionReader, Records

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "pandas", "dw_platform.log"])
SEGMENT_BYTES = 20_000


def value_of(number: int) -> bytes:
    """A value that shows which one it is, whole; sizes differ, so a mixture of two would show."""
    return b"%012d" % number + bytes([number % 251]) * (number * 7919 % 700)


def append_forever(directory: str, acknowledged: Connection) -> None:
    """Append batches of rising numbers and tell of each one that was acknowledged, until killed."""
    log = PartitionLog.open(directory, LogPolicy(fsync=FsyncPolicy.always(), segment_bytes=SEGMENT_BYTES))
    number = log.recovery.end_offset
    while True:
        count = 1 + number % 5
        result = log.append(Records([value_of(number + index) for index in range(count)]))
        acknowledged.send((result.base_offset, result.next_offset))
        number = result.next_offset


def read_forever(directory: str, found: Connection, stop: Connection) -> None:
    """Read as records come and check each; at the end tell how many there were."""
    reader, offset = PartitionReader(directory, disk=FileDisk()), 0
    while True:
        last_round = stop.poll(0)
        while offset < reader.end_offset():
            batch = reader.read(offset, max_bytes=3000)
            for part in batch.batches:
                for at, value in zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True):
                    if at != offset or value != value_of(at):
                        found.send(f"offset {at} after {offset - 1} holds {value[:20]!r}")
                        return
                    offset += 1
        if last_round:
            found.send(offset)
            return
        stop.poll(0.001)


def hold(directory: str, ready: Connection) -> None:
    """Open the log, say so, and do nothing until killed."""
    log = PartitionLog.open(directory)
    log.append(Records([b"held"]))
    ready.send("open")
    ready.recv()
