"""Real processes are killed; what they acknowledged is there, in order, for readers in other processes too."""

import random
import resource
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dw_platform.log import (
    LogPolicy,
    PartitionLockedError,
    PartitionLog,
    PartitionReader,
    PartitionStoppedError,
    Records,
    verify,
)
from tests.log.workers import PROCESSES, append_forever, hold, read_forever, value_of

pytestmark = pytest.mark.crash
ROUNDS = 10


def kill_a_writer(directory: Path, chance: random.Random) -> int:
    """Let a writer acknowledge a few batches, kill it at any moment, and return the end of what it acknowledged."""
    receive, send = PROCESSES.Pipe(duplex=False)
    writer = PROCESSES.Process(target=append_forever, args=(str(directory), send))
    writer.start()
    send.close()
    end = 0
    try:
        for _ in range(chance.randint(1, 40)):
            assert receive.poll(60), "the writer acknowledged nothing"
            _, end = receive.recv()
        # Any moment will do: the point is that it falls anywhere inside an append.
        time.sleep(chance.uniform(0, 0.003))
    finally:
        writer.kill()
        writer.join()
    with receive:
        while receive.poll():
            try:
                _, end = receive.recv()
            except EOFError:
                break
    return end


def test_a_killed_writer_loses_nothing_acknowledged_and_a_reader_sees_all_in_order(tmp_path: Path) -> None:
    chance = random.Random(4)
    found, tell = PROCESSES.Pipe(duplex=False)
    stopped, stop = PROCESSES.Pipe(duplex=False)
    consumer = PROCESSES.Process(target=read_forever, args=(str(tmp_path), tell, stopped))
    consumer.start()
    try:
        promised = 0
        for _ in range(ROUNDS):
            end = kill_a_writer(tmp_path, chance)
            assert end > promised
            promised = end
            with PartitionLog.open(tmp_path) as log:
                assert log.recovery.lost is None
                # At most the one batch that nobody was told of.
                assert promised <= log.recovery.end_offset <= promised + 5
                # The next writer goes on after it.
                promised = log.recovery.end_offset
        stop.send("stop")
        assert found.poll(60)
        assert found.recv() == promised
    finally:
        consumer.kill()
        consumer.join()
    assert verify(tmp_path) == []
    values = [value for part in _batches(tmp_path) for value in part["value"].to_pylist()]
    assert values == [value_of(number) for number in range(promised)]


def _batches(directory: Path) -> list[object]:
    reader, batches, offset = PartitionReader(directory), list[object](), 0
    while offset < reader.end_offset():
        batch = reader.read(offset)
        batches += batch.batches
        offset = batch.next_offset
    return batches


def test_the_lock_of_a_killed_writer_is_free_at_once(tmp_path: Path) -> None:
    mine, theirs = PROCESSES.Pipe()
    holder = PROCESSES.Process(target=hold, args=(str(tmp_path), theirs))
    holder.start()
    try:
        assert mine.poll(60)
        with pytest.raises(PartitionLockedError) as caught:
            PartitionLog.open(tmp_path)
        assert str(holder.pid) in caught.value.holder
    finally:
        holder.kill()
        holder.join()
    with PartitionLog.open(tmp_path) as log:
        assert log.recovery.end_offset == 1


def append_beyond_the_limit(directory: str, result: Connection) -> None:
    log = PartitionLog.open(directory)
    log.append(Records([b"kept"]))
    # A file size limit fails a write in the middle, as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        log.append(Records([b"x" * 500_000]))
    except PartitionStoppedError as error:
        result.send(error.reason)
    else:
        result.send("it was acknowledged")


def test_a_write_without_space_is_not_acknowledged_and_the_rest_is_kept(tmp_path: Path) -> None:
    receive, send = PROCESSES.Pipe(duplex=False)
    writer = PROCESSES.Process(target=append_beyond_the_limit, args=(str(tmp_path), send))
    writer.start()
    send.close()
    with receive:
        assert receive.poll(60)
        assert "File too large" in receive.recv()
    writer.join(60)
    with PartitionLog.open(tmp_path, LogPolicy()) as log:
        assert log.recovery.torn is not None
        assert log.recovery.end_offset == 1
        assert log.append(Records([b"works again"])).base_offset == 1
