import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.fileio import (
    CounterReading,
    DiskCounters,
    DiskCountersError,
    DiskStats,
    UtilisationReading,
    UtilisationSampler,
    UtilisationState,
    real_disks,
    sample_once,
)
from dw_platform.fileio.utilisation import advance
from dw_platform.foundation import FakeClock, InvalidValueError, SystemClock
from tests.fileio.system_trees import MadeSystem, stats_line

IDLE = DiskCounters(requests=0, request_ms=0, read_bytes=0, written_bytes=0, in_flight=0, busy_ms=0, queue_ms=0)


class MadeCounters:
    """Counters that a test moves; they are read like those of the kernel."""

    def __init__(self, *names: str) -> None:
        self.boot, self.disks = "first boot", dict.fromkeys(names or ("sda",), IDLE)
        self.missing = ""
        self.reads = 0

    def work(self, name: str = "sda", **more: int) -> None:
        before = self.disks[name]
        self.disks[name] = replace(before, **{field: getattr(before, field) + by for field, by in more.items()})

    def read(self) -> CounterReading:
        self.reads += 1
        if self.missing:
            raise DiskCountersError("/proc/diskstats", self.missing)
        return CounterReading(boot=self.boot, disks=dict(self.disks))

    def stalled(self) -> float | None:
        return 0.25


def sampler(counters: MadeCounters, clock: FakeClock, interval_s: float = 1.0) -> UtilisationSampler:
    sampler = UtilisationSampler(counters, interval_s=interval_s, clock=clock)
    sampler.sample()
    return sampler


def sampled(sampler: UtilisationSampler) -> UtilisationReading:
    reading = sampler.sample().reading
    assert reading is not None
    return reading


def test_a_reading_says_what_happened_between_two_samples() -> None:
    counters, clock = MadeCounters(), FakeClock()
    samples = sampler(counters, clock)
    clock.advance(2)
    counters.work(requests=100, request_ms=500, read_bytes=4_000, written_bytes=6_000, busy_ms=1_000, queue_ms=600)
    counters.disks["sda"] = replace(counters.disks["sda"], in_flight=7)
    reading = sampled(samples)
    assert reading == UtilisationReading(
        disk="sda",
        utilisation=0.5,
        smoothed=0.5,
        in_flight=7,
        queue_length=0.3,
        await_ms=5.0,
        requests_per_s=50.0,
        read_bytes_per_s=2_000.0,
        written_bytes_per_s=3_000.0,
        elapsed_s=2.0,
    )
    assert reading.bytes_per_s == 5_000.0
    assert samples.latest.stalled == 0.25


def test_the_first_sample_has_a_reason_instead_of_a_number() -> None:
    sample = UtilisationSampler(MadeCounters(), clock=FakeClock()).sample()
    assert sample.reading is None
    assert sample.utilisation is None
    assert "first sample" in sample.reason


def test_without_counters_there_is_a_reason_and_after_they_are_back_a_number_again() -> None:
    counters, clock = MadeCounters(), FakeClock()
    samples = sampler(counters, clock)
    counters.missing = "No such file or directory"
    clock.advance(1)
    sample = samples.sample()
    assert sample.reading is None
    assert "No such file or directory" in sample.reason
    counters.missing = ""
    clock.advance(1)
    assert samples.sample().reading is None
    clock.advance(1)
    counters.work(busy_ms=400)
    assert sampled(samples).utilisation == pytest.approx(0.4)


def test_the_average_moves_by_three_tenths_of_the_difference_each_interval() -> None:
    counters, clock = MadeCounters(), FakeClock()
    samples = sampler(counters, clock)
    seen = []
    for busy_ms in (0, 1_000, 1_000):
        clock.advance(1)
        counters.work(busy_ms=busy_ms)
        seen.append(sampled(samples).smoothed)
    assert seen == pytest.approx([0.0, 0.3, 0.51])


@given(missed=st.integers(1, 15), busy=st.floats(0, 1))
def test_a_late_sample_moves_the_average_as_far_as_the_missing_ones_would_have(missed: int, busy: float) -> None:
    steady, late, clock = MadeCounters(), MadeCounters(), FakeClock()
    each, once = sampler(steady, clock), sampler(late, clock)
    clock.advance(1)
    for counters, samples in ((steady, each), (late, once)):
        counters.work(busy_ms=500)
        samples.sample()
    busy_ms = round(busy * 1_000)
    for _ in range(missed):
        clock.advance(1)
        steady.work(busy_ms=busy_ms)
        late.work(busy_ms=busy_ms)
        each.sample()
    assert sampled(once).smoothed == pytest.approx(sampled(each).smoothed)


def test_two_who_ask_at_once_count_the_time_once() -> None:
    counters, clock = MadeCounters(), FakeClock()
    samples = sampler(counters, clock)
    clock.advance(1)
    counters.work(busy_ms=1_000)
    first = samples.sample()
    clock.advance(0.3)
    assert samples.sample() is first
    assert counters.reads == 2


def test_of_several_disks_the_busiest_is_reported() -> None:
    counters, clock = MadeCounters("sda", "sdb"), FakeClock()
    samples = sampler(counters, clock)
    clock.advance(1)
    counters.work("sda", busy_ms=100, requests=1_000)
    counters.work("sdb", busy_ms=900, requests=3)
    assert (sampled(samples).disk, sampled(samples).requests_per_s) == ("sdb", 3.0)


def test_a_disk_that_came_or_whose_counters_passed_zero_waits_for_its_next_sample() -> None:
    counters, clock = MadeCounters("sda", "sdb"), FakeClock()
    counters.work("sdb", busy_ms=4_294_967_000)
    samples = sampler(counters, clock)
    clock.advance(1)
    counters.work("sda", busy_ms=100)
    counters.disks["sdb"] = IDLE
    counters.disks["sdc"] = replace(IDLE, busy_ms=50_000)
    assert sampled(samples).disk == "sda"
    clock.advance(1)
    counters.work("sdc", busy_ms=800)
    assert (sampled(samples).disk, sampled(samples).utilisation) == ("sdc", 0.8)


@pytest.mark.parametrize("seconds", [21.0, 10_000.0])
def test_after_a_long_gap_nothing_is_said_about_now(seconds: float) -> None:
    counters, clock = MadeCounters(), FakeClock()
    samples = sampler(counters, clock)
    clock.advance(seconds)
    counters.work(busy_ms=500)
    assert samples.sample().reading is None


def test_counters_of_another_boot_do_not_compare() -> None:
    counters, clock = MadeCounters(), FakeClock()
    samples = sampler(counters, clock)
    clock.advance(1)
    counters.boot = "second boot"
    counters.work(busy_ms=500)
    assert samples.sample().reading is None


def test_a_sensor_keeps_the_average_in_its_cursor_from_tick_to_tick() -> None:
    counters, clock = MadeCounters(), FakeClock()
    in_memory, cursor = sampler(counters, clock, interval_s=30), None
    tick = sample_once(cursor, interval_s=30, source=counters, clock=clock)
    for busy_ms in (3_000, 27_000, 15_000):
        clock.advance(30)
        counters.work(busy_ms=busy_ms, requests=10, request_ms=40)
        tick = sample_once(tick.cursor, interval_s=30, source=counters, clock=clock)
        assert tick.sample == in_memory.sample()
    assert tick.sample.utilisation == pytest.approx((0.1 + 0.3 * 0.8) + 0.3 * (0.5 - 0.34))


def test_a_tick_that_comes_early_repeats_the_last_reading() -> None:
    counters, clock = MadeCounters(), FakeClock()
    first = sample_once(None, interval_s=30, source=counters, clock=clock)
    clock.advance(30)
    counters.work(busy_ms=6_000)
    second = sample_once(first.cursor, interval_s=30, source=counters, clock=clock)
    clock.advance(5)
    third = sample_once(second.cursor, interval_s=30, source=counters, clock=clock)
    assert third.cursor == second.cursor
    assert third.sample.utilisation == second.sample.utilisation == pytest.approx(0.2)


@pytest.mark.parametrize("cursor", ["", "{", "[]", '{"at_s": 1}', '{"at_s": 1, "counters": {"disks": {"sda": 3}}}'])
def test_a_cursor_that_cannot_be_read_counts_as_none(cursor: str) -> None:
    counters, clock = MadeCounters(), FakeClock()
    tick = sample_once(cursor, interval_s=30, source=counters, clock=clock)
    assert tick.sample.reading is None
    clock.advance(30)
    assert sample_once(tick.cursor, interval_s=30, source=counters, clock=clock).sample.reading is not None
    with pytest.raises(InvalidValueError):
        UtilisationState.from_json(cursor)


def test_without_counters_a_sensor_gets_a_reason_and_no_cursor() -> None:
    counters = MadeCounters()
    counters.missing = "Permission denied"
    tick = sample_once(None, interval_s=30, source=counters, clock=FakeClock())
    assert tick.cursor is None
    assert "Permission denied" in tick.sample.reason


COUNTERS = st.builds(
    DiskCounters,
    **dict.fromkeys(
        ("requests", "request_ms", "read_bytes", "written_bytes", "in_flight", "busy_ms", "queue_ms"),
        st.integers(0, 2**40),
    ),
)


@given(before=COUNTERS, after=COUNTERS, elapsed_s=st.floats(0.01, 30), interval_s=st.floats(0.1, 30))
def test_whatever_the_counters_say_a_reading_is_sound_and_its_state_survives_a_cursor(
    before: DiskCounters, after: DiskCounters, elapsed_s: float, interval_s: float
) -> None:
    first = advance(None, CounterReading(boot="", disks={"sda": before}), 5.0, interval_s=interval_s)
    state = advance(first, CounterReading(boot="", disks={"sda": after}), 5.0 + elapsed_s, interval_s=interval_s)
    assert UtilisationState.from_json(state.to_json()) == state
    if state.reading is not None:
        assert 0 <= state.reading.smoothed <= 1
        assert state.reading.await_ms >= 0


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidValueError) as error:
        UtilisationSampler(MadeCounters(), interval_s=0)
    assert error.value.field == "interval_s"


def test_its_own_thread_samples_until_it_is_closed() -> None:
    counters, twice = MadeCounters(), threading.Event()
    read = counters.read

    def counted() -> CounterReading:
        if counters.reads >= 2:
            twice.set()
        counters.work(busy_ms=1)
        return read()

    counters.read = counted  # type: ignore[method-assign]
    with UtilisationSampler(counters, interval_s=0.01, clock=SystemClock()) as samples:
        assert twice.wait(20)
    assert samples.latest.reading is not None
    assert "disk-utilisation" not in {thread.name for thread in threading.enumerate()}


def test_the_kernels_columns_are_read_by_their_meaning(tmp_path: Path) -> None:
    made = MadeSystem(tmp_path)
    made.disk("sda", "8:0")
    made.partition("sda", "sda1", "8:1")
    numbers = {"reads": 1, "read_sectors": 2, "read_ms": 3, "writes": 10, "write_sectors": 20, "write_ms": 30}
    made.diskstats(
        stats_line("sda", **numbers, in_flight=4, busy_ms=50, queue_ms=60),
        stats_line("sda1", busy_ms=9),
        stats_line("loop0"),
        "a line of some other kernel\n",
    )
    made.boot("the-boot")
    made.io_pressure("some avg10=12.50 avg60=0.73 avg300=0.53 total=1\nfull avg10=99.00 avg60=0 avg300=0 total=1\n")
    stats = DiskStats(system=made.tree)
    expected = DiskCounters(
        requests=11, request_ms=33, read_bytes=1_024, written_bytes=10_240, in_flight=4, busy_ms=50, queue_ms=60
    )
    assert stats.read() == CounterReading(boot="the-boot", disks={"sda": expected})
    assert stats.stalled() == 0.125
    assert set(DiskStats(("sda1",), made.tree).read().disks) == {"sda1"}


def test_what_the_kernel_does_not_tell_is_a_reason(tmp_path: Path) -> None:
    made = MadeSystem(tmp_path)
    with pytest.raises(DiskCountersError) as error:
        DiskStats(system=made.tree).read()
    assert "no disk" in error.value.reason
    with pytest.raises(DiskCountersError) as error:
        DiskStats(("sda",), made.tree).read()
    assert error.value.reason == "No such file or directory"
    made.diskstats(stats_line("sdb"))
    with pytest.raises(DiskCountersError) as error:
        DiskStats(("sda",), made.tree).read()
    assert "does not mention sda" in error.value.reason
    assert DiskStats(("sda",), made.tree).stalled() is None


def test_this_machine_has_counters_that_do_not_fall() -> None:
    if not real_disks():
        pytest.skip("no disk can be seen here")
    first, second = DiskStats().read(), DiskStats().read()
    assert first.boot == second.boot
    assert set(first.disks) == set(second.disks)
    assert all(second.disks[name].busy_ms >= disk.busy_ms for name, disk in first.disks.items())
