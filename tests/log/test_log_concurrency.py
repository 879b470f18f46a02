"""Readers beside a writer that retains and compacts, and publishers that share fsyncs."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from dw_platform.foundation import FakeClock
from dw_platform.log import (
    FsyncPolicy,
    LogPolicy,
    MaintenanceFailedError,
    PartitionLog,
    PartitionReader,
    PartitionStoppedError,
    Records,
    RecordsExpiredError,
    Retention,
    verify,
)
from dw_platform.log.frame import HEADER_BYTES
from tests.fakes.faulty_disk import FaultyDisk


def test_publishers_that_wait_together_share_an_fsync(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path) as log:
        with log._files:  # whoever leads waits here, and the others queue up behind
            futures = [log.submit(Records([b"%d" % number])) for number in range(100)]
        assert [future.result(60).base_offset for future in futures] == list(range(100))
        assert log.stats().fsyncs <= 2


def test_many_publishers_get_their_own_offsets_in_their_own_order(tmp_path: Path) -> None:
    def publish(number: int) -> list[int]:
        return [log.append(Records([b"%d %d" % (number, turn)])).base_offset for turn in range(50)]

    with PartitionLog.open(tmp_path) as log, ThreadPoolExecutor(16) as pool:
        offsets = list(pool.map(publish, range(16)))
        assert publish(16) == list(range(800, 850))
        assert all(own == sorted(own) for own in offsets)
        with PartitionReader(tmp_path) as reader:
            values = reader.read(0).to_table()["value"].to_pylist()
        assert [[values[offset] for offset in own] for own in offsets] == [
            [b"%d %d" % (number, turn) for turn in range(50)] for number in range(16)
        ]


def test_every_waiting_publisher_is_told_when_the_disk_fails() -> None:
    disk = FaultyDisk()
    log = PartitionLog.open("p", disk=disk)
    with ThreadPoolExecutor(8) as pool:
        with log._files:
            publishers = [pool.submit(log.append, Records([b"x"])) for _ in range(8)]
            futures = [log.submit(Records([b"y"])) for _ in range(8)]
            disk.failing_syncs = 1
        for told in (*publishers, *futures):
            with pytest.raises(PartitionStoppedError):
                told.result(60)


def test_what_is_called_on_an_acknowledgement_may_append_again(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path) as log:
        told = threading.Event()

        def append_twice(_future: object) -> None:
            log.append(Records([b"again"]))
            log.append(Records([b"and again"]))
            told.set()

        with log._files:
            first = log.submit(Records([b"first"]))
            first.add_done_callback(append_twice)
            others = [log.submit(Records([b"other"])) for _ in range(20)]
        assert told.wait(60)
        assert min(future.result(60).base_offset for future in [first, *others]) == 0
    with PartitionReader(tmp_path) as reader:
        assert reader.end_offset() == 23


def test_an_interval_collects_publishers_until_it_is_over(tmp_path: Path) -> None:
    clock = FakeClock()
    policy = LogPolicy(fsync=FsyncPolicy.every_interval(timedelta(seconds=10)))
    with PartitionLog.open(tmp_path, policy, clock=clock) as log:
        log.append(Records([b"one"]))
        assert clock.monotonic() == 10
        log.append(Records([b"two"]))
        assert clock.monotonic() == 20
        assert log.stats().fsyncs == 2


def test_every_nth_message_brings_an_fsync_and_sync_brings_one_at_once(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path, LogPolicy(fsync=FsyncPolicy.every_messages(10))) as log:
        for _ in range(9):
            log.append(Records([b"x"]))
        assert log.stats().fsyncs == 0
        log.append(Records([b"x"]))
        assert log.stats().fsyncs == 1
        log.append(Records([b"x"]))
        log.sync()
        assert log.stats().fsyncs == 2


def test_a_batch_of_one_costs_less_than_a_hundred_bytes(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path) as log:
        before = log.stats().bytes
        log.append(Records([b"v" * 100], keys=[b"k" * 8]))
        assert HEADER_BYTES < log.stats().bytes - before - 108 < 100


def test_a_reader_does_not_see_what_is_written_but_not_yet_fsynced() -> None:
    disk = FaultyDisk()
    log = PartitionLog.open("p", disk=disk)
    log.append(Records([b"one"]))
    disk.failing_syncs = 1
    with pytest.raises(PartitionStoppedError):
        log.append(Records([b"written, not fsynced"]))
    reader = PartitionReader("p", disk=disk)
    assert reader.end_offset() == 1
    assert len(reader.read(0)) == 1


def test_readers_go_on_while_segments_are_dropped(tmp_path: Path) -> None:
    policy = LogPolicy(
        fsync=FsyncPolicy.never(), segment_bytes=5000, retention=Retention(max_age=None, max_bytes=20_000)
    )
    done = threading.Event()

    def follow() -> int:
        reader, offset, seen = PartitionReader(tmp_path), 0, 0
        while not (done.is_set() and offset == reader.end_offset()):
            try:
                batch = reader.read(offset, max_bytes=1500)
            except RecordsExpiredError as expired:
                offset = expired.earliest
                continue
            for part in batch.batches:
                for at, value in zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True):
                    assert value == b"%08d" % at
                    seen += 1
            offset = batch.next_offset
        return seen

    with PartitionLog.open(tmp_path, policy) as log, ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(follow) for _ in range(3)]
        for start in range(0, 20_000, 50):
            log.append(Records([b"%08d" % number for number in range(start, start + 50)]))
            log.retain()
        done.set()
        assert all(reader.result(60) > 0 for reader in readers)
        assert log.stats().bytes < 30_000


def test_readers_see_the_newest_of_each_key_whatever_compaction_does_meanwhile(tmp_path: Path) -> None:
    policy = LogPolicy(fsync=FsyncPolicy.never(), segment_bytes=5000, compacted=True)
    keys = [b"key %d" % number for number in range(7)]
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            reader, offset, latest = PartitionReader(tmp_path), 0, dict[bytes, int]()
            end = reader.end_offset()
            while offset < end:
                batch = reader.read(offset, max_bytes=1500)
                for part in batch.batches:
                    offsets = part["offset"].to_pylist()
                    assert offsets == sorted(set(offsets))
                    assert offsets[0] >= offset
                    latest.update(zip(part["key"].to_pylist(), offsets, strict=True))
                offset = batch.next_offset
            # Each round wrote every key, so the newest of each is in the last rounds.
            assert end < 70 or all(latest[key] >= end - 14 for key in keys)
            reader.close()

    with PartitionLog.open(tmp_path, policy) as log, ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(follow) for _ in range(2)]
        for number in range(1500):
            log.append(Records([b"%d" % number] * 7, keys=keys))
            if number % 100 == 99:
                assert log.compact() > 0
        done.set()
        for reader in readers:
            reader.result(60)


@pytest.mark.parametrize("work", ["compact", "retain"])
def test_a_crash_at_any_step_of_maintenance_leaves_a_whole_log(work: str) -> None:
    policy = LogPolicy(segment_bytes=1024, compacted=True, retention=Retention(max_age=None, max_bytes=2000))
    for steps in range(60):
        disk = FaultyDisk(steps)
        log = PartitionLog.open("p", policy, disk=disk)
        for number in range(40):
            log.append(Records([b"%d" % number + b"." * 60], keys=[b"%d" % (number % 3)]))
        disk.steps = steps
        with contextlib.suppress(MaintenanceFailedError):
            log.compact() if work == "compact" else log.retain()
        disk.crash()
        with PartitionLog.open("p", policy, disk=disk) as again:
            assert again.recovery.lost is None
            assert again.recovery.end_offset == 40
            reader, newest = PartitionReader("p", disk=disk), dict[bytes, int]()
            offset = reader.start_offset()
            while offset < 40:
                batch = reader.read(offset)
                for part in batch.batches:
                    newest.update(zip(part["key"].to_pylist(), part["offset"].to_pylist(), strict=True))
                offset = batch.next_offset
            assert newest == {b"0": 39, b"1": 37, b"2": 38}
        assert verify("p", disk=disk) == []
