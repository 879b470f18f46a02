"""File I/O of one process on one device: who may, how much, who first, and how busy the device is.

Two ways in, under the same rules: `slot` for I/O on the caller's own thread, `submit` (with `read` and `write`) for
work on threads of the manager. Work of Low priority runs on polite threads of its own.

Pressure is the fuller of two queues: ours, requests under way and waiting over the queue depth, where at 1 the next
one waits; and the device's (see `pressure.py`), which others fill as well. Where the folder has no disk of its own,
the disks of the machine are watched.

The depth, like the quotas, is that of this process. A thread that holds a slot must not ask for another one: at depth
1 it would wait for itself.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from dw_platform.fileio.capabilities import CapabilityWatch, IoCapabilities, detect_capabilities
from dw_platform.fileio.device import Device, find_device, no_device
from dw_platform.fileio.diskstats import CounterSource, DiskStats
from dw_platform.fileio.entrance import Entrance, Slot
from dw_platform.fileio.gate import Gate, Ticket, TicketState
from dw_platform.fileio.job import Job
from dw_platform.fileio.limits import IoLimits
from dw_platform.fileio.metrics import metrics_of
from dw_platform.fileio.polite import polite_thread
from dw_platform.fileio.pressure import device_pressure
from dw_platform.fileio.priority import IoPriority
from dw_platform.fileio.probe import Behaviour
from dw_platform.fileio.sampling import UtilisationSample, UtilisationSampler
from dw_platform.fileio.threads import DispatchThreads
from dw_platform.foundation import Clock, InvalidValueError, SystemClock, replace_file
from dw_platform.foundation.ticker import Ticker
from dw_platform.scaling import GaugeReading, PressureChanged, PressureGauge

log = logging.getLogger(__name__)

T = TypeVar("T")


class FilesystemScalingManager:
    """A ScalableSubsystem over the device below a folder; any thread may use it.

    It works without `start`; then it samples when its metrics or its pressure are asked for. Between `start` and
    `close` a thread samples at a steady pace, and changes of pressure are announced without anybody asking.
    """

    name = "fileio"

    def __init__(
        self,
        folder: Path | None = None,
        limits: IoLimits | None = None,
        *,
        clock: Clock | None = None,
        device: Device | None = None,
        counters: CounterSource | None = None,
        detect: Callable[[Path | None], IoCapabilities] = detect_capabilities,
    ) -> None:
        """Find the device below `folder` unless it is given; a virtual one is measured, which takes about a second.

        Without a folder nothing is measured or tried on disk: the depth is that of an SSD, and the disks that are
        watched are all of the machine. That is for processes that live for one task.
        """
        self._limits, self._clock = limits or IoLimits(), clock or SystemClock()
        self._device = device or _found_device(folder, self._limits)
        self._gauge = PressureGauge(self.name, self._limits.thresholds, clock=self._clock)
        self._gate = Gate(self.queue_depth, self._limits.weights)
        self._entrance = Entrance(self._gate, self._limits, clock=self._clock)
        self._threads = DispatchThreads("fileio")
        self._polite_threads = DispatchThreads("fileio-low", around=polite_thread)
        self._sampler = UtilisationSampler(
            counters or DiskStats(self._device.disks or None),
            interval_s=self._limits.sample_every.total_seconds(),
            clock=self._clock,
        )
        self._capabilities = CapabilityWatch(folder, self._detect_every_s, detect=detect, clock=self._clock)
        self._sampled_s: float | None = None
        self._lock = threading.Lock()
        self._sampling = threading.Lock()
        self._ticker = Ticker("fileio-samples", self.sample, self._interval_s, clock=self._clock)
        log.info(
            "file I/O", extra={"folder": str(folder or ""), "depth": self.queue_depth, "reason": self._device.reason}
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def device(self) -> Device:
        """What lies below the folder."""
        return self._device

    @property
    def queue_depth(self) -> int:
        """How many requests may be under way at once."""
        return self._limits.queue_depth or self._device.queue_depth

    def slot(
        self, priority: IoPriority, *, nbytes: int = 0, caller: str = "", timeout: timedelta | None = None
    ) -> Slot:
        """Return a context in which the calling thread may do one request of about that size.

        Entering waits for the turn, for `timeout` at most (then SlotTimeoutError), after the wait of a caller that is
        near its quota. It raises QuotaExceededError above the quota, FileIoClosedError once the manager is closed.
        """
        return Slot(self._entrance, priority, _checked(nbytes), caller, timeout)

    def submit(
        self, work: Callable[[], T], *, priority: IoPriority = IoPriority.NORMAL, nbytes: int = 0, caller: str = ""
    ) -> Future[T]:
        """Do `work` on a thread of the manager when its turn comes.

        Quotas act here, on who asks: this call waits or raises as `slot` does. What waits when the manager is closed
        gets a FileIoClosedError in its future. Callbacks of the future run in the slot, so they must not wait for
        another one.
        """
        threads = self._polite_threads if priority is IoPriority.LOW else self._threads
        threads.prepare()
        charge = self._entrance.pay(caller, _checked(nbytes))
        job = Job(work, leave=self._gate.leave, refund=lambda: self._entrance.refund(charge))

        def end_waiting(ticket: Ticket) -> None:
            if ticket.state is TicketState.GRANTED:
                threads.hand(job)
            else:
                job.refuse()

        try:
            ticket = self._gate.queue(priority, nbytes, end_waiting)
        except BaseException:
            self._entrance.refund(charge)
            raise
        if ticket is None:
            threads.hand(job)
        return job.future

    def read(
        self,
        path: Path,
        *,
        offset: int = 0,
        length: int | None = None,
        priority: IoPriority = IoPriority.NORMAL,
        caller: str = "",
    ) -> Future[bytes]:
        """Read a file, or `length` bytes of it from `offset`; fewer at its end."""
        nbytes = length if length is not None else max(_size(path) - offset, 0)

        def work() -> bytes:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(-1 if length is None else length)

        return self.submit(work, priority=priority, nbytes=nbytes, caller=caller)

    def write(
        self, path: Path, data: bytes, *, priority: IoPriority = IoPriority.NORMAL, caller: str = ""
    ) -> Future[None]:
        """Replace a file; once the future is done the new content is on disk, after a crash before that the old one."""
        return self.submit(lambda: replace_file(path, data), priority=priority, nbytes=len(data), caller=caller)

    def utilisation(self) -> UtilisationSample:
        """Return how busy the device is, at most half a sampling interval ago."""
        return self._sampler.sample()

    def capabilities(self) -> IoCapabilities:
        """Return what the kernel offers here, tried again if the last time was more than `detect_every` ago."""
        return self._capabilities.current()

    def sample(self) -> GaugeReading:
        """Take a sample of the device and of the queue now; `start` does this all the time."""
        with self._sampling:
            self._sampled_s = self._clock.monotonic()
            reading = self._sampler.sample().reading
            ours, depth = self._gate.stats().occupancy, self.queue_depth
            pressure = max(ours, device_pressure(reading, self._device.behaves_like, depth))
        self.capabilities()
        return self._gauge.observe(pressure)

    def scaling_metrics(self) -> Mapping[str, float]:
        self._sample_if_due()
        return metrics_of(
            self._gate.stats(),
            self._sampler.latest,
            self._capabilities.current(),
            slowed=self._entrance.slowed,
            refused=self._entrance.refused,
        )

    def current_limits(self) -> IoLimits:
        return self._limits

    def reconfigure_limits(self, limits: IoLimits) -> None:
        with self._lock:
            weights = limits.weights if limits.weights != self._limits.weights else None
            self._limits = limits
            self._entrance.reconfigure(limits)
            self._sampler.reconfigure(self._interval_s())
            self._gate.reconfigure(self.queue_depth, weights)
        self._gauge.reconfigure(limits.thresholds)

    def backpressure_state(self) -> GaugeReading:
        self._sample_if_due()
        return self._gauge.reading()

    def on_pressure_change(self, listener: Callable[[PressureChanged], None]) -> Callable[[], None]:
        return self._gauge.on_change(listener)

    def start(self) -> None:
        """Sample on a thread of its own; starting twice is harmless."""
        self._ticker.start()

    def close(self) -> None:
        """Refuse what waits and what comes, wait for submitted work that began, end all threads."""
        self._entrance.close()
        self._ticker.stop()
        self._threads.close()
        self._polite_threads.close()

    def _sample_if_due(self) -> None:
        last_s = self._sampled_s
        if last_s is None or self._clock.monotonic() - last_s >= self._interval_s():
            self.sample()

    def _interval_s(self) -> float:
        return self._limits.sample_every.total_seconds()

    def _detect_every_s(self) -> float:
        return self._limits.detect_every.total_seconds()


def _found_device(folder: Path | None, limits: IoLimits) -> Device:
    if folder is None:
        return no_device("no folder was named")
    if limits.queue_depth is not None:
        return find_device(folder, measure=lambda _: Behaviour(None, "not measured, because queue_depth is set"))
    return find_device(folder)


def _checked(nbytes: int) -> int:
    if nbytes < 0:
        raise InvalidValueError("nbytes", nbytes, "0 or more")
    return nbytes


def _size(path: Path) -> int:
    # What is wrong with the path is told by the future, when it is opened.
    with suppress(OSError):
        return path.stat().st_size
    return 0
