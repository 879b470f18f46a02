"""The kernel's counters of its disks, and how long work stood still for I/O.

/proc/diskstats counts since boot. What matters is the difference of two readings and the time between them, so a
reading carries its time and the id of its boot: counters of another boot do not compare.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dw_platform.fileio.disks import disk_names
from dw_platform.fileio.errors import DiskCountersError
from dw_platform.fileio.system import THIS_SYSTEM, SystemTree

# The kernel counts in these whatever the sectors of the disk are.
_SECTOR_BYTES = 512
_FIELDS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCounters:
    """Totals of one disk since boot, but `in_flight`, which is now."""

    requests: int
    """Reads and writes that ended."""

    request_ms: int
    """What they took together, waiting included."""

    read_bytes: int
    written_bytes: int
    in_flight: int
    busy_ms: int
    """Time with at least one request under way; the kernel's `io_ticks`."""

    queue_ms: int
    """Sum over time of the requests under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReading:
    """All wanted disks at one moment."""

    boot: str
    disks: Mapping[str, DiskCounters]


class CounterSource(Protocol):
    """Where a sampler reads its counters."""

    def read(self) -> CounterReading:
        """Return the counters now; raises DiskCountersError where there are none."""

    def stalled(self) -> float | None:
        """Return the share of the last ten seconds in which some task waited for I/O; None if nobody counts it."""


class DiskStats:
    """The counters of this machine, of the named disks or of all real ones."""

    def __init__(self, disks: tuple[str, ...] | None = None, system: SystemTree = THIS_SYSTEM) -> None:
        self._disks, self._system = disks, system

    def read(self) -> CounterReading:
        path = self._system.proc / "diskstats"
        wanted = self._disks if self._disks is not None else disk_names(self._system)
        if not wanted:
            raise DiskCountersError(str(path), "there is no disk to read about")
        disks = {name: counters for name, counters in _counters(path).items() if name in wanted}
        if not disks:
            raise DiskCountersError(str(path), f"it does not mention {', '.join(wanted)}")
        boot = self._system.text(self._system.proc / "sys" / "kernel" / "random" / "boot_id")
        return CounterReading(boot=boot, disks=disks)

    def stalled(self) -> float | None:
        # some avg10=0.29 avg60=0.73 avg300=0.53 total=10307747
        first, *_ = self._system.text(self._system.proc / "pressure" / "io").split("\n")
        for part in first.split():
            name, _, value = part.partition("=")
            if name == "avg10":
                return min(max(float(value) / 100, 0.0), 1.0)
        return None


def _counters(path: Path) -> dict[str, DiskCounters]:
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        raise DiskCountersError(str(path), error.strerror or str(error)) from error
    return {fields[2]: _disk(fields) for line in lines if len(fields := line.split()) >= _FIELDS}


def _disk(fields: list[str]) -> DiskCounters:
    # major minor name, then reads (ended, merged, sectors, ms), writes (the same four), in flight, busy ms, queue ms
    numbers = [int(field) for field in fields[3:_FIELDS]]
    return DiskCounters(
        requests=numbers[0] + numbers[4],
        request_ms=numbers[3] + numbers[7],
        read_bytes=numbers[2] * _SECTOR_BYTES,
        written_bytes=numbers[6] * _SECTOR_BYTES,
        in_flight=numbers[8],
        busy_ms=numbers[9],
        queue_ms=numbers[10],
    )
