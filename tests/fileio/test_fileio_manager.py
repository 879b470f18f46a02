import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dw_platform.fileio import (
    CounterReading,
    Device,
    DeviceKind,
    DiskCounters,
    FileIoClosedError,
    FilesystemScalingManager,
    Finding,
    IoCapabilities,
    IoLimits,
    IoPriority,
    PriorityWeights,
    QuotaExceededError,
    SlotTimeoutError,
    UtilisationReading,
)
from dw_platform.fileio.polite import POLITE_NICE
from dw_platform.fileio.pressure import device_pressure
from dw_platform.fileio.probe import Behaviour, measure_behaviour
from dw_platform.foundation import Clock, FakeClock, InvalidValueError, TransientError
from dw_platform.scaling import (
    BackpressureAware,
    LimitCatalogue,
    LimitControl,
    PressureChanged,
    PressureLevel,
    ScalingRegistry,
)
from dw_platform.store.open import open_store

HIGH, NORMAL, LOW = IoPriority.HIGH, IoPriority.NORMAL, IoPriority.LOW
PATIENCE_S = 20.0
DISK = Device(kind=DeviceKind.HDD, behaves_like=DeviceKind.HDD, disks=("sda",), reason="made for a test")
IDLE = DiskCounters(requests=0, request_ms=0, read_bytes=0, written_bytes=0, in_flight=0, busy_ms=0, queue_ms=0)


class Counters:
    """A disk whose busy time a test moves."""

    def __init__(self) -> None:
        self.disk = IDLE

    def read(self) -> CounterReading:
        return CounterReading(boot="", disks={"sda": self.disk})

    def stalled(self) -> float | None:
        return None

    def busy(self, ms: int) -> None:
        self.disk = replace(self.disk, busy_ms=self.disk.busy_ms + ms, queue_ms=self.disk.queue_ms + 4 * ms)


class Detector:
    """Finds what a test wants to be found."""

    def __init__(self) -> None:
        self.tried, self.available = 0, True

    def __call__(self, _: Path | None) -> IoCapabilities:
        self.tried += 1
        finding = Finding(available=self.available, reason="a test wants it")
        return IoCapabilities(io_uring=finding, direct_io=finding)


def made(
    limits: IoLimits | None = None, *, clock: Clock | None = None, device: Device = DISK
) -> FilesystemScalingManager:
    return FilesystemScalingManager(
        None, limits, clock=clock or FakeClock(), device=device, counters=Counters(), detect=Detector()
    )


@pytest.fixture
def one_at_a_time() -> Iterator[FilesystemScalingManager]:
    manager = made(IoLimits(queue_depth=1))
    yield manager
    manager.close()


def test_the_depth_is_that_of_the_device_unless_it_is_set() -> None:
    assert made().queue_depth == 8
    assert made(device=replace(DISK, behaves_like=DeviceKind.NVME)).queue_depth == 128
    assert made(IoLimits(queue_depth=3)).queue_depth == 3


def test_a_slot_is_held_for_the_time_of_its_context_also_when_the_work_fails() -> None:
    manager = made()
    with manager.slot(LOW, nbytes=1 << 20, caller="backup"):
        assert manager.scaling_metrics()["running"] == 1
    with pytest.raises(ZeroDivisionError), manager.slot(HIGH):
        _ = 1 / 0
    metrics = manager.scaling_metrics()
    assert metrics["running"] == 0
    assert (metrics["requests_low"], metrics["bytes_low"], metrics["requests_high"]) == (1, 1 << 20, 1)


def test_who_waits_longer_than_it_wants_to_is_told_who_was_in_the_way(
    one_at_a_time: FilesystemScalingManager,
) -> None:
    with (
        one_at_a_time.slot(LOW),
        pytest.raises(SlotTimeoutError) as error,
        one_at_a_time.slot(HIGH, caller="restore", timeout=timedelta(milliseconds=5)),
    ):
        pytest.fail("the only slot was taken")
    assert isinstance(error.value, TransientError)
    assert (error.value.caller, error.value.running, error.value.depth) == ("restore", 1, 1)
    with one_at_a_time.slot(HIGH, timeout=timedelta(0)):
        assert one_at_a_time.scaling_metrics()["waiting"] == 0


def test_submitted_work_goes_by_priority_and_returns_its_result(one_at_a_time: FilesystemScalingManager) -> None:
    order: list[str] = []
    with one_at_a_time.slot(NORMAL):
        futures = [
            one_at_a_time.submit(lambda word=priority.value: order.append(word), priority=priority)
            for priority in (LOW, NORMAL, HIGH)
        ]
        assert one_at_a_time.scaling_metrics()["waiting"] == 3
    for future in futures:
        future.result(PATIENCE_S)
    assert order == ["high", "normal", "low"]


def test_what_submitted_work_raises_is_in_its_future(one_at_a_time: FilesystemScalingManager) -> None:
    def fail() -> None:
        raise FileNotFoundError("gone")

    assert isinstance(one_at_a_time.submit(fail).exception(PATIENCE_S), FileNotFoundError)
    assert one_at_a_time.submit(lambda: 5).result(PATIENCE_S) == 5


def test_work_that_is_cancelled_before_its_turn_is_not_begun(one_at_a_time: FilesystemScalingManager) -> None:
    begun: list[int] = []
    with one_at_a_time.slot(NORMAL):
        future = one_at_a_time.submit(lambda: begun.append(1))
        assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(PATIENCE_S)
    assert one_at_a_time.submit(lambda: len(begun)).result(PATIENCE_S) == 0


def test_there_are_no_more_threads_than_the_depth_and_low_work_runs_on_polite_ones() -> None:
    def who() -> tuple[str, int]:
        return threading.current_thread().name, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = os.getpriority(os.PRIO_PROCESS, 0)
    manager = made(IoLimits(queue_depth=2))
    low = [manager.submit(who, priority=LOW) for _ in range(50)]
    assert {future.result(PATIENCE_S) for future in low} == {("fileio-low", max(before, POLITE_NICE))}
    high = [manager.submit(who, priority=HIGH) for _ in range(50)]
    assert {future.result(PATIENCE_S) for future in high} == {("fileio", before)}
    assert len(manager._threads) <= 2
    assert len(manager._polite_threads) <= 2
    manager.close()


def test_files_are_written_and_read(one_at_a_time: FilesystemScalingManager, tmp_path: Path) -> None:
    path = tmp_path / "file"
    one_at_a_time.write(path, b"0123456789", caller="test").result(PATIENCE_S)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert one_at_a_time.read(path).result(PATIENCE_S) == b"0123456789"
    assert one_at_a_time.read(path, offset=8, length=5, priority=HIGH).result(PATIENCE_S) == b"89"
    metrics = one_at_a_time.scaling_metrics()
    assert (metrics["bytes_normal"], metrics["bytes_high"]) == (20, 5)


def test_what_is_wrong_with_a_path_is_told_by_the_future(
    one_at_a_time: FilesystemScalingManager, tmp_path: Path
) -> None:
    missing = tmp_path / "missing" / "file"
    assert isinstance(one_at_a_time.read(missing).exception(PATIENCE_S), FileNotFoundError)
    assert isinstance(one_at_a_time.write(missing, b"x").exception(PATIENCE_S), FileNotFoundError)


def test_a_caller_near_its_quota_is_slowed_and_one_above_it_is_refused() -> None:
    clock = FakeClock()
    manager = made(IoLimits(quota_bytes_per_hour=1_000, quota_longest_wait=timedelta(hours=1)), clock=clock)
    with manager.slot(LOW, nbytes=800, caller="backup"):
        assert clock.monotonic() == 0
    with manager.slot(LOW, nbytes=100, caller="backup"):
        assert clock.monotonic() == pytest.approx(1_800)
    with pytest.raises(QuotaExceededError) as error:
        manager.submit(lambda: None, nbytes=101, caller="backup")
    assert error.value.window_ends == clock.now() + timedelta(minutes=30)
    with manager.slot(LOW, nbytes=1_000, caller="another"):
        metrics = manager.scaling_metrics()
    assert (metrics["slowed_by_quota"], metrics["refused_by_quota"]) == (2, 1)


def test_a_quota_is_not_charged_for_what_did_not_begin() -> None:
    manager = made(IoLimits(queue_depth=1, quota_requests_per_hour=2, quota_soft_share=1.0))
    with manager.slot(LOW, caller="other"):
        with pytest.raises(SlotTimeoutError), manager.slot(LOW, caller="backup", timeout=timedelta(0)):
            pytest.fail("the only slot was taken")
        cancelled = manager.submit(lambda: None, caller="backup")
        cancelled.cancel()
    manager.submit(lambda: None, caller="third").result(PATIENCE_S)
    for _ in range(2):
        with manager.slot(LOW, caller="backup"):
            pass
    manager.close()


def test_closing_ends_who_waits_with_a_clear_error_and_lets_what_began_finish() -> None:
    manager = made(IoLimits(queue_depth=1))
    begun, go_on = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go_on.wait(PATIENCE_S)
        return "finished"

    under_way = manager.submit(work)
    assert begun.wait(PATIENCE_S)
    waiting = [manager.submit(lambda: None, priority=priority) for priority in IoPriority]
    closing = threading.Thread(target=manager.close)
    closing.start()
    for future in waiting:
        assert isinstance(future.exception(PATIENCE_S), FileIoClosedError)
    assert not under_way.done()
    go_on.set()
    closing.join(PATIENCE_S)
    assert under_way.result(PATIENCE_S) == "finished"
    with pytest.raises(FileIoClosedError), manager.slot(HIGH):
        pytest.fail("the manager is closed")
    with pytest.raises(FileIoClosedError):
        manager.submit(lambda: None)


def test_a_caller_that_is_slowed_by_its_quota_is_freed_by_closing() -> None:
    limits = IoLimits(quota_requests_per_hour=10, quota_soft_share=0.01, quota_longest_wait=timedelta(hours=1))
    manager = FilesystemScalingManager(None, limits, device=DISK, counters=Counters(), detect=Detector())
    ended: Future[None] = Future()

    def wait() -> None:
        try:
            with manager.slot(LOW, caller="backup"):
                ended.set_result(None)
        except FileIoClosedError as error:
            ended.set_exception(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    manager.close()
    assert isinstance(ended.exception(PATIENCE_S), FileIoClosedError)
    waiting.join(PATIENCE_S)


def test_limits_change_while_it_runs() -> None:
    manager = made(IoLimits(queue_depth=1))
    taken = [manager.slot(NORMAL) for _ in range(3)]
    taken[0].__enter__()
    waiting = manager.submit(lambda: "through")
    manager.reconfigure_limits(IoLimits(queue_depth=3, weights=PriorityWeights(high=2, normal=2, low=1)))
    assert waiting.result(PATIENCE_S) == "through"
    taken[1].__enter__()
    taken[2].__enter__()
    manager.reconfigure_limits(IoLimits(queue_depth=1))
    assert manager.scaling_metrics()["running"] == 3
    assert manager.scaling_metrics()["queue_depth"] == 1
    for slot in taken:
        slot.__exit__(None, None, None)
    with manager.slot(HIGH, timeout=timedelta(0)):
        assert manager.scaling_metrics()["running"] == 1
    manager.close()


def test_an_operators_change_reaches_a_running_manager_and_a_wrong_one_does_not() -> None:
    clock, store, configured = FakeClock(), open_store("memory://"), IoLimits()
    manager = made(configured, clock=clock)
    registry = ScalingRegistry(store, node="test@host", clock=clock)
    registry.register(manager)
    control = LimitControl(store, LimitCatalogue({"fileio": configured}), clock=clock)
    changes = {"queue_depth": "16", "weights.high": "8", "quota_bytes_per_hour": "10GiB", "sample_every": "2s"}
    control.set("fileio", changes, changed_by="operator", reason="a faster disk")
    registry.poll()
    assert manager.queue_depth == 16
    assert manager.current_limits() == IoLimits(
        queue_depth=16,
        weights=PriorityWeights(high=8),
        quota_bytes_per_hour=10 << 30,
        sample_every=timedelta(seconds=2),
    )
    with pytest.raises(InvalidValueError):
        control.set("fileio", {"weights.low": "0"}, changed_by="operator", reason="a mistake")
    assert registry.publish() == 1


def reading(**facts: float) -> UtilisationReading:
    values = dict.fromkeys(UtilisationReading.__dataclass_fields__, 0.0) | {"disk": "sda"} | facts
    return UtilisationReading(**values)  # type: ignore[arg-type]


def test_a_turning_disk_is_full_when_it_is_busy_and_flash_when_its_queue_is_long() -> None:
    one_reader = reading(smoothed=0.95, queue_length=0.8)
    assert device_pressure(one_reader, DeviceKind.HDD, 8) == 0.95
    assert device_pressure(one_reader, DeviceKind.NVME, 128) == pytest.approx(0.8 / 128)
    assert device_pressure(reading(smoothed=1.0, queue_length=200.0), DeviceKind.NVME, 128) == 1.0
    assert device_pressure(None, DeviceKind.HDD, 8) == 0.0


def test_pressure_rises_with_the_requests_of_this_process_and_is_announced() -> None:
    clock, heard = FakeClock(), list[PressureChanged]()
    manager = made(IoLimits(queue_depth=4), clock=clock)
    assert isinstance(manager, BackpressureAware)
    manager.on_pressure_change(heard.append)
    assert manager.backpressure_state().level is PressureLevel.NORMAL
    slots = [manager.slot(NORMAL) for _ in range(4)]
    for slot in slots:
        slot.__enter__()
    clock.advance(1)
    state = manager.backpressure_state()
    assert (state.level, state.latest) == (PressureLevel.SHEDDING, 1.0)
    assert [change.after for change in heard] == [PressureLevel.SHEDDING]
    for slot in slots:
        slot.__exit__(None, None, None)
    for _ in range(10):
        clock.advance(1)
        state = manager.backpressure_state()
    assert state.level is PressureLevel.NORMAL


def test_pressure_rises_with_what_others_do_to_the_disk() -> None:
    clock, counters = FakeClock(), Counters()
    manager = FilesystemScalingManager(None, clock=clock, device=DISK, counters=counters, detect=Detector())
    manager.backpressure_state()
    for _ in range(20):
        clock.advance(1)
        counters.busy(900)
        state = manager.backpressure_state()
    assert state.level is PressureLevel.CRITICAL
    assert manager.scaling_metrics()["disk_utilisation"] == pytest.approx(0.9, abs=0.01)
    assert manager.utilisation().utilisation == pytest.approx(0.9, abs=0.01)


def test_what_the_kernel_offers_is_tried_at_the_start_and_every_five_minutes_and_a_change_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, detect = FakeClock(), Detector()
    manager = FilesystemScalingManager(None, clock=clock, device=DISK, counters=Counters(), detect=detect)
    assert manager.capabilities().io_uring.available
    clock.advance(299)
    manager.sample()
    assert detect.tried == 1
    detect.available = False
    clock.advance(1)
    with caplog.at_level("INFO", logger="dw_platform.fileio.capabilities"):
        manager.sample()
    assert detect.tried == 2
    assert manager.scaling_metrics()["io_uring"] == 0
    assert [vars(record)["what"] for record in caplog.records] == ["io_uring", "direct_io"]


def test_its_thread_announces_pressure_without_anybody_asking() -> None:
    heard = threading.Event()
    limits = IoLimits(queue_depth=1, sample_every=timedelta(milliseconds=10))
    with FilesystemScalingManager(None, limits, device=DISK, counters=Counters(), detect=Detector()) as manager:
        manager.on_pressure_change(lambda _: heard.set())
        with manager.slot(NORMAL):
            assert heard.wait(PATIENCE_S)
    assert "fileio-samples" not in {thread.name for thread in threading.enumerate()}


def test_a_size_below_zero_is_refused() -> None:
    with pytest.raises(InvalidValueError) as error:
        made().slot(LOW, nbytes=-1)
    assert error.value.field == "nbytes"


def test_on_this_machine_it_works_with_the_device_that_is_there(tmp_path: Path) -> None:
    device = replace(DISK, kind=DeviceKind.NONE, behaves_like=DeviceKind.SSD, disks=())
    with FilesystemScalingManager(tmp_path, device=device) as manager:
        manager.write(tmp_path / "file", b"x" * 5_000, priority=LOW, caller="test").result(PATIENCE_S)
        assert manager.read(tmp_path / "file", caller="test").result(PATIENCE_S) == b"x" * 5_000
        assert manager.scaling_metrics()["queue_depth"] == 32
        assert manager.capabilities().direct_io.reason
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_with_a_depth_that_is_set_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def virtual(path: Path, *, measure: Callable[[Path], Behaviour] = measure_behaviour) -> Device:
        assert measure is not measure_behaviour
        return replace(DISK, reason=measure(path).reason)

    monkeypatch.setattr("dw_platform.fileio.manager.find_device", virtual)
    manager = FilesystemScalingManager(tmp_path, IoLimits(queue_depth=5))
    assert manager.queue_depth == 5
    assert "queue_depth is set" in manager.device.reason


def test_without_a_folder_nothing_is_written_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing may be written")

    monkeypatch.setattr("dw_platform.fileio.direct.tempfile.TemporaryFile", refuse)
    manager = FilesystemScalingManager()
    assert manager.queue_depth == 32
    assert "no folder" in manager.device.reason
