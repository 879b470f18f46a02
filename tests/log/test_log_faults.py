"""Power cuts, killed processes, full and failing disks: what was acknowledged is there, in order, and only that."""

import contextlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.foundation import FakeClock
from dw_platform.log import (
    FsyncPolicy,
    LogPolicy,
    PartitionLog,
    PartitionReader,
    PartitionStoppedError,
    Records,
    RecordsLostError,
    verify,
)
from dw_platform.log.verify import Severity
from tests.fakes.faulty_disk import FaultyDisk

SMALL = 1500  # bytes of a segment: a few batches, so that rolling happens often
FAULTS = ["crash", "kill", "close", "fail_sync", "fill", "stop"]


class Simulation:
    """Appends to a log on a faulty disk and remembers what was promised."""

    def __init__(self, disk: FaultyDisk, fsync: FsyncPolicy) -> None:
        self.disk, self.clock = disk, FakeClock()
        self.policy = LogPolicy(fsync=fsync, segment_bytes=SMALL)
        self.promised: dict[int, bytes] = {}
        self.unsure: list[list[bytes]] = []
        self.missing: set[int] = set()
        self.lost: list[tuple[int, int]] = []
        self.number = 0
        self.log = self.open()

    def open(self) -> PartitionLog:
        return PartitionLog.open("p", self.policy, clock=self.clock, disk=self.disk)

    def close(self) -> None:
        """Close in order, or fail at it and die."""
        with contextlib.suppress(PartitionStoppedError):
            self.log.close()
        self.disk.kill()

    def append(self, count: int, size: int) -> None:
        values = [b"%d:" % (self.number + index) + b"x" * size for index in range(count)]
        self.number += count
        try:
            result = self.log.append(Records(values))
        except PartitionStoppedError:
            self.unsure.append(values)
            self.reopen(self.disk.kill)
            return
        assert result.next_offset - result.base_offset == count
        assert result.base_offset > max(self.promised, default=-1)
        self.promised.update(zip(range(result.base_offset, result.next_offset), values, strict=True))

    def burst(self, count: int, size: int) -> None:
        """Publish several batches that become frames of their own and share one fsync."""
        batches = []
        with self.log._files:  # nobody commits while they queue up
            for _ in range(count):
                values = [b"%d:" % self.number + b"x" * size]
                self.number += 1
                batches.append((values, self.log.submit(Records(pa.array(values, pa.binary())))))
        stopped = False
        for values, future in batches:
            try:
                self.promised[future.result(60).base_offset] = values[0]
            except PartitionStoppedError:
                stopped = True
                self.unsure.append(values)
        if stopped:
            self.reopen(self.disk.kill)

    def reopen(self, how: Callable[[], None], *, may_lose: int = 0) -> None:
        """End the process in some way, open the log again and compare it with what was promised."""
        how()
        self.log = self.open()
        found, self.lost = read_all(self.disk)
        missing = [offset for offset in self.promised if offset not in found]
        assert len(missing) <= may_lose
        for offset in missing:
            del self.promised[offset]
        # What a power cut takes is the end of what was promised, never something in the middle.
        assert not missing or min(missing) > max(self.promised, default=-1)
        self.missing |= set(missing)
        extra = {offset: value for offset, value in found.items() if offset not in self.promised}
        assert {offset: found[offset] for offset in self.promised} == self.promised
        assert all(set(range(first, end)) <= self.missing for first, end in self.lost)
        # Beyond what was promised there may be whole batches whose publisher got an error, and nothing else.
        appeared = [extra[offset] for offset in sorted(extra)]
        assert appeared == [value for batch in self.unsure for value in batch][: len(appeared)] or not appeared
        assert len(appeared) in {sum(map(len, self.unsure[:count])) for count in range(len(self.unsure) + 1)}
        self.promised, self.unsure = found, []


def read_all(disk: FaultyDisk) -> tuple[dict[int, bytes], list[tuple[int, int]]]:
    reader, found, lost = PartitionReader("p", disk=disk), dict[int, bytes](), list[tuple[int, int]]()
    offset = reader.start_offset()
    while offset < reader.end_offset():
        try:
            batch = reader.read(offset, max_bytes=700)
        except RecordsLostError as error:
            lost.append((offset, error.earliest))
            offset = error.earliest
            continue
        for part in batch.batches:
            found.update(zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True))
        offset = batch.next_offset
    return found, lost


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6), st.integers(0, 900)),
        st.tuples(st.just("burst"), st.integers(2, 5), st.integers(0, 900)),
        st.tuples(st.sampled_from(FAULTS), st.integers(0, 2000), st.just(0)),
    ),
    max_size=30,
)


def run(simulation: Simulation, script: list[tuple[str, int, int]], may_lose: int) -> None:
    disk = simulation.disk
    for step, count, size in script:
        match step:
            case "append":
                simulation.append(count, size)
            case "burst":
                simulation.burst(count, size)
            case "crash":
                simulation.reopen(disk.crash, may_lose=may_lose)
            case "kill":
                simulation.reopen(disk.kill)
            case "close":
                simulation.reopen(simulation.close)
            case "fail_sync":
                disk.failing_syncs = 1
            case "fill":
                disk.room = count
            case "stop":
                disk.steps = count % 20
    disk.room, disk.failing_syncs, disk.steps = None, 0, None
    simulation.reopen(disk.crash, may_lose=may_lose)
    assert all(finding.severity in {Severity.NOTE, Severity.LOST} for finding in verify("p", disk=disk))


@settings(max_examples=150, deadline=None)
@given(script=steps, seed=st.integers(0, 2**32))
def test_no_acknowledged_record_is_lost_when_every_append_is_fsynced(
    script: list[tuple[str, int, int]], seed: int
) -> None:
    run(Simulation(FaultyDisk(seed), FsyncPolicy.always()), script, may_lose=0)


@settings(max_examples=100, deadline=None)
@given(script=steps, seed=st.integers(0, 2**32), messages=st.integers(1, 20))
def test_a_power_cut_takes_fewer_records_than_the_policy_allows(
    script: list[tuple[str, int, int]], seed: int, messages: int
) -> None:
    # A batch is fsynced as a whole, so fewer than `messages` are at risk.
    run(Simulation(FaultyDisk(seed), FsyncPolicy.every_messages(messages)), script, may_lose=messages - 1)


@settings(max_examples=100, deadline=None)
@given(script=steps, seed=st.integers(0, 2**32))
def test_without_fsync_a_power_cut_leaves_a_beginning_of_what_was_written(
    script: list[tuple[str, int, int]], seed: int
) -> None:
    run(Simulation(FaultyDisk(seed), FsyncPolicy.never()), script, may_lose=1 << 30)


def test_after_a_failed_fsync_nothing_is_acknowledged_until_the_log_is_reopened() -> None:
    disk = FaultyDisk()
    log = PartitionLog.open("p", disk=disk)
    log.append(Records([b"kept"]))
    disk.failing_syncs = 1
    with pytest.raises(PartitionStoppedError, match="Input/output error"):
        log.append(Records([b"not promised"]))
    with pytest.raises(PartitionStoppedError, match="open the partition again"):
        log.append(Records([b"nor this"]))
    with pytest.raises(PartitionStoppedError):
        log.submit(Records([b"nor that"]))
    assert log.stats().stopped
    assert PartitionReader("p", disk=disk).end_offset() == 1
    log.close()
    with PartitionLog.open("p", disk=disk) as again:
        assert again.append(Records([b"works again"])).base_offset >= 1


def test_what_a_failed_fsync_left_in_memory_is_written_again_before_it_counts() -> None:
    disk = FaultyDisk()
    log = PartitionLog.open("p", disk=disk)
    disk.failing_syncs = 1
    with pytest.raises(PartitionStoppedError):
        log.append(Records([b"read back, but not on disk"]))
    log.close()
    reopened = PartitionLog.open("p", disk=disk)
    promised = reopened.append(Records([b"next"]))
    disk.crash()
    with PartitionLog.open("p", disk=disk) as again:
        assert again.recovery.lost is None
        assert again.recovery.torn is None
        assert again.recovery.end_offset == promised.next_offset


def test_a_full_disk_stops_the_partition_and_space_brings_it_back() -> None:
    disk = FaultyDisk()
    log = PartitionLog.open("p", disk=disk)
    log.append(Records([b"kept"]))
    disk.room = 30
    with pytest.raises(PartitionStoppedError, match="No space left"):
        log.append(Records([b"x" * 500]))
    log.close()
    disk.room = None
    with PartitionLog.open("p", disk=disk) as again:
        assert again.recovery.torn is not None
        assert again.recovery.torn.bytes == 30
        assert again.recovery.lost is None
        assert again.append(Records([b"more"])).base_offset == 1
