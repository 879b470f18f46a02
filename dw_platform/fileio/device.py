"""From a path to the device below it, and to the queue depth that suits it.

| kind | depth | because |
|---|---|---|
| NVMe | 128 | many queues; far fewer leave its channels idle |
| SSD | 32 | SATA's command queue has 32 places |
| HDD | 8 | enough to sort its seeks; more only makes each wait longer |

A virtual disk is measured (see `probe.py`) and gets the kind that it behaves like. Where there is no block device
(network, overlay, memory), or nothing can be measured, the depth is that of an SSD: too deep for a disk behind it by
little, and not so shallow that a fast one is wasted.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dw_platform.fileio.disks import SLOWEST_FIRST, DeviceKind, disks_below
from dw_platform.fileio.mounts import Mount, mount_of
from dw_platform.fileio.probe import Behaviour, measure_behaviour
from dw_platform.fileio.system import THIS_SYSTEM, SystemTree

QUEUE_DEPTHS = {DeviceKind.NVME: 128, DeviceKind.SSD: 32, DeviceKind.HDD: 8}
UNKNOWN_BEHAVES_LIKE = DeviceKind.SSD


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What lies below a path."""

    kind: DeviceKind
    """What it is as far as the system says; VIRTUAL or NONE where it does not."""

    behaves_like: DeviceKind
    """NVMe, SSD or HDD."""

    disks: tuple[str, ...]
    """The names of its disks in sysfs and in the kernel's counters; empty if it has none."""

    reason: str

    @property
    def queue_depth(self) -> int:
        """How many requests it should have at once."""
        return QUEUE_DEPTHS[self.behaves_like]


def no_device(reason: str) -> Device:
    """Return what stands in for a device that is not there or not known."""
    return Device(kind=DeviceKind.NONE, behaves_like=UNKNOWN_BEHAVES_LIKE, disks=(), reason=reason)


def find_device(
    path: Path,
    system: SystemTree = THIS_SYSTEM,
    *,
    measure: Callable[[Path], Behaviour] = measure_behaviour,
) -> Device:
    """Return the device below `path`; a virtual one is measured in the folder at or above it, which takes a moment."""
    mount = mount_of(path, system)
    if mount is None:
        return no_device(f"the system does not say what {path} lies on")
    folder = _block_folder(mount, system)
    if folder is None:
        return no_device(f"{mount.point} is {mount.kind}, which has no block device of its own")
    disks = disks_below(folder, system)
    if all(disk.name.startswith(("ram", "zram")) for disk in disks):
        return no_device(f"{mount.point} lies in memory")
    kind = min((disk.kind for disk in disks), key=SLOWEST_FIRST.index)
    names, reason = tuple(disk.name for disk in disks), "; ".join(disk.reason for disk in disks)
    if kind is not DeviceKind.VIRTUAL:
        return Device(kind=kind, behaves_like=kind, disks=names, reason=reason)
    behaviour = measure(_folder_at(path))
    like = behaviour.kind or UNKNOWN_BEHAVES_LIKE
    return Device(kind=kind, behaves_like=like, disks=names, reason=f"{reason}; {behaviour.reason}")


def _block_folder(mount: Mount, system: SystemTree) -> Path | None:
    by_number = system.sys / "dev" / "block" / mount.number
    if by_number.exists():
        return by_number
    # btrfs and others have numbers of their own (major 0) and name the device they were mounted from.
    if not mount.source.startswith("/dev/"):
        return None
    by_name = system.sys / "class" / "block" / Path(os.path.realpath(mount.source)).name
    return by_name if by_name.exists() else None


def _folder_at(path: Path) -> Path:
    here = Path(os.path.realpath(path))
    return next(folder for folder in (here, *here.parents) if folder.is_dir())
