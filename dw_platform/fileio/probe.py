"""What a virtual disk behaves like, by a short measurement: random reads of a file made for it, past the page cache.

Two numbers tell the kinds apart:

- the time of one small read, one at a time: a disk that turns needs a seek and half a turn, flash does not;
- how much more eight readers get than one, in bytes a second: a disk that turns hardly more, flash several times as
  much, and what passes 600 MB/s did not come through a SATA cable.

The cost is bounded: at most 64 MiB written and half a second of reading, once. A cache of the host in front of a
turning disk makes it look like flash, because as long as the cache lasts, it is; a fixed `queue_depth` overrules.
"""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dw_platform.fileio.direct import ALIGNED, aligned_buffer, opened_direct, trial_file
from dw_platform.fileio.disks import DeviceKind
from dw_platform.foundation import Clock, SystemClock

_SMALL, _LARGE = ALIGNED, 64 * 1024
_READERS = 8
_CHUNK = 4 * 1024 * 1024

# Half a turn at 15,000 rpm, the fastest disks that were built, takes 2 ms.
_HALF_A_TURN_MS = 2.0
# A disk that sorts a queue of eight gains less than twice; flash behind a slow network gains nearly eight times.
_FLASH_GAIN = 3.0
# SATA carries 600 MB/s, so whatever is faster is something else.
_SATA_BYTES_PER_S = 600e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBudget:
    """What a measurement may cost."""

    file_bytes: int = 64 * 1024 * 1024
    """Far more than a seek covers for free, and little enough to be written in a second."""

    least_bytes: int = 8 * 1024 * 1024
    """If the time for writing is over before so much was written, nothing is measured."""

    write_s: float = 1.0
    read_s: float = 0.25
    """For each of the two numbers."""

    free_share: float = 0.1
    """Of the free space that the file may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What was measured."""

    small_read_ms: float
    """The median of small reads, one at a time."""

    alone_bytes_per_s: float
    together_bytes_per_s: float
    """Large reads by one reader, and by eight."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a device behaves like; None if it could not be measured."""

    kind: DeviceKind | None
    reason: str


def classify(shape: Shape) -> Behaviour:
    """Return what behaves in this way; pure, so that known devices can be tested."""
    gain = shape.together_bytes_per_s / shape.alone_bytes_per_s
    facts = (
        f"a small read takes {shape.small_read_ms:.2f} ms, eight readers get {gain:.1f} times as much as one, "
        f"{shape.together_bytes_per_s / 1e6:,.0f} MB/s"
    )
    if shape.small_read_ms >= _HALF_A_TURN_MS and gain < _FLASH_GAIN:
        return Behaviour(DeviceKind.HDD, f"measured like a turning disk: {facts}")
    if shape.small_read_ms < _HALF_A_TURN_MS and shape.together_bytes_per_s > _SATA_BYTES_PER_S:
        return Behaviour(DeviceKind.NVME, f"measured like NVMe: {facts}")
    return Behaviour(DeviceKind.SSD, f"measured like an SSD: {facts}")


def measure_behaviour(folder: Path, budget: ProbeBudget | None = None, *, clock: Clock | None = None) -> Behaviour:
    """Measure the device below `folder`; says why if it cannot, and never raises for what the folder refuses."""
    budget, clock = budget or ProbeBudget(), clock or SystemClock()
    try:
        with _written_file(folder, budget, clock) as (descriptor, nbytes):
            if nbytes < budget.least_bytes:
                return Behaviour(None, f"not measured, {nbytes / 1e6:.0f} MB were written in {budget.write_s:g} s")
            return classify(_measured(descriptor, nbytes, budget, clock))
    except OSError as error:
        return Behaviour(None, f"not measured, {folder} refused: {error.strerror or error}")


def _measured(descriptor: int, nbytes: int, budget: ProbeBudget, clock: Clock) -> Shape:
    file = _TestFile(descriptor, nbytes, clock)
    small = file.read(_SMALL, readers=1, budget_s=budget.read_s)
    alone = file.read(_LARGE, readers=1, budget_s=budget.read_s / 2)
    together = file.read(_LARGE, readers=_READERS, budget_s=budget.read_s / 2)
    return Shape(
        small_read_ms=median(small.seconds) * 1_000,
        alone_bytes_per_s=alone.bytes_per_s,
        together_bytes_per_s=together.bytes_per_s,
    )


@contextmanager
def _written_file(folder: Path, budget: ProbeBudget, clock: Clock) -> Iterator[tuple[int, int]]:
    space = os.statvfs(folder)
    wanted = min(budget.file_bytes, int(space.f_bavail * space.f_frsize * budget.free_share))
    # Bytes that cannot be compressed and are not all the same, so that nothing below the file system saves the work.
    chunk, deadline_s, written = random.randbytes(_CHUNK), clock.monotonic() + budget.write_s, 0  # noqa: S311
    with trial_file(folder) as descriptor:
        while written + _CHUNK <= wanted and clock.monotonic() < deadline_s:
            written += os.pwrite(descriptor, chunk, written)
            os.fdatasync(descriptor)  # each time, or the last one could take far longer than the budget
        with opened_direct(descriptor, os.O_RDONLY) as direct:
            yield direct, written


@dataclass(frozen=True, slots=True)
class _Reads:
    seconds: list[float]
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class _TestFile:
    descriptor: int
    nbytes: int
    clock: Clock

    def read(self, size: int, *, readers: int, budget_s: float) -> _Reads:
        """Let `readers` read at random for a while; each reads at least once."""
        seconds, errors = list[float](), list[OSError]()
        begin_s = self.clock.monotonic()

        def live(seed: int) -> None:
            try:
                self._read_until(begin_s + budget_s, size, random.Random(seed), seconds)  # noqa: S311  no secrets
            except OSError as error:
                errors.append(error)

        threads = [threading.Thread(target=live, args=(number,), daemon=True) for number in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        elapsed_s = max(self.clock.monotonic() - begin_s, 1e-9)
        return _Reads(seconds, len(seconds) * size / elapsed_s)

    def _read_until(self, deadline_s: float, size: int, places: random.Random, seconds: list[float]) -> None:
        with aligned_buffer(size) as buffer:
            now_s = self.clock.monotonic()
            while not seconds or now_s < deadline_s:
                before_s = now_s
                os.preadv(self.descriptor, [buffer], places.randrange(self.nbytes // size) * size)
                now_s = self.clock.monotonic()
                seconds.append(now_s - before_s)
