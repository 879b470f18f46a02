"""Streams over one list of pieces: as many as the disks take, polite ones for Low, one manager for all I/O."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.fileio import CounterReading, DiskCounters, IoPriority, QuotaExceededError
from dw_platform.fileio.crew import CrewStoppedError
from dw_platform.fileio.limits import IoLimits
from dw_platform.fileio.polite import POLITE_NICE
from dw_platform.fileio.streams import IoGate, StreamPolicy, _Pace, process_io, run_streams, stopped_by
from dw_platform.foundation import FakeClock
from dw_platform.scaling.concurrency import ConcurrencyPolicy, Follow

PATIENCE_S = 20.0


def policy(
    streams: int = 2, priority: IoPriority = IoPriority.NORMAL, follow: Follow = Follow.UTILISATION, **limits: float
) -> StreamPolicy:
    """A policy that has exactly so many streams at first, if the machine has two cores or more."""
    concurrency = ConcurrencyPolicy(ceiling=streams, follow=follow)
    return StreamPolicy(caller="test", priority=priority, concurrency=concurrency, io=IoLimits(**limits))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def own_limits() -> Iterator[None]:
    """The manager is that of the process; other tests find it as it was."""
    before = process_io().current_limits()
    yield
    process_io(before)


def test_every_piece_is_worked_on_once_and_results_keep_their_order() -> None:
    asked: list[int] = []

    def work(piece: int, io: IoGate) -> int:
        with io(piece):
            asked.append(piece)
        return piece * 2

    assert run_streams(range(50), work, policy()) == [piece * 2 for piece in range(50)]
    assert sorted(asked) == list(range(50))
    assert run_streams([], work, policy()) == []


def test_each_read_and_write_counts_in_the_one_manager_of_the_process() -> None:
    before = process_io().scaling_metrics()

    def work(piece: int, io: IoGate) -> None:
        with io(piece):
            pass

    run_streams([10, 20, 30], work, policy(priority=IoPriority.LOW))
    after = process_io().scaling_metrics()
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert 3 in grown.values(), grown
    assert 60 in grown.values(), grown
    assert process_io() is process_io(IoLimits(queue_depth=7))
    assert process_io().queue_depth == 7


def test_threads_that_begin_at_once_share_one_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    from dw_platform.fileio import streams

    streams._manager.cache_clear()
    original, together = streams.FilesystemScalingManager, threading.Barrier(4)
    made: list[object] = []

    def make() -> object:
        made.append(None)
        return original()

    monkeypatch.setattr(streams, "FilesystemScalingManager", make)
    found: list[object] = []

    def ask() -> None:
        together.wait(PATIENCE_S)
        found.append(process_io())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert (len(made), len(found), len(set(map(id, found)))) == (1, 4, 1)


def test_an_error_stops_the_other_streams_at_their_next_read() -> None:
    failing, stopped = threading.Event(), list[BaseException]()

    def work(piece: int, io: IoGate) -> None:
        if piece == 0:
            failing.wait(PATIENCE_S)
            raise OSError("the disk is gone")
        failing.set()
        try:
            while True:  # a file without end
                with io(1):
                    pass
        except CrewStoppedError as error:
            stopped.append(error)
            raise

    pieces = [0, 1, *range(2, 100)] if (os.cpu_count() or 1) > 1 else [1, 0]
    with pytest.raises(OSError, match="the disk is gone"):
        run_streams(pieces, work, replace(policy(), priority=IoPriority.HIGH))
    assert len(stopped) == 1


def test_streams_end_soon_after_nobody_wants_their_result() -> None:
    stop, begun = threading.Event(), threading.Event()

    def work(_: int, io: IoGate) -> None:
        while True:
            with io(1):
                begun.set()

    def give_up() -> None:
        begun.wait(PATIENCE_S)
        stop.set()

    threading.Thread(target=give_up).start()
    with stopped_by(stop), pytest.raises(CrewStoppedError):
        run_streams(range(100), work, policy())


def test_a_quota_refuses_what_does_not_fit_and_the_work_fails_by_it() -> None:
    def work(piece: int, io: IoGate) -> None:
        with io(piece):
            pass

    # A caller of its own, because what others have used of their hour stays.
    limited = replace(policy(quota_bytes_per_hour=100, quota_soft_share=1.0), caller="one with a quota")
    with pytest.raises(QuotaExceededError) as refused:
        run_streams([60, 60], work, limited)
    assert refused.value.caller == "one with a quota"


@pytest.mark.parametrize(("priority", "polite"), [(IoPriority.LOW, True), (IoPriority.NORMAL, False)])
def test_streams_of_low_priority_make_way_on_the_processor(priority: IoPriority, *, polite: bool) -> None:
    def nice(_: int, io: IoGate) -> int:
        del io
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert set(run_streams(range(4), nice, policy(priority=priority))) == {max(mine, POLITE_NICE) if polite else mine}


@given(ceiling=st.integers(1, 100), tasks=st.integers(0, 50))
def test_tasks_on_one_machine_share_its_streams_and_each_has_one(ceiling: int, tasks: int) -> None:
    shared = policy(ceiling).shared_by(tasks)
    assert 1 <= shared.concurrency.ceiling <= ceiling
    assert shared.concurrency.ceiling * max(1, tasks) <= max(ceiling, tasks)
    assert 1 <= shared.first <= shared.concurrency.ceiling


def test_what_is_wanted_now_begins_with_twice_as_many_streams() -> None:
    cores = os.cpu_count() or 1
    assert policy(100).first == cores
    assert policy(1000, IoPriority.HIGH).first == 2 * cores


class Disk:
    """Counters of one disk that a test lets be busy."""

    def __init__(self) -> None:
        self.counters = DiskCounters(
            requests=0, request_ms=0, read_bytes=0, written_bytes=0, in_flight=0, busy_ms=0, queue_ms=0
        )

    def work(self, busy_ms: int, requests: int = 10, each_ms: int = 1) -> None:
        before = self.counters
        self.counters = replace(
            before,
            busy_ms=before.busy_ms + busy_ms,
            requests=before.requests + requests,
            request_ms=before.request_ms + requests * each_ms,
            read_bytes=before.read_bytes + requests * 1_000_000,
        )

    def read(self) -> CounterReading:
        return CounterReading(boot="this one", disks={"sda": self.counters})

    def stalled(self) -> float | None:
        return None


def paced(policy: StreamPolicy, seconds: int, *, busy_ms: int, streams: int, each_ms: int = 1) -> int:
    """Return how many streams there are after so many seconds of a disk that busy."""
    disk, clock = Disk(), FakeClock()
    pace = _Pace(policy, disk, clock=clock)
    for _ in range(seconds):
        clock.advance(1)
        disk.work(busy_ms, each_ms=each_ms)
        streams = pace(streams)
    return streams


@pytest.mark.parametrize(("busy_ms", "after"), [(100, 8), (700, 4), (1_000, 1)])
def test_streams_become_more_on_an_idle_disk_and_fewer_on_a_busy_one(busy_ms: int, after: int) -> None:
    assert paced(policy(8, IoPriority.LOW), 30, busy_ms=busy_ms, streams=4) == after


def test_what_is_wanted_now_keeps_its_streams_on_a_busy_disk() -> None:
    assert paced(policy(8, IoPriority.HIGH), 30, busy_ms=1_000, streams=4) == 4


def test_a_disk_that_serves_many_at_once_is_read_by_how_long_it_takes() -> None:
    follow = policy(8, IoPriority.LOW, Follow.LATENCY)
    disk, clock = Disk(), FakeClock()
    pace, streams = _Pace(follow, disk, clock=clock), 2
    for second in range(6):  # always busy, but as quick as ever, and each stream brings its share
        clock.advance(1)
        disk.work(1_000, requests=10 * streams * (second + 1))
        streams = pace(streams)
    assert streams > 4
    before = streams
    for _ in range(3):
        clock.advance(1)
        disk.work(1_000, each_ms=50)
        streams = pace(streams)
    assert streams == before - 3
